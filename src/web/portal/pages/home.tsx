/** The balance as a picture, live, with what runs now and the latest requests. */
import { mailNames } from "../../../actions/accounts.ts";
import { changeOwnMail, mailSaved } from "../../../actions/portal.ts";
import { exactCredits, microPerCredit } from "../../../units.ts";
import { apiPath, getUnattended, send } from "../../shared/api.ts";
import { BalancePicture } from "../../shared/balance.tsx";
import { capKey } from "../../shared/key-values.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { LiveMark } from "../../shared/live.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { useAttempt } from "../../shared/plain-form.tsx";
import { costCell, endingCell } from "../../shared/receipts.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Failure } from "../../shared/states.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import { toast } from "../../shared/toasts.tsx";
import type { Balance, Key, Page, Receipt } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Due, Time } from "../../shared/values.tsx";
import type { AccountState, OwnAccount } from "../types.ts";
import { useFollowed } from "../use-followed.ts";
import { useKeyNames, useModels } from "../use-own.ts";
import { Limits } from "./key-card.tsx";
import { refusedPath } from "./refused.tsx";
import { RunningRequests, useRunning } from "./running.tsx";

const latestMax = 5;
/** For the operator API, less than this part of the windows is a low balance. */
const nearPercent = 10;
/** As usual for English. */
const wordsPerToken = 0.75;
const aboutNumber = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });

export function HomePage({ own }: { own: OwnAccount }) {
  const live = useRunning();
  const balance = live.value?.balance ?? own.balance;
  const state = live.value?.account ?? own;
  const running = live.value?.requests;
  const heldMicro = running?.data.reduce((sum, { held_micro }) => sum + held_micro, 0) ?? 0;
  const change = running && [running.journal_seq, ...running.data.map(({ id }) => id)].join(" ");
  const nameOfKey = useKeyNames();
  // Running requests spend the caps of the key.
  const account = useLoaded("own", (signal) => getUnattended<OwnAccount>(apiPath("account"), {}, signal));
  useFollowed(account, change);
  const { key, mail } = account.value ?? own;
  return (
    <>
      <PageHead title="Balance">
        <LiveMark of={live} />
      </PageHead>
      <Warnings state={state} balance={balance} ownKey={key} />
      <div class="cards">
        <Card title={own.rights.keys === "own" ? "Credits of the account" : "Credits"}>
          <div class="largest">
            <BalancePicture
              balance={balance}
              refills={state.refills}
              heldMicro={heldMicro}
              note={<Worth credits={balance.balances.total.credits} refill={state.refills[0]} />}
            />
          </div>
          {heldMicro > 0 && (
            <p class="quiet">
              Running requests pay what they use of the credits that they hold, and give the rest back.
            </p>
          )}
        </Card>
        <Limits ofKey={key} state={state} limits={live.value?.limits ?? own.limits} />
      </div>
      <RunningRequests of={live} nameOfKey={nameOfKey} />
      <Latest change={change} nameOfKey={nameOfKey} />
      {mail !== null && <Mail choices={mail} changed={account.reload} />}
    </>
  );
}

/** Switches, each of which takes effect at once. */
function Mail({ choices, changed }: { choices: NonNullable<OwnAccount["mail"]>; changed(): void }) {
  const { error, attempt } = useAttempt();
  const change = async (name: string, isOn: boolean) => {
    await attempt(async () => {
      await send("PATCH", apiPath("account", "mail"), { [name]: isOn ? "on" : "off" });
      toast(mailSaved);
    });
    changed();
  };
  return (
    <Card title="Mail">
      <p class="quiet above">Goes to the address that the operator of this service has for your account.</p>
      {error !== null && <Failure error={error} />}
      <div class="facts">
        {mailNames.map((name) => (
          <label key={name} for={name}>
            <input
              id={name}
              type="checkbox"
              role="switch"
              checked={choices[name] === "on"}
              aria-checked={choices[name] === "on"}
              onChange={({ currentTarget }) => void change(name, currentTarget.checked)}
            />{" "}
            {changeOwnMail.input[name].label}
          </label>
        ))}
      </div>
    </Card>
  );
}

