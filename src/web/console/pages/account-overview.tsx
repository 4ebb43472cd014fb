/** The balance of an account with its windows as a picture, and who it belongs to. */
import { apiPath, get } from "../../shared/api.ts";
import { Card, Figure } from "../../shared/layout.tsx";
import { LiveMark, ShownLive, useLive } from "../../shared/live.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Shown } from "../../shared/states.tsx";
import { Table } from "../../shared/table.tsx";
import { passedShare } from "../../shared/times.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge, Facts, ShortAmount, Time } from "../../shared/values.tsx";
import type { AccountLive, Balance, Page, RecentRefusal } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";
import { RunningRequests } from "./running-requests.tsx";

export function AccountOverview({ account }: AccountTabProps) {
  const { id } = account;
  const path = apiPath("accounts", id, "live");
  const live = useLive<{ message: AccountLive }>(`${path}/stream`, path);
  const now = live.value.message;
  return (
    <>
      <Card title="Balance" actions={<LiveMark of={live} />}>
        <ShownLive of={live} event="message">
          {({ balance, held_micro }) => <BalancePicture balance={balance} heldMicro={held_micro} />}
        </ShownLive>
      </Card>
      <Card title="Account">
        <Facts
          rows={[
            ["Plan", account.plan],
            ["Plan from the next refresh", account.next_plan],
            ["Closes", <Time key="ends" at={account.ends_at} />],
            ["Opened", <Time key="opened" at={account.created_at} />],
            ["Owner", account.owner],
            ["E-mail", account.email],
            ["External id", account.external_id],
            ["Note", account.note],
          ]}
        />
      </Card>
      <Refusals account={id} />
      {now && <RunningRequests rows={now.requests} total={now.running} hasAccount={false} />}
    </>
  );
}

/** Answers "why does my request fail?". */
function Refusals({ account }: { account: string }) {
  const refusals = useLoaded(`refusals ${account}`, (signal) =>
    get<Page<RecentRefusal>>(apiPath("accounts", account, "refusals"), { limit: 20 }, signal),
  );
  return (
    <Card title="Latest refused requests">
      <Shown of={refusals}>
        {({ data }) =>
          data.length === 0 ? (
            <p class="quiet">This node has refused no request of the account since its start.</p>
          ) : (
            <Table
              caption="Latest refused requests of the account on this node"
              rows={data}
              keyOf={(row) => row.request_id}
              columns={[
                { title: "Time", cell: (row) => <Time at={row.at} /> },
                { title: "Error", cell: (row) => <Badge text={row.code} tone="warn" /> },
                { title: "Model", cell: (row) => row.model ?? <span class="quiet">–</span> },
                { title: "Request", cell: (row) => <code>{row.request_id}</code> },
                { title: "Key", cell: (row) => <code>{row.key}</code> },
              ]}
            />
          )
        }
      </Shown>
    </Card>
  );
}

function BalancePicture({ balance, heldMicro }: { balance: Balance; heldMicro: number }) {
  const { balances, caps, baseWindow, overageWindow } = balance;
  return (
    <>
      <div class="figures">
        <Figure name="Credits left" note="whole credits, rounded down">
          {wholeNumber(balances.total.credits)}
        </Figure>
        <Figure name="Additional credits" note="bought; they do not lapse">
          {wholeNumber(balances.additional.credits)}
        </Figure>
        <Figure name="Held credits" note="for running requests">
          <ShortAmount micro={heldMicro} />
        </Figure>
      </div>
      <Bucket name="Base" {...balances.base} cap={caps.base.credits} window={baseWindow} />
      <Bucket name="Overage" {...balances.overage} cap={caps.overage.credits} window={overageWindow} />
    </>
  );
}

function Bucket(props: {
  name: "Base" | "Overage";
  credits: number;
  percent: number;
  cap: number;
  window: { startedAt: string; refreshesAt: string };
}) {
  const { name, credits, percent, cap, window } = props;
  if (cap === 0) return <p class="bucket quiet">{name}: the plan grants none.</p>;
  const passed = passedShare(Date.parse(window.startedAt), Date.parse(window.refreshesAt), Date.now());
  return (
    <div class={`bucket ${name.toLowerCase()}`}>
      <p>
        <strong>{name}</strong>{" "}
        <span class="number">
          {wholeNumber(credits)} of {wholeNumber(cap)} ({percent} %)
        </span>
      </p>
      <div class="bar" role="img" aria-label={`${percent} % of the ${name.toLowerCase()} credits are left`}>
        <i style={{ width: `${percent}%` }} />
        <b
          style={{ left: `${passed * 100}%` }}
          title={`${Math.round(passed * 100)} % of the window has passed`}
        />
      </div>
      <p class="quiet ends">
        <span>
          started <Time at={window.startedAt} />
        </span>
        <span>
          refreshes <Time at={window.refreshesAt} />
        </span>
      </p>
    </div>
  );
}
