/** What the requests of the key, or of the account, cost by day, model and key. */
import { apiPath } from "../../shared/api.ts";
import { Chart, useChartView } from "../../shared/chart.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import type { Place } from "../../shared/router.tsx";
import { Shown } from "../../shared/states.tsx";
import { hourOf, hoursUntil } from "../../shared/times.ts";
import { UsageOfPeriod } from "../../shared/usage-report.tsx";
import { highest, type Series } from "../../shared/usage-series.ts";
import { useGet } from "../../shared/use-loaded.ts";
import type { UsageHours } from "../types.ts";
import { useKeyNames } from "../use-own.ts";

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
  const usage = useGet<UsageHours>(apiPath("usage", "hours"), { hours: hoursShown, by: "model" });
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
  const models = Map.groupBy(data, ({ model }) => model ?? "");
  const all = [...models].map(([name, rows]) => {
    const costs = new Map(rows.map(({ hour, cost_micro }) => [hourOf(Date.parse(hour)), cost_micro]));
    return { name, micro: times.map((time) => costs.get(time) ?? 0) };
  });
  return highest(all, times.length);
}
