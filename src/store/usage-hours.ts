/**
 * Graphs of the last days: sums of charges by hour. A graph adds the charges that are not summed
 * yet (usage-steps.ts) to the sums by hour. Reports and invoices do not use hours.
 */

import { type EpochMs, hourMs } from "../units.ts";
import { accountsBehind, type OfFrontEnd } from "./accounts-of-key.ts";
import { textOrNull } from "./sql.ts";
import { hidden, measured, measuresOfCharge, sumIn, type UsageSum } from "./usage-measures.ts";

/** The longest graph, and one more day: a step of the summing may be late. */
export const graphHoursMax = 7 * 24;
export const spareHours = 24;
const keptHours = graphHoursMax + spareHours;

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

/** An expression: the hour of a charge `c`. */
export const hourOfCharge = `(c.at_ms / ${hourMs})`;

/** Returns the first hour that is kept. */
export function firstKeptHour(nowMs: EpochMs): Hour {
  return Math.floor(nowMs / hourMs) - keptHours;
}

/** One statement, so that each charge counts once at any moment. */
export function usageHoursSql(query: UsageHoursQuery & OfFrontEnd, parameter: (n: number) => string) {
  const { from, to, account, model, key, byModel, frontEnd } = query;
  const values: (string | number)[] = [];
  const value = (given: string | number) => parameter(values.push(given));
  const hours = (hour: string) => `${hour} >= ${value(from)} and ${hour} < ${value(to)}`;
  const equal = (column: string, given: string | undefined) =>
    given === undefined ? "" : ` and ${column} = ${value(given)}`;
  const ofAccount = () =>
    frontEnd === undefined ? `= ${value(account ?? "")}` : `in ${accountsBehind(value(frontEnd))}`;
  const group = byModel ? "hour, model" : "hour";
  const text = `
    select hour, ${byModel ? "model" : "null"}, ${measured.map((column) => `cast(sum(${column}) as text)`).join(", ")}
    from (
      select period as hour, model, ${measured.join(", ")} from usage_sum
      where ${hidden("unit")} = 'hour' and account ${ofAccount()} and key = ${value(key ?? "")}
        and ${hours("period")}${equal("model", model)}
      union all
      select ${hourOfCharge} as hour, c.model, ${measuresOfCharge}
      from charge c where c.rowid > (select through from usage_summed)
        and ${hours(hourOfCharge)}${equal(hidden("c.account"), account)}${equal("c.key", key)}${equal("c.model", model)}
    ) t
    group by ${group} order by ${group}`;
  return { text, values };
}

/** Returns the row of `usageHoursSql`. */
export function usageHourOf(cells: readonly unknown[]): UsageHour {
  const [hour, model] = cells;
  return { hour: Number(hour), model: textOrNull(model), ...sumIn(cells, 2) };
}
