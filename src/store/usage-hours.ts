/**
 * Sums of charges by hour, for graphs of the last days.
 *
 * They are kept beside the sums by day and for the same charges (usage-sums.ts), in a row for each
 * hour, account and model, and in a row for all accounts, whose account is empty. So a graph of
 * all accounts reads as few rows as a graph of one. Hours older than `keptHours` are deleted. A
 * charge counts in the hour of its time. Reports and invoices do not use these rows.
 */
import type { EpochMs } from "../units.ts";
import type { SqlDialect } from "./sql.ts";
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
  /** Id of a key. Needs the account: the hours are summed from its receipts. */
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

/** Parameters: charges after 1, up to 2, from hour 3 on. One statement for each kind of row. */
export function addHours(parameter: (n: number) => string): string[] {
  const [after, through, from] = [1, 2, 3].map(parameter);
  return ["c.account", "''"].map(
    (account) => `
    insert into usage_hour (hour, account, model, ${measured.join(", ")})
    select ${hourOfCharge}, ${account}, c.model, ${Object.values(measures)
      .map((value) => `sum(${value})`)
      .join(", ")}
    from charge c where c.rowid > ${after} and c.rowid <= ${through} and ${hourOfCharge} >= ${from}
    group by 1, 2, 3
    on conflict (hour, account, model) do update set
      ${measured.map((name) => `${name} = usage_hour.${name} + excluded.${name}`).join(", ")}`,
  );
}

/** One statement, so that each charge counts once at any moment. */
export function usageHoursSql(query: UsageHoursQuery, { parameter, receipts }: SqlDialect) {
  const { from, to, account, model, key, byModel } = query;
  const values: (string | number)[] = [];
  const value = (given: string | number) => parameter(values.push(given));
  const hours = (hour: string) => `${hour} >= ${value(from)} and ${hour} < ${value(to)}`;
  const equal = (column: string, given: string | undefined) =>
    given === undefined ? "" : ` and ${column} = ${value(given)}`;
  const group = byModel ? "hour, model" : "hour";
  const ofCharge = `${hourOfCharge} as hour, c.model, ${Object.entries(measures)
    .map(([column, of]) => `${of} as ${column}`)
    .join(", ")}`;
  const { from: found, inOrder } = receipts;
  const rows =
    key === undefined
      ? () => `
        select hour, model, ${measured.join(", ")} from usage_hour
        where account = ${value(account ?? "")} and ${hours("hour")}${equal("model", model)}
        union all
        select ${ofCharge} from charge c where c.rowid > (select through from usage_summed)
          and ${hours(hourOfCharge)}${equal("c.account", account)}${equal("c.model", model)}`
      : () => `
        select ${ofCharge} from (
          select u.* from ${found}
          where ${inOrder}.at_ms >= ${value(from * hourMs)} and ${inOrder}.at_ms < ${value(to * hourMs)}
            ${equal(`${inOrder}.account`, account)}${equal("u.key", key)}${equal("u.model", model)}
        ) c`;
  const text = `
    select hour, ${byModel ? "model" : "null"}, ${measured.map((column) => `cast(sum(${column}) as text)`).join(", ")}
    from (${rows()}) t
    group by ${group} order by ${group}`;
  return { text, values };
}

/** Returns the row of `usageHoursSql`. */
export function usageHourOf(cells: readonly unknown[]): UsageHour {
  const [hour, model] = cells;
  return { hour: Number(hour), model: model === null ? null : String(model), ...sumIn(cells, 2) };
}
