/** The balance of an account with its windows as a picture, and who it belongs to. */
import { adminPath, get } from "../api.ts";
import { wholeNumber } from "../numbers.ts";
import { Card, Figure } from "../parts/layout.tsx";
import { Shown } from "../parts/states.tsx";
import { Table } from "../parts/table.tsx";
import { Amount, Facts, Time } from "../parts/values.tsx";
import { passedShare } from "../times.ts";
import type { Balance, Hold, Page } from "../types.ts";
import { useLoaded } from "../use-loaded.ts";
import type { AccountTabProps } from "./account-tab.ts";

export function AccountOverview({ account }: AccountTabProps) {
  const { id } = account;
  // The account is loaded again after each change, and with it the balance.
  const balance = useLoaded(`balance ${JSON.stringify(account)}`, (signal) =>
    get<Balance>(adminPath("accounts", id, "balance"), {}, signal),
  );
  const holds = useLoaded(`holds ${id}`, (signal) =>
    get<Page<Hold>>("/admin/holds", { account: id, limit: 50 }, signal),
  );
  return (
    <>
      <Card
        title="Balance"
        actions={
          <button
            type="button"
            onClick={() => {
              balance.reload();
              holds.reload();
            }}
          >
            Refresh
          </button>
        }
      >
        <Shown of={balance}>{(value) => <BalancePicture balance={value} />}</Shown>
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
      <Card title="Running requests">
        <Shown of={holds}>
          {({ data }) =>
            data.length === 0 ? (
              <p class="quiet">Nothing runs now.</p>
            ) : (
              <Table
                caption="Running requests and the credits that they hold"
                rows={data}
                keyOf={(hold) => hold.request_id}
                columns={[
                  { title: "Request", cell: (hold) => <code>{hold.request_id}</code> },
                  { title: "Model", cell: (hold) => hold.model },
                  { title: "Started", cell: (hold) => <Time at={hold.created_at} /> },
                  {
                    title: "Held credits",
                    isNumber: true,
                    cell: (hold) => <Amount micro={hold.held_micro} />,
                  },
                ]}
              />
            )
          }
        </Shown>
      </Card>
    </>
  );
}

function BalancePicture({ balance }: { balance: Balance }) {
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
