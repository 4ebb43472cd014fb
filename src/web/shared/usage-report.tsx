/** Usage of a period: a chart by day, the total, and a table by day, model, key or account. */

import { useRef } from "preact/hooks";
import { get, readBlob } from "./api.ts";
import { Chart, useChartView } from "./chart.tsx";
import { Card, Figure } from "./layout.tsx";
import { wholeNumber } from "./numbers.ts";
import { PeriodPicker } from "./period.tsx";
import { FilterInput } from "./resource-page.tsx";
import { Link, type Place, pathTo, usePeriod, withParameters } from "./router.tsx";
import { SaveButton } from "./save-button.tsx";
import { Empty, Shown } from "./states.tsx";
import { columnsOf, Pager, Table } from "./table.tsx";
import { dayAfter, daysBetween } from "./times.ts";
import type { UsageReport, UsageSum } from "./types.ts";
import { groupNameOf, renameSeries, type UsageGroup, usageSeries } from "./usage-series.ts";
import { useGet, useLoaded } from "./use-loaded.ts";
import { ShortAmount } from "./values.tsx";

const daysDefault = 30;
const [counts, money, paid] = [
  columnsOf("usageSum", "requests prompt_tokens cached_tokens completion_tokens cost_micro"),
  columnsOf("usageSum", "paid_money"),
  columnsOf("usageSum", "base_micro overage_micro additional_micro"),
];
/** Further days are on the next page, and groups with a lower cost in the CSV only. */
const rowsMax = 100;

interface UsageProps {
  place: Place;
  /** Path of the sums in the API. */
  path: string;
  /** The first one is the default. */
  groups: readonly UsageGroup[];
  account?: string;
  /** Returns the name of a key. Default: its id. */
  nameOfKey?(id: string): string;
}

export function UsageOfPeriod({ place, path, groups, account, nameOfKey = (id) => id }: UsageProps) {
  const { from, to } = usePeriod(place, daysDefault);
  const by = groups.find((group) => group === place.query.get("by")) ?? groups[0] ?? "day";
  // Days are in their order, and in pages. Others have the highest cost first.
  const after = by === "day" ? place.query.get("after") : null;
  const page = { ...(by === "day" ? { after } : { order: "cost" }), limit: rowsMax };
  const [model = "", key = ""] = ["model", "key"].map((name) => place.query.get(name) ?? "");
  const filter = { from, to, account, model, key };
  const view = useChartView();
  const sums = { ...filter, by, ...page };
  // Loaded before the chart, which shows the first groups of the table.
  const asked = useRef<Promise<UsageReport> | null>(null);
  const table = useLoaded(JSON.stringify([path, sums]), (signal) => {
    asked.current = get<UsageReport>(path, sums, signal);
    return asked.current;
  });
  const chart = useLoaded(JSON.stringify([path, by, filter]), (signal) =>
    usageSeries(path, by, filter, signal, by === "day" ? null : asked.current),
  );
  const days = daysBetween(from, to);
  const earlier = { ...filter, from: dayAfter(from, -days.length), to: from };
  const before = useGet<UsageReport>(path, { ...earlier, limit: 1 });
  return (
    <>
      <PeriodPicker from={from} to={to} />
      <div class="filters">
        <FilterInput
          of={{ name: "by", label: "By", options: groups.map((group) => [group, group]) }}
          value={by}
        />
        <FilterInput of={{ name: "model", label: "model", as: "link" }} value={model} />
        <FilterInput of={{ name: "key", label: "key", as: "link" }} value={nameOfKey(key)} />
        <span class="actions">
          <SaveButton
            text="Export CSV"
            file={`usage-${by}-${from}-${dayAfter(to, -1)}.csv`}
            load={() =>
              readBlob(path, { ...filter, by, format: "csv", order: by === "day" ? "name" : "cost" })
            }
          />
        </span>
      </div>
      <Card title="Cost by day">
        <Shown of={chart}>
          {(series) => (
            <Chart
              times={days}
              series={renameSeries(series, by === "key" ? nameOfKey : (id) => id)}
              view={view}
              label="Cost in credits by day"
              beforeMicro={before.value?.total.cost_micro}
            />
          )}
        </Shown>
      </Card>
      <Shown of={table}>
        {(report) => (
          <>
            <div class="card figures">
              <Figure name="Requests">{wholeNumber(report.total.requests)}</Figure>
              <Figure name="Prompt tokens">{wholeNumber(report.total.prompt_tokens)}</Figure>
              <Figure name="Answer tokens">{wholeNumber(report.total.completion_tokens)}</Figure>
              {report.total.shortfall_micro > 0 && (
                <Figure name="Not paid">
                  <ShortAmount micro={report.total.shortfall_micro} />
                </Figure>
              )}
            </div>
            <Sums by={by} report={report} isFirst={after === null} nameOfKey={nameOfKey} />
          </>
        )}
      </Shown>
    </>
  );
}

function Sums(props: {
  by: UsageGroup;
  report: UsageReport;
  isFirst: boolean;
  nameOfKey(id: string): string;
}) {
  const { by, report, isFirst, nameOfKey } = props;
  if (report.data.length === 0) {
    return <Empty>No request has finished in this period. Choose another one, or send a request.</Empty>;
  }
  const name = (row: UsageSum) => <Name row={row} by={by} nameOfKey={nameOfKey} />;
  const ofMany = by === "key" && report.data.some(({ account }) => account !== report.data[0]?.account);
  const groups = ofMany
    ? columnsOf("usageSum", "key account", { key: name })
    : columnsOf("usageSum", by, { day: name, model: name, key: name, account: name });
  const inMoney = money.map((column) => ({ ...column, title: `Paid in ${report.currency}` }));
  const measures = [...counts, ...(report.currency === null ? [] : inMoney), ...paid];
  return (
    <>
      <Table
        caption={`Usage by ${by}`}
        rows={report.data}
        keyOf={(row) => `${groupNameOf(row)} ${row.account}`}
        columns={[...groups, ...measures]}
        foot={
          <tfoot>
            <tr>
              <td colSpan={groups.length}>total of the period</td>
              {measures.map(({ title, cell }) => (
                <td key={title} class="number">
                  {cell(report.total)}
                </td>
              ))}
            </tr>
          </tfoot>
        }
      />
      <p class="quiet above">
        {report.final
          ? "These amounts are final."
          : `Today’s amounts still grow; a day is final five minutes after its end (${report.timezone}).`}
      </p>
      {by !== "day" && report.data.length === rowsMax && <p class="quiet">The CSV has all of them.</p>}
      <Pager next={report.next} isFirst={isFirst} />
    </>
  );
}

function Name({ row, by, nameOfKey }: { row: UsageSum; by: UsageGroup; nameOfKey(id: string): string }) {
  const name = groupNameOf(row);
  if (by === "account") {
    return (
      <>
        <span class="id" title={name}>
          <Link to={pathTo("accounts", name, "usage")}>{name}</Link>
        </span>
        {row.owner} <span class="quiet">{[row.email, row.external_id].filter(Boolean).join(", ")}</span>
      </>
    );
  }
  if (by === "day") return <span class="nowrap">{name}</span>;
  const shown = by === "key" ? nameOfKey(name) : name;
  return <Link to={withParameters({ [by]: name, by: "day", after: null })}>{shown}</Link>;
}
