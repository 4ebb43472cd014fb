/** Series for charts of usage: the groups with the highest cost, and all others as one series. */
import { get } from "./api.ts";
import { daysBetween } from "./times.ts";
import type { UsageReport, UsageSum } from "./types.ts";

export interface Series {
  /** Differs from the names of other series. */
  name: string;
  /** One amount for each time. */
  micro: readonly number[];
}

export type UsageGroup = "day" | "model" | "key" | "account";
type UsageFilter = Record<"from" | "to", string> & Record<string, string | null | undefined>;

/** Series with a colour of their own. */
const seriesMax = 6;
const othersName = "all others";

export function groupNameOf(row: UsageSum): string {
  return row.day ?? row.model ?? row.key ?? row.account ?? "";
}

/**
 * Loads a series for each group with the highest cost, by their ids, or the owners of accounts.
 * Days are by model. `asked`: the groups by cost, if they are loaded already.
 */
export async function usageSeries(
  path: string,
  group: UsageGroup,
  filter: UsageFilter,
  signal: AbortSignal,
  asked: Promise<UsageReport> | null = null,
): Promise<Series[]> {
  const by = group === "day" ? "model" : group;
  const days = daysBetween(filter.from, filter.to);
  const daily = async (name: string, changes: object): Promise<Series> => {
    const costs = new Map<string | null | undefined, number>();
    let after: string | null = null;
    do {
      const query = { ...filter, ...changes, by: "day", limit: 500, after };
      const page: UsageReport = await get<UsageReport>(path, query, signal);
      for (const { day, cost_micro } of page.data) costs.set(day, cost_micro);
      after = page.next;
    } while (after !== null);
    return { name, micro: days.map((day) => costs.get(day) ?? 0) };
  };
  const query = { ...filter, by, order: "cost", limit: seriesMax + 1 };
  const { data, total: all } = await (asked ?? get<UsageReport>(path, query, signal));
  // A key of a front end has a row for each account.
  const names = [...new Set(data.map(groupNameOf))].slice(0, seriesMax);
  const top = names.map((name) => daily(name, { [by]: name }));
  const named = (series: readonly Series[]) =>
    renameSeries(series, (id) => data.find((row) => groupNameOf(row) === id)?.owner ?? id);
  const shown = data.filter((row) => names.includes(groupNameOf(row)));
  const isAll = totalOf(shown.map(({ cost_micro }) => cost_micro)) >= all.cost_micro;
  if (isAll) return named(await Promise.all(top));
  const [total, ...series] = await Promise.all([daily("total", {}), ...top]);
  return total === undefined ? named(series) : withOthers(named(series), total.micro);
}

/** Returns the series with the highest sums, and a last one with the sum of the others. */
export function highest(all: readonly Series[], count: number): Series[] {
  const sorted = all.toSorted((one, other) => totalOf(other.micro) - totalOf(one.micro));
  const total = Array.from({ length: count }, (_, at) =>
    all.reduce((sum, { micro }) => sum + (micro[at] ?? 0), 0),
  );
  return all.length <= seriesMax ? sorted : withOthers(sorted.slice(0, seriesMax), total);
}

export function totalOf(micro: readonly number[]): number {
  return micro.reduce((sum, amount) => sum + amount, 0);
}

/** The total may be of another moment than the series, so a rest is never negative. */
function withOthers(series: readonly Series[], total: readonly number[]): Series[] {
  const rest = total.map((micro, at) =>
    Math.max(
      0,
      series.reduce((left, one) => left - (one.micro[at] ?? 0), micro),
    ),
  );
  return totalOf(rest) === 0 ? [...series] : [...series, { name: othersName, micro: rest }];
}

/** Returns the series with other names. Names that are equal are told apart by the old ones. */
export function renameSeries(series: readonly Series[], nameFor: (name: string) => string): Series[] {
  const names = series.map(({ name }) => nameFor(name));
  return series.map(({ name, micro }, index) => {
    const given = names[index] ?? name;
    const isTaken = names.filter((other) => other === given).length > 1;
    return { name: isTaken ? `${given} (${name})` : given, micro };
  });
}
