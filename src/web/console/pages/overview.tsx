/** The first page: is it healthy, what runs now, what was used. It updates by itself. */
import { useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { Chart, useChartView } from "../../shared/chart.tsx";
import { Card, Figure, PageHead } from "../../shared/layout.tsx";
import { LiveMark, ShownLive, useLive } from "../../shared/live.tsx";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { dateOf, daysBetween, hourOf, hoursUntil, today } from "../../shared/times.ts";
import type { UsageReport } from "../../shared/types.ts";
import { usageSeries } from "../../shared/usage-series.ts";
import { type Loaded, useLoaded } from "../../shared/use-loaded.ts";
import { Badge, ShortAmount } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { Overview } from "../types.ts";
import { ModelTable } from "./models.tsx";
import { RunningRequests } from "./running-requests.tsx";

const chartDays = 30;
const chartHours = 24;

export function OverviewPage() {
  const live = useLive<Overview>("/admin/overview", ({ running }) => running.running + running.waiting > 0);
  const [from, to] = [today(1 - chartDays), today(1)];
  const daily = useLoaded(`daily ${from}`, (signal) =>
    get<UsageReport>("/admin/usage/sums", { by: "day", from, to, limit: 500 }, signal),
  );
  const top = useLoaded(`top ${from}`, (signal) =>
    get<UsageReport>("/admin/usage/sums", { by: "account", from, to, order: "cost", limit: 5 }, signal),
  );
  return (
    <>
      <PageHead title="Overview">
        <LiveMark of={live} />
      </PageHead>
      <ShownLive of={live}>{(now) => <Now now={now} daily={daily} />}</ShownLive>
      <div class="cards">
        <CostByDay days={daysBetween(from, to)} daily={daily} now={live.value} />
        <Card title={`Accounts with the highest cost in ${chartDays} days`}>
          <Shown of={top}>{({ data }) => <HighestCost rows={data} />}</Shown>
        </Card>
      </div>
    </>
  );
}

/** All together, live, or the models or accounts with the highest cost beside each other. */
function CostByDay(props: { days: readonly string[]; daily: Loaded<UsageReport>; now: Overview | null }) {
  const { days, daily, now } = props;
  const [by, setBy] = useState<"day" | "model" | "account">("day");
  const view = useChartView();
  const period = { from: days[0] ?? "", to: today(1) };
  const groups = useLoaded(`series ${by} ${period.from}`, async (signal) =>
    by === "day" ? [] : await usageSeries("/admin/usage/sums", by, period, signal),
  );
  const label = `Cost in credits on each of the last ${chartDays} days`;
  const groupNames = { day: "all together", model: "by model", account: "by account" };
  return (
    <Card
      title="Cost by day"
      actions={Object.entries(groupNames).map(([group, title]) => (
        <button
          key={group}
          type="button"
          aria-pressed={group === by}
          onClick={() => setBy(group === "model" || group === "account" ? group : "day")}
        >
          {title}
        </button>
      ))}
    >
      {by === "day" ? (
        <Shown of={daily}>
          {(report) => {
            const series = [{ name: "cost", micro: microByDay(report, days, now) }];
            return <Chart times={days} series={series} label={label} view={view} />;
          }}
        </Shown>
      ) : (
        <Shown of={groups}>
          {(series) => <Chart times={days} series={series} label={label} view={view} />}
        </Shown>
      )}
    </Card>
  );
}

/** What changes by itself. */
function Now({ now, daily }: { now: Overview; daily: Loaded<UsageReport> }) {
  const { health, running, usage, low_balance: near, models } = now;
  const view = useChartView();
  const hours = hoursUntil(usage === null ? Date.now() : Date.parse(usage.hour), chartHours);
  return (
    <>
      <HealthLine health={health} />
      <div class="card figures">
        <Figure name="Running now" note={`${counted(running.waiting, "request")} waiting`}>
          {wholeNumber(running.running + running.elsewhere)}
        </Figure>
        <SumFigure period="this hour" sums={usage?.this_hour ?? null} />
        <SumFigure period="today" sums={usage?.today ?? null} />
        <SumFigure
          period={`in ${chartDays} days`}
          sums={daily.value && usage && inDays(daily.value, usage.today, dateOf(Date.parse(usage.hour)))}
        />
      </div>
      <RunningRequests
        rows={running.requests}
        total={running.running + running.waiting + running.elsewhere}
      />
      <Card title={`Cost by hour, last ${chartHours} hours`}>
        <Chart
          times={hours}
          series={[{ name: "cost", micro: microByHour(usage, hours) }]}
          view={view}
          label={`Cost in credits in each of the last ${chartHours} hours`}
        />
      </Card>
      <Card title="Models">
        {health.nodes > 1 && (
          <p class="quiet">
            Queue, speed and errors are those of this node, {health.node}, since its start. The other numbers
            of this page are of all {wholeNumber(health.nodes)} <Link to={pathTo("health")}>nodes</Link>.
          </p>
        )}
        <ModelTable models={models} />
      </Card>
      <Card
        title="Accounts with almost no credits left"
        actions={<Link to={`${pathTo("accounts")}?low_balance=true&order=remaining`}>All of them</Link>}
      >
        {near === null ? <p class="quiet">The list is not read yet.</p> : <LowBalance rows={near.accounts} />}
      </Card>
    </>
  );
}

function HighestCost({ rows }: { rows: UsageReport["data"] }) {
  if (rows.length === 0) {
    return (
      <Empty>
        No request has finished yet. <Link to={pathTo("accounts")}>Open an account</Link> and create a key.
      </Empty>
    );
  }
  return (
    <Table
      caption="Accounts with the highest cost"
      rows={rows}
      keyOf={({ account }) => account ?? ""}
      columns={columnsOf("usageSum", "account requests cost_micro", {
        account: ({ account }: UsageReport["data"][number]) => <AccountLink id={account ?? ""} />,
      })}
    />
  );
}

function LowBalance({ rows }: { rows: NonNullable<Overview["low_balance"]>["accounts"] }) {
  if (rows.length === 0) return <p class="quiet">No account has less than 10 % of its credits.</p>;
  return (
    <Table
      caption="Accounts with almost no credits left"
      rows={rows}
      columns={columnsOf("account", "id plan credits", { id: AccountLink })}
    />
  );
}

/** Screen readers hear of a change of the health. */
function HealthLine({ health }: { health: Overview["health"] }) {
  const jobs = health.jobs.map(({ name, state }) => `The job "${name.replaceAll("_", " ")}" is ${state}.`);
  const warnings = [...health.warnings, ...jobs];
  const isHealthy = health.ready && health.clock === "ok" && warnings.length === 0;
  return (
    <p class={isHealthy ? "health" : "notice warn"} role="status">
      <Badge text={health.ready ? "ready" : "not ready"} tone={health.ready ? "good" : "bad"} />{" "}
      {isHealthy ? (
        <span class="quiet">
          The service takes requests, the database responds, and the ledger follows the clock.
        </span>
      ) : (
        ["Something needs your attention.", ...warnings].join(" ")
      )}{" "}
      <Link to={pathTo("health")}>Health</Link>
    </p>
  );
}

type Sums = NonNullable<Overview["usage"]>["today"];

function SumFigure({ period, sums }: { period: string; sums: Sums | null }) {
  const note = sums && (
    <>
      {counted(sums.prompt_tokens + sums.completion_tokens, "token")}
      <br />
      <ShortAmount micro={sums.cost_micro} /> credits
    </>
  );
  return (
    <Figure name={`Requests ${period}`} note={note ?? "not read yet"}>
      {wholeNumber(sums?.requests ?? null)}
    </Figure>
  );
}

/** Returns the total of a report, with the present sums of today. */
function inDays({ total, data }: UsageReport, today: Sums, day: string): Sums {
  const loaded = data.find((row) => row.day === day);
  const now = (name: keyof Sums) => total[name] - (loaded?.[name] ?? 0) + today[name];
  return {
    requests: now("requests"),
    prompt_tokens: now("prompt_tokens"),
    completion_tokens: now("completion_tokens"),
    cost_micro: now("cost_micro"),
  };
}

function microByDay({ data }: UsageReport, days: readonly string[], now: Overview | null): number[] {
  const costs = new Map(data.map(({ day, cost_micro }) => [day, cost_micro]));
  if (now?.usage) costs.set(dateOf(Date.parse(now.usage.hour)), now.usage.today.cost_micro);
  return days.map((day) => costs.get(day) ?? 0);
}

function microByHour(usage: Overview["usage"], hours: readonly string[]): number[] {
  const costs = new Map(usage?.hours.map(({ hour, cost_micro }) => [hourOf(Date.parse(hour)), cost_micro]));
  return hours.map((hour) => costs.get(hour) ?? 0);
}
