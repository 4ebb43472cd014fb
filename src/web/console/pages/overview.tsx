/** The first page: is it healthy, what runs now, what was used. It updates by itself. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Button } from "../../shared/button.tsx";
import { Chart, changeTo, useChartView } from "../../shared/chart.tsx";
import { Card, Figure, PageHead } from "../../shared/layout.tsx";
import { LiveMark, ShownLive, useLive } from "../../shared/live.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Spark } from "../../shared/plot.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { columnsOf, ShownTable, Table } from "../../shared/table.tsx";
import { dateOf, daysBetween, hourOf, hoursOfDay, hoursUntil, today } from "../../shared/times.ts";
import type { UsageReport } from "../../shared/types.ts";
import { totalOf, usageSeries } from "../../shared/usage-series.ts";
import { type Loaded, useGet, useLoaded } from "../../shared/use-loaded.ts";
import { Badge, ShortAmount } from "../../shared/values.tsx";
import { AccountLink, accountCell } from "../account-link.tsx";
import type { Overview } from "../types.ts";
import { FirstSteps } from "./first-steps.tsx";
import { ModelTable } from "./models.tsx";
import { RunningRequests } from "./running-requests.tsx";

const chartDays = 30;
/** With as many before them, to compare. */
const allDays = 2 * chartDays;
const chartHours = 24;
const sums = "/admin/usage/sums";

export function OverviewPage() {
  const live = useLive<Overview>("/admin/overview", ({ running }) => running.running + running.waiting > 0);
  const [from, to] = [today(1 - chartDays), today(1)];
  const first = today(1 - allDays);
  const daily = useGet<UsageReport>(sums, { by: "day", from: first, to, limit: 500 });
  const top = useGet<UsageReport>(sums, { by: "account", from, to, order: "cost", limit: 5 });
  return (
    <>
      <PageHead title="Overview">
        <LiveMark of={live} />
      </PageHead>
      <ShownLive of={live}>{(now) => <Now now={now} daily={daily} />}</ShownLive>
      <div class="cards">
        <CostByDay days={daysBetween(from, to)} daily={daily} now={live.value} />
        <Card title={`Accounts with the highest cost in ${chartDays} days`}>
          <ShownTable
            of={top}
            empty={<Empty>No request has finished yet.</Empty>}
            caption="Accounts with the highest cost"
            keyOf={({ account }) => account ?? ""}
            columns={columnsOf("usageSum", "account requests cost_micro", { account: accountCell })}
          />
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
    by === "day" ? [] : await usageSeries(sums, by, period, signal),
  );
  const together = (report: UsageReport) => ({
    name: "cost",
    micro: sumsByDay(report, days, now).map(({ cost_micro }) => cost_micro),
  });
  const label = `Cost in credits on each of the last ${chartDays} days`;
  const groupNames = { day: "all together", model: "by model", account: "by account" };
  return (
    <Card
      title="Cost by day"
      actions={Object.entries(groupNames).map(([group, title]) => (
        <Button
          key={group}
          aria-pressed={group === by}
          onClick={() => setBy(group === "model" || group === "account" ? group : "day")}
        >
          {title}
        </Button>
      ))}
    >
      <Shown of={by === "day" ? { ...daily, value: daily.value && [together(daily.value)] } : groups}>
        {(series) => <Chart times={days} series={series} label={label} view={view} />}
      </Shown>
    </Card>
  );
}