/** What the credits are worth, by the price of the first model, and when more come. */
function Worth(props: { credits: number; refill: AccountState["refills"][number] | undefined }) {
  const { credits, refill } = props;
  const models = useModels();
  const model = models.value?.data[0];
  const price = model?.pricing.completion ?? 0;
  const words = (credits / price) * 1_000_000 * wordsPerToken;
  return (
    <>
      {refill ? (
        <>
          {refill.bucket === "base" ? "Base" : "Overage"} refills to {wholeNumber(refill.credits)}{" "}
          <Due at={refill.at} />
        </>
      ) : (
        "No refill is due"
      )}
      {model !== undefined && price > 0 && (
        <>
          <br />
          About {aboutNumber.format(words)} words of answers by <span class="nowrap">{model.id}</span>
        </>
      )}
    </>
  );
}

/** What stops requests, or soon will, and what to do then. */
function Warnings(props: { state: AccountState; balance: Balance; ownKey: Key | null }) {
  const { state, balance, ownKey } = props;
  const { balances, caps } = balance;
  const left = balances.total.credits;
  const [refill] = state.refills;
  const whatNext = refill ? (
    <>
      The {refill.bucket} credits refill to {wholeNumber(refill.credits)} <Due at={refill.at} />. If you need
      more before then, ask the operator for a top-up.
    </>
  ) : (
    "They do not refill: ask the operator for a top-up or another plan."
  );
  return (
    <div role="status">
      {state.state !== "active" && (
        <p class="notice bad">
          <strong>This account is {state.state}.</strong> Requests are refused. You can look at everything;
          ask the operator to activate the account.
        </p>
      )}
      {state.ends_at !== null && (
        <p class="notice">
          <strong>
            This account closes <Time at={state.ends_at} />.
          </strong>{" "}
          Requests are refused from then on, and these pages end. Ask the operator if it should stay open.
        </p>
      )}
      {left === 0 ? (
        <p class="notice bad">
          <strong>The credits are used up.</strong> Requests that cost credits are refused. {whatNext}
        </p>
      ) : (
        left * 100 < caps.total.credits * nearPercent && (
          <p class="notice warn">
            <strong>Less than {nearPercent} % of the credits are left.</strong> {whatNext}
          </p>
        )
      )}
      {state.spending_caps.map((cap) => (
        <CapWarning key={capKey(cap)} cap={cap} owner="your plan" />
      ))}
      {ownKey?.spending_caps.map((cap) => (
        <CapWarning key={capKey(cap)} cap={cap} owner="this key" />
      ))}
    </div>
  );
}

function CapWarning({ cap, owner }: { cap: Key["spending_caps"][number]; owner: string }) {
  const micro = cap.left_micro;
  if (micro * 100 >= cap.credits * microPerCredit * nearPercent) return null;
  return (
    <p class={`notice ${micro === 0 ? "bad" : "warn"}`}>
      <strong>
        {micro === 0
          ? `The cap ${cap.name} of ${owner} is reached.`
          : `Only ${exactCredits(micro)} credits are left of the cap ${cap.name} of ${owner}.`}
      </strong>{" "}
      It refills <Due at={cap.refreshes_at} />.
    </p>
  );
}

/** Loaded again after a `change`. */
function Latest({ change, nameOfKey }: { change: unknown; nameOfKey(id: string): string }) {
  const latest = useLoaded("latest", (signal) =>
    getUnattended<Page<Receipt>>(apiPath("requests"), { limit: latestMax }, signal),
  );
  useFollowed(latest, change);
  return (
    <Card
      title="Latest requests"
      actions={
        <>
          <Link to={refusedPath()}>Refused requests</Link> <Link to={pathTo("requests")}>All requests</Link>
        </>
      }
    >
      <ShownTable
        of={latest}
        empty={
          <Empty>
            No request has finished yet. <Link to={pathTo("start")}>Send the first one</Link>, or{" "}
            <Link to={pathTo("chat")}>try a model in the chat</Link>.
          </Empty>
        }
        caption="Latest finished requests"
        columns={columnsOf("receipt", "finished_at cost_micro model key ending", {
          cost_micro: costCell,
          key: (row: Receipt) => nameOfKey(row.key),
          ending: endingCell,
        })}
      />
    </Card>
  );
}
