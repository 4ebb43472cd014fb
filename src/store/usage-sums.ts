/**
 * Reports: sums of charges by day, model, key or account. A report adds the charges that are not
 * summed yet (usage-steps.ts) to the sums by day.
 */
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { accountsBehind, type OfFrontEnd } from "./accounts-of-key.ts";
import type { Contact } from "./contacts.ts";
import { textOrNull } from "./sql.ts";
import { type Day, dayMax } from "./usage-days.ts";
import { hidden, measured, measuresOfCharge, sumIn, type UsageSum } from "./usage-measures.ts";
import { countedDay, firstZone, type UsageState } from "./usage-steps.ts";

export const usageGroups = ["day", "model", "key", "account"] as const;
export type UsageGroup = (typeof usageGroups)[number];

export interface UsageSumsQuery {
  by: UsageGroup;
  /** From this day on. */
  from?: Day | undefined;
  /** Before this day. */
  to?: Day | undefined;
  account?: string | undefined;
  /** Id of the key. */
  key?: string | undefined;
  model?: string | undefined;
  /** The order of the names, or the highest cost first. */
  order: "name" | "cost";
  /** Rows after this name, in the order of the names. */
  after?: string | undefined;
  /** Of several rows with that name, those after this account. A key of a front end has them. */
  afterAccount?: string | undefined;
  /** All rows, if it is missing. */
  limit?: number | undefined;
}

/** A row of a report. `name` is a model, a key, an account, or a day as a number. */
export interface UsageSumRow extends UsageSum, Pick<Contact, "owner" | "email" | "externalId"> {
  name: string;
  /** The account of a key; null in other reports. */
  account: string | null;
}

/** The contact of the account in reports by account; null in others. */
const noContact = "cast(null as text), cast(null as text), cast(null as text)";
const contact = "c.owner, c.email, c.external_id";

export interface UsageSums {
  /** Days up to this one are final. -1 if none is. */
  finalDay: Day;
  /** The zone of the days. */
  timezone: string;
  rows: UsageSumRow[];
  /** Of all rows that the query finds, without `after` and `limit`. */
  total: UsageSum;
}

/** The name of a row, and its account, by what is summed. */
const names: Record<UsageGroup, readonly [name: string, account: string]> = {
  day: ["period", "null"],
  model: ["model", "null"],
  key: ["key", "account"],
  account: ["account", "null"],
};

const group = "period, account, key, model";

/**
 * One statement, so that rows and total are of one state. The first row is the total. Sums are
 * text, because they can be larger than a number of JavaScript is exact.
 */
export function usageSumsSql(
  query: UsageSumsQuery & OfFrontEnd,
  { state, nowMs }: { state: UsageState; nowMs: EpochMs },
  parameter: (n: number) => string,
) {
  const { by, from, to, account, key, model, order, after, afterAccount, limit, frontEnd } = query;
  const values: (string | number)[] = [];
  const value = (given: string | number) => parameter(values.push(given));
  const and = (condition: (value: string) => string, given: string | number | undefined) =>
    given === undefined ? "" : ` and ${condition(value(given))}`;
  const days = and((v) => `period >= ${v}`, from) + and((v) => `period < ${v}`, to ?? dayMax);
  const filters = [
    and((v) => `account = ${v}`, account),
    and((v) => `key = ${v}`, key),
    and((v) => `account in ${accountsBehind(v)}`, frontEnd),
    and((v) => `model = ${v}`, model),
  ].join("");
  const isFiltered = account !== undefined || key !== undefined || frontEnd !== undefined;
  const ofEach = by === "key" || by === "account";
  const ofAll = "account = '' and key = ''";
  const ofAccounts = ofEach || isFiltered ? "account <> '' and key = ''" : ofAll;
  const kind = by === "key" || key !== undefined ? "key <> ''" : ofAccounts;
  const [name, accountOf] = names[by];
  const groupBy = by === "key" ? "account, key" : name;
  const isAfter =
    after !== undefined && afterAccount !== undefined
      ? ` and (name, sums.account) > (${value(after)}, ${value(afterAccount)})`
      : and((v) => `name > ${v}`, by === "day" && after !== undefined ? Number(after) : after);
  const inOrder = order === "cost" ? "cost desc, name, sums.account" : "name, sums.account";
  const page = limit === undefined ? "" : ` limit ${value(limit)}`;
  const contacts = by === "account" ? " left join account_contact c on c.account = sums.name" : "";
  const charges = (rows: string, isIndexed: boolean, among = "", columns = measured) => `(
        select ${group}, ${columns.join(", ")} from usage_sum
        where ${isIndexed ? hidden("unit") : "unit"} = 'day' and ${rows}${days}${filters}${among}
        union all
        select ${group}, ${columns.join(", ")} from unsummed where 1 = 1${days}${filters}${among}
      ) t`;
  // The days of all accounts are read in the order of the table, others by an index.
  const isWhole = ofEach && !isFiltered;
  // Only the highest have all their amounts added up, and the total has sums of its own.
  const isTop = isWhole && order === "cost" && after === undefined && limit !== undefined;
  const highest = ` and (${groupBy}) in (
          select ${groupBy} from ${charges(kind, false, "", ["cost"])}
          group by ${groupBy} order by sum(cost) desc, ${name}, account${page})`;
  const summed = isTop ? charges(kind, true, highest) : charges(kind, !isWhole);
  const text = `
    with unsummed as (
      select ${countedDay(state, nowMs)} as period, ${hidden("c.account")} as account, c.key, c.model,
        ${measuresOfCharge}
      from charge c where c.rowid > (select through from usage_summed)
    ),
    sums as materialized (
      select ${name} as name, ${accountOf} as account, ${measured.map((column) => `sum(${column}) as ${column}`).join(", ")}
      from ${summed}
      group by ${groupBy}
    )
    select 0 as place, '' as name, '' as account,
      ${measured.map((column) => `cast(coalesce(sum(${column}), 0) as text)`).join(", ")}, ${noContact}
    from ${isTop ? charges(ofAll, true) : "sums"}
    union all
    select row_number() over (order by ${inOrder}), cast(name as text), cast(sums.account as text),
      ${measured.map((column) => `cast(${column} as text)`).join(", ")},
      ${by === "account" ? contact : noContact}
    from (select * from sums where 1 = 1${isAfter} order by ${inOrder}${page}) sums${contacts}
    order by place`;
  return { text, values };
}

export function usageSumsOf(
  { finalDay, timezone }: UsageState,
  cells: readonly (readonly unknown[])[],
): UsageSums {
  const [total, ...rows] = cells;
  invariant(total !== undefined, "the statement returns the total");
  return { finalDay, timezone: timezone ?? firstZone, total: sumOf(total), rows: rows.map(rowOf) };
}

function rowOf(cells: readonly unknown[]): UsageSumRow {
  const [, name, account] = cells;
  return {
    name: String(name),
    account: textOrNull(account),
    ...sumOf(cells),
    owner: textOrNull(cells.at(-3)),
    email: textOrNull(cells.at(-2)),
    externalId: textOrNull(cells.at(-1)),
  };
}

/** The sums follow the place, the name and the account. */
function sumOf(cells: readonly unknown[]): UsageSum {
  return sumIn(cells, 3);
}
