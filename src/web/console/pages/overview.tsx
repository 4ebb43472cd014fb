/** The first page: is it healthy, what was used, what runs now. */
import { get } from "../../shared/api.ts";
import { Chart } from "../../shared/chart.tsx";
import { Card, Figure, PageHead } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { Table } from "../../shared/table.tsx";
import { dayOf, daysBetween } from "../../shared/times.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Amount, Badge, ShortAmount } from "../../shared/values.tsx";
import type { ListedAccount, Page, Readiness, UsageReport } from "../types.ts";
import { Models } from "./models.tsx";
import { RunningRequests } from "./running-requests.tsx";

const chartDays = 30;

export function OverviewPage() {
  const [from, today, to] = [dayOf(Date.now(), 1 - chartDays), dayOf(Date.now()), dayOf(Date.now(), 1)];
  const readiness = useLoaded("readiness", (signal) => get<Readiness>("/readyz", {}, signal));
  const daily = useLoaded(`daily ${from}`, (signal) =>
    get<UsageReport>("/admin/usage/sums", { by: "day", from, to, limit: 500 }, signal),
  );
  const top = useLoaded(`top ${from}`, (signal) =>
    get<UsageReport>("/admin/usage/sums", { by: "account", from, to, order: "cost", limit: 5 }, signal),
  );
  const near = useLoaded("near", (signal) =>
    get<Page<ListedAccount>>(
      "/admin/accounts",
      { near_exhaustion: "true", order: "remaining", limit: 5 },
      signal,
    ),
  );
  return (
    <>
      <PageHead title="Overview" />
      <Shown of={readiness}>{(now) => <HealthLine now={now} />}</Shown>
      <Shown of={daily}>
        {(report) => (
          <>
            <div class="card figures">
              <DayFigures title="today" rows={report.data.filter(({ day }) => day === today)} />
              <DayFigures title={`in ${chartDays} days`} rows={[report.total]} />
            </div>
            <Card title="Cost by day">
              <Chart
                days={daysBetween(from, to)}
                series={[{ name: "cost", micro: microByDay(report, daysBetween(from, to)) }]}
                label={`Cost in credits on each of the last ${chartDays} days`}
              />
            </Card>
          </>
        )}
      </Shown>
      <Card title="Models">
        <Models hasPrices={false} />
      </Card>
      <div class="cards">
        <RunningRequests />
        <Card
          title="Accounts with almost no credits left"
          actions={<Link to={`${pathTo("accounts")}?near_exhaustion=true&order=remaining`}>All of them</Link>}
        >
          <Shown of={near}>{({ data }) => <NearExhaustion rows={data} />}</Shown>
        </Card>
        <Card title={`Accounts with the highest cost in ${chartDays} days`}>
          <Shown of={top}>
            {({ data }) =>
              data.length === 0 ? (
                <Empty>
                  No request has finished yet. <Link to={pathTo("accounts")}>Open an account</Link> and create
                  a key.
                </Empty>
              ) : (
                <Table
                  caption="Accounts with the highest cost"
                  rows={data}
                  keyOf={({ account }) => account ?? ""}
                  columns={[
                    {
                      title: "Account",
                      cell: ({ account }) => <Link to={pathTo("accounts", account ?? "")}>{account}</Link>,
                    },
                    { title: "Requests", isNumber: true, cell: ({ requests }) => wholeNumber(requests) },
                    {
                      title: "Cost",
                      isNumber: true,
                      cell: ({ cost_micro }) => <Amount micro={cost_micro} />,
                    },
                  ]}
                />
              )
            }
          </Shown>
        </Card>
      </div>
    </>
  );
}

function NearExhaustion({ rows }: { rows: readonly ListedAccount[] }) {
  if (rows.length === 0) return <p class="quiet">No account has less than 10 % of its credits.</p>;
  return (
    <Table
      caption="Accounts with almost no credits left"
      rows={rows}
      keyOf={({ id }) => id}
      columns={[
        { title: "Account", cell: ({ id }) => <Link to={pathTo("accounts", id)}>{id}</Link> },
        { title: "Plan", cell: ({ plan }) => plan },
        {
          ...{ title: "Credits left", isNumber: true },
          cell: ({ balance }) => wholeNumber(balance?.balances.total.credits ?? null),
        },
      ]}
    />
  );
}

function HealthLine({ now }: { now: Readiness }) {
  const isHealthy = now.ready && now.clock === "ok" && now.warnings.length === 0;
  return (
    <p class={isHealthy ? "health" : "notice warn"}>
      <Badge text={now.ready ? "ready" : "not ready"} tone={now.ready ? "good" : "bad"} />{" "}
      {isHealthy
        ? "The service takes requests, the database responds, and the clock is trusted."
        : "Something needs your attention."}{" "}
      <Link to={pathTo("health")}>Health</Link>
    </p>
  );
}

function DayFigures({ title, rows }: { title: string; rows: readonly UsageReport["total"][] }) {
  const sum = (read: (row: UsageReport["total"]) => number) => rows.reduce((all, row) => all + read(row), 0);
  return (
    <>
      <Figure name={`Requests ${title}`}>{wholeNumber(sum((row) => row.requests))}</Figure>
      <Figure name={`Tokens ${title}`}>
        {wholeNumber(sum((row) => row.prompt_tokens + row.completion_tokens))}
      </Figure>
      <Figure name={`Credits ${title}`}>
        <ShortAmount micro={sum((row) => row.cost_micro)} />
      </Figure>
    </>
  );
}

function microByDay({ data }: UsageReport, days: readonly string[]): number[] {
  const costs = new Map(data.map(({ day, cost_micro }) => [day, cost_micro]));
  return days.map((day) => costs.get(day) ?? 0);
}
