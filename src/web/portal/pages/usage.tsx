/** What the requests of the key, or of the account, cost by day, model and key. */
import { apiPath, get } from "../../shared/api.ts";
import { Chart, useChartView } from "../../shared/chart.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import type { Place } from "../../shared/router.tsx";
import { Shown } from "../../shared/states.tsx";
import { hourOf, hoursUntil } from "../../shared/times.ts";
import { UsageOfPeriod } from "../../shared/usage-report.tsx";
import { highest, type Series } from "../../shared/usage-series.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { useKeyNames } from "../key-names.ts";
import type { UsageHours } from "../types.ts";

const hoursShown = 24;

export function UsagePage({ place }: { place: Place }) {
  const nameOfKey = useKeyNames();
  return (
    <>
      <PageHead title="Usage" />
      <UsageOfPeriod
        place={place}
        path={apiPath("usage")}
        groups={["day", "model", "key"]}
        nameOfKey={nameOfKey}
      />
      <LastDay />
    </>
  );
}

function LastDay() {
  const usage = useLoaded("hours", (signal) =>
    get<UsageHours>(apiPath("usage", "hours"), { hours: hoursShown, by: "model" }, signal),
  );
  const view = useChartView();
  return (
    <Card title={`The last ${hoursShown} hours (UTC)`}>
      <Shown of={usage}>
        {({ to, data }) => {
          // `to` is the end of the last hour.
          const times = hoursUntil(Date.parse(to) - 1, hoursShown);
          return (
            <Chart
              times={times}
              series={byModel(data, times)}
              view={view}
              label={`Cost in credits in each of the last ${hoursShown} hours`}
            />
          );
        }}
      </Shown>
    </Card>
  );
}

function byModel(data: UsageHours["data"], times: readonly string[]): Series[] {
  const models = new Map<string, Map<string, number>>();
  for (const { hour, model, cost_micro } of data) {
    const name = model ?? "";
    const costs = models.get(name) ?? new Map<string, number>();
    models.set(name, costs.set(hourOf(Date.parse(hour)), cost_micro));
  }
  const all = [...models].map(([name, costs]) => ({
    name,
    micro: times.map((time) => costs.get(time) ?? 0),
  }));
  return highest(all, times.length);
}
