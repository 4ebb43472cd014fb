/**
 * Sums of charges by hour, for graphs of the last days.
 *
 * They are kept beside the sums by day and for the same charges (usage-sums.ts). Each hour and
 * model has rows for all accounts, for each account and for each key, so every graph reads as few
 * rows. Hours older than `keptHours` are deleted. A charge counts in the hour of its time. Reports
 * and invoices do not use these rows.
 *
 * Guarantees that the sums from the recorded hour `hours_from` on are exact, which the audit
 * checks. Earlier hours are deleted, or lack charges after a clock that was wrong by days.
 */
import type { EpochMs } from "../units.ts";
import { measured, measures, sumIn, type UsageSum } from "./usage-sums.ts";

export const hourMs = 3_600_000;

/** The longest graph, and one more day: a step of the summing may be late. */
export const graphHoursMax = 7 * 24;
const keptHours = graphHoursMax + 24;

/** An hour since 1970, in UTC. */
export type Hour = number;

export interface UsageHoursQuery {
  /** From this hour on. */
  from: Hour;
  /** Before this hour. */
  to: Hour;
  account?: string | undefined;
  model?: string | undefined;
  /** Id of the key. */
  key?: string | undefined;
  /** One row for each model of an hour, or for the hour. */
  byModel: boolean;
}

/** Hours without charges have no row. */
export interface UsageHour extends UsageSum {
  hour: Hour;
  /** Null if the row has all models. */
  model: string | null;
}

/** Returns the first hour that is kept. */
export function firstKeptHour(nowMs: EpochMs): Hour {
  return Math.floor(nowMs / hourMs) - keptHours;
}

const hourOfCharge = `c.at_ms / ${hourMs}`;

/** Account and key of a row, by the kind of row. */
const kinds = [
  ["c.account", "c.key"],
  ["c.account", "''"],
  ["''", "''"],
] as const;

/** Parameters: charges after 1, up to 2, from hour 3 on. One statement for each kind of row. */
export function addHours(parameter: (n: number) => string): string[] {
  const [after, through, from] = [1, 2, 3].map(parameter);
  return kinds.map(
    ([account, key]) => `
    insert into usage_hour (hour, account, key, model, ${measured.join(", ")})
    select ${hourOfCharge}, ${account}, ${key}, c.model, ${Object.values(measures)
      .map((value) => `sum(${value})`)
      .join(", ")}
    from charge c where c.rowid > ${after} and c.rowid <= ${through} and ${hourOfCharge} >= ${from}
    group by 1, 2, 3, 4
    on conflict (hour, account, key, model) do update set
      ${measured.map((name) => `${name} = usage_hour.${name} + excluded.${name}`).join(", ")}`,
  );
}

/**
 * Records that hours before the parameter are no longer complete. Run it with each step that
 * deletes them or leaves their charges out.
 */
export function raiseHoursFrom(parameter: string): string {
  return `update usage_summed set hours_from = ${parameter} where hours_from < ${parameter}`;
}

/** Finds complete hours that differ from what the charges add up to, for the audit. */
export function hoursAddedUp(): string {
  const columns = "hour, account, key, model";
  const negative = Object.entries(measures).map(([column, value]) => `0 - sum(${value}) as ${column}`);
  const from = "(select hours_from from usage_summed)";
  return `
    with by_key as (
      select ${hourOfCharge} as hour, c.account, c.key, c.model, ${negative.join(", ")}
      from charge c where c.rowid <= (select through from usage_summed) and ${hourOfCharge} >= ${from}
      group by 1, 2, 3, 4
    )
    select ${columns}, ${measured.map((name) => `sum(${name}) as ${name}_too_many`).join(", ")}
    from (
      select ${columns}, ${measured.join(", ")} from usage_hour where hour >= ${from}
      union all select ${columns}, ${measured.join(", ")} from by_key
      union all select hour, account, '', model, ${measured.join(", ")} from by_key
      union all select hour, '', '', model, ${measured.join(", ")} from by_key
    ) t
    group by ${columns}
    having ${measured.map((name) => `sum(${name}) <> 0`).join(" or ")}`;
}

/** One statement, so that each charge counts once at any moment. */
export function usageHoursSql(query: UsageHoursQuery, parameter: (n: number) => string) {
  const { from, to, account, model, key, byModel } = query;
  const values: (string | number)[] = [];
  const value = (given: string | number) => parameter(values.push(given));
  const hours = (hour: string) => `${hour} >= ${value(from)} and ${hour} < ${value(to)}`;
  const equal = (column: string, given: string | undefined) =>
    given === undefined ? "" : ` and ${column} = ${value(given)}`;
  // A key has one account.
  const ownAccount = () =>
    account === undefined && key !== undefined
      ? `(select account from api_key where id = ${value(key)})`
      : value(account ?? "");
  const group = byModel ? "hour, model" : "hour";
  const ofCharge = Object.entries(measures).map(([column, of]) => `${of} as ${column}`);
  const text = `
    select hour, ${byModel ? "model" : "null"}, ${measured.map((column) => `cast(sum(${column}) as text)`).join(", ")}
    from (
      select hour, model, ${measured.join(", ")} from usage_hour
      where account = ${ownAccount()} and key = ${value(key ?? "")} and ${hours("hour")}${equal("model", model)}
      union all
      select ${hourOfCharge} as hour, c.model, ${ofCharge.join(", ")}
      from charge c where c.rowid > (select through from usage_summed)
        and ${hours(hourOfCharge)}${equal("c.account", account)}${equal("c.key", key)}${equal("c.model", model)}
    ) t
    group by ${group} order by ${group}`;
  return { text, values };
}

/** Returns the row of `usageHoursSql`. */
export function usageHourOf(cells: readonly unknown[]): UsageHour {
  const [hour, model] = cells;
  return { hour: Number(hour), model: model === null ? null : String(model), ...sumIn(cells, 2) };
}