/** What changes by itself. */
function Now({ now, daily }: { now: Overview; daily: Loaded<UsageReport> }) {
  const { health, running, usage, low_balance: near, models } = now;
  const view = useChartView();
  const hourMs = usage === null ? Date.now() : Date.parse(usage.hour);
  const hours = hoursUntil(hourMs, chartHours);
  const days = daily.value && usage && sumsByDay(daily.value, daysBetween(today(1 - allDays), today(1)), now);
  return (
    <>
      <FirstSteps of={now} />
      <NeedsAttention of={now.attention} />
      <div class="card figures">
        <Course
          name="Requests today"
          values={usage && byHour(usage, hoursUntil(hourMs, 2 * chartHours), "requests")}
          count={hoursOfDay(hourMs)}
          back={chartHours}
          before="the same time yesterday"
          note={
            usage && (
              <>
                <ShortAmount micro={usage.today.cost_micro} /> credits
              </>
            )
          }
        />
        <Course name={`Requests in ${chartDays} days`} values={days?.map(({ requests }) => requests)} />
        <Course
          name={`Tokens in ${chartDays} days`}
          values={days?.map((each) => each.prompt_tokens + each.completion_tokens)}
        />
        <Course
          name={`Credits in ${chartDays} days`}
          values={days?.map(({ cost_micro }) => cost_micro)}
          isMicro
        />
      </div>
      <RunningRequests
        rows={running.requests}
        total={running.running + running.waiting + running.elsewhere}
        counts={`${wholeNumber(running.running + running.elsewhere)} running, ${wholeNumber(running.waiting)} waiting`}
      />
      <Card title={`Cost by hour (UTC), last ${chartHours} hours`}>
        <Chart
          times={hours}
          series={[{ name: "cost", micro: byHour(usage, hours, "cost_micro") }]}
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
        <Table
          caption="Accounts with almost no credits left"
          rows={near?.accounts ?? []}
          columns={columnsOf("account", "id plan credits", { id: AccountLink })}
          empty={
            <p class="quiet">
              {near ? "No account has less than 10 % of its credits." : "The list is not read yet."}
            </p>
          }
        />
      </Card>
    </>
  );
}

/** What needs an operator: screen readers hear of a change. */
function NeedsAttention({ of }: { of: Overview["attention"] }) {
  if (of.length === 0) {
    return (
      <p class="health" role="status">
        <Badge text="ready" /> <span class="quiet">Nothing needs your attention.</span>
      </p>
    );
  }
  return (
    <Card title="Needs attention">
      <div role="status">
        <ul class="steps">
          {of.map(({ text, page }) => (
            <li key={text}>
              {text}
              <Link to={page === "accounts" ? `${pathTo(page)}?not_come=true` : pathTo(page)}>
                {pages[page]}
              </Link>
            </li>
          ))}
        </ul>
      </div>
    </Card>
  );
}

const pages = { health: "Health", events: "Events", accounts: "Accounts" };

interface CourseProps {
  name: string;
  /** The last `count` of them are shown, and those `back` before are compared. Null: not read yet. */
  values: readonly number[] | null | undefined;
  count?: number;
  back?: number;
  before?: string;
  isMicro?: boolean;
  note?: ComponentChildren;
}

/** A figure with its course, and its change against the time before. */
function Course({ name, values, count = chartDays, back = count, before, isMicro, note }: CourseProps) {
  if (!values) return <Figure name={name} children="–" note="not read yet" />;
  const [total, earlier] = [totalOf(values.slice(-count)), totalOf(values.slice(-count - back, -back))];
  return (
    <Figure
      name={name}
      note={
        <>
          <Spark of={values.slice(-back)} />
          {note}
          {note && earlier > 0 && ", "}
          {earlier > 0 && changeTo(total, earlier, before)}
        </>
      }
    >
      {isMicro ? <ShortAmount micro={total} /> : wholeNumber(total)}
    </Figure>
  );
}

type Sums = NonNullable<Overview["usage"]>["today"];
const noSums: Sums = { requests: 0, prompt_tokens: 0, completion_tokens: 0, cost_micro: 0 };

/** Returns the sums of each day, those of today as they are now. */
function sumsByDay({ data }: UsageReport, days: readonly string[], now: Overview | null): Sums[] {
  const found = new Map<string | null, Sums>(data.map((row) => [row.day, row]));
  if (now?.usage) found.set(dateOf(Date.parse(now.usage.hour)), now.usage.today);
  return days.map((day) => found.get(day) ?? noSums);
}

function byHour(usage: Overview["usage"], hours: readonly string[], name: keyof Sums): number[] {
  const found = new Map(usage?.hours.map((sums) => [hourOf(Date.parse(sums.hour)), sums[name]]));
  return hours.map((hour) => found.get(hour) ?? 0);
}
