/**
 * Sums of charges by day, model, key or account.
 *
 * Charges have numbers in the order in which they are written. Those up to a number are summed in
 * the table `usage_day`; a report adds the charges after it. A charge counts on the day of its
 * date, or on the first day that is not final if its own is. Days become final five minutes after
 * their end, once all charges before that moment are summed.
 *
 * Guarantees that every charge counts once, and that a final day never changes.
 */
import { invariant, OperatorError } from "../errors.ts";
import { type Credits, creditsIn, type EpochMs, type MicroCredits } from "../units.ts";

export const dayMs = 86_400_000;

/** Time after the end of a day at which it becomes final. A commit takes seconds at most. */
const finalAfterMs = 300_000;

/**
 * Unsummed charges are summed when there are this many. A report reads them in less than 0.2 s.
 */
const unsummedMax = 100_000;

export const usageGroups = ["day", "model", "key", "account"] as const;
export type UsageGroup = (typeof usageGroups)[number];

/** A day since 1970, in UTC. */
export type Day = number;

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
  /** All rows, if it is missing. */
  limit?: number | undefined;
}

/** Tokens and credits of requests. Corrections by late charges can make token counts negative. */
export interface UsageSum {
  requests: number;
  /** Late charges, which are not requests of their own. */
  late: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  cost: MicroCredits;
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  shortfall: MicroCredits;
}

/** A row of a report. `name` is a model, a key, an account, or a day as a number. */
export interface UsageSumRow extends UsageSum {
  name: string;
  /** The account of a key; null in other reports. */
  account: string | null;
}

export interface UsageSums {
  /** Days up to this one are final. -1 if none is. */
  finalDay: Day;
  rows: UsageSumRow[];
  /** Of all rows that the query finds, without `after` and `limit`. */
  total: UsageSum;
}

/** Columns of `usage_day` with their values for one charge. */
export const measures = {
  requests: "case when c.late then 0 else 1 end",
  late: "case when c.late then 1 else 0 end",
  prompt_tokens: "c.prompt_tokens",
  cached_tokens: "c.cached_tokens",
  completion_tokens: "c.completion_tokens",
  reasoning_tokens: "c.reasoning_tokens",
  cost: "c.cost",
  base: "c.base",
  overage: "c.overage",
  additional: "c.additional",
  shortfall: "c.shortfall",
} as const;

export const measured = Object.keys(measures);
const group = ["day", "account", "key", "model"];

/** Cells: see `UsageState`. */
export const readUsageState = `
  select s.through, coalesce((select max(day) from usage_close), -1) as final_day
  from usage_summed s where s.id = 1`;

interface UsageState {
  /** Number of the last summed charge. */
  through: number;
  /** Days up to this one are final. */
  finalDay: Day;
}

export function usageStateOf(cells: readonly unknown[] | undefined): UsageState {
  invariant(cells !== undefined, "the table usage_summed has its row");
  return { through: Number(cells[0]), finalDay: Number(cells[1]) };
}

/** Returns the last day that ended five minutes ago. */
export function lastEndedDay(nowMs: EpochMs): Day {
  return Math.floor((nowMs - finalAfterMs) / dayMs) - 1;
}

/** Whether there is anything to sum or to record. `last` is the number of the newest charge. */
export function isSummingDue(state: UsageState, last: number, nowMs: EpochMs): boolean {
  const { through, finalDay } = state;
  return last - through >= unsummedMax || lastEndedDay(nowMs) > finalDay;
}

/** Parameters: charges after 1, up to 2, on the day after the final day 3 at the earliest. */
export function addSums(parameter: (n: number) => string): string {
  const [after, through, finalDay] = [1, 2, 3].map(parameter);
  const sums = Object.values(measures).map((value) => `sum(${value})`);
  return `
    insert into usage_day (${[...group, ...measured].join(", ")})
    select ${dayOfCharge(`${finalDay}`)}, c.account, c.key, c.model, ${sums.join(", ")}
    from charge c where c.rowid > ${after} and c.rowid <= ${through}
    group by 1, 2, 3, 4
    on conflict (${group.join(", ")}) do update set
      ${measured.map((name) => `${name} = usage_day.${name} + excluded.${name}`).join(", ")}`;
}

/** An expression: the day on which charge `c` counts. */
export function dayOfCharge(finalDay: string): string {
  const day = `c.at_ms / ${dayMs}`;
  return `case when ${day} > ${finalDay} then ${day} else ${finalDay} + 1 end`;
}

/** Finds sums that differ from what the charges add up to, for the audit. */
export function addedUp(dayOf: string, isSummed: string): string {
  const columns = group.join(", ");
  return `
    select ${columns}, ${measured.map((name) => `sum(${name}) as ${name}_too_many`).join(", ")}
    from (
      select ${columns}, ${measured.join(", ")} from usage_day
      union all
      select ${dayOf}, c.account, c.key, c.model, ${Object.values(measures)
        .map((value) => `0 - (${value})`)
        .join(", ")}
      from charge c where ${isSummed}
    ) t
    group by ${columns}
    having ${measured.map((name) => `sum(${name}) <> 0`).join(" or ")}`;
}

/** The name of a row, and its account, by what is summed. */
const names: Record<UsageGroup, readonly [name: string, account: string]> = {
  day: ["day", "null"],
  model: ["model", "null"],
  key: ["key", "account"],
  account: ["account", "null"],
};

/**
 * One statement, so that rows and total are of one state. The first row is the total. Sums are
 * text, because they can be larger than a number of JavaScript is exact.
 */
export function usageSumsSql(query: UsageSumsQuery, parameter: (n: number) => string) {
  const { by, from, to, account, key, model, order, after, limit } = query;
  const values: (string | number)[] = [];
  const value = (given: string | number) => parameter(values.push(given));
  const and = (condition: (value: string) => string, given: string | number | undefined) =>
    given === undefined ? "" : ` and ${condition(value(given))}`;
  const days = and((v) => `day >= ${v}`, from) + and((v) => `day < ${v}`, to);
  const filters = [
    and((v) => `account = ${v}`, account),
    and((v) => `key = ${v}`, key),
    // A key has one account, by which its sums are found.
    and((v) => `account = (select account from api_key where id = ${v})`, key),
    and((v) => `model = ${v}`, model),
  ].join("");
  const [name, accountOf] = names[by];
  const groupBy = by === "key" ? "account, key" : name;
  const isAfter = and((v) => `name > ${v}`, by === "day" && after !== undefined ? Number(after) : after);
  const inOrder = order === "cost" ? "cost desc, name" : "name";
  // One more for the total.
  const page = limit === undefined ? "" : ` limit ${value(limit + 1)}`;
  const text = `
    with state as (${readUsageState}),
    unsummed as (
      select ${dayOfCharge("(select final_day from state)")} as day, c.account, c.key, c.model,
        ${Object.entries(measures)
          .map(([column, of]) => `${of} as ${column}`)
          .join(", ")}
      from charge c where c.rowid > (select through from state)
    ),
    sums as (
      select ${name} as name, ${accountOf} as account, ${measured.map((column) => `sum(${column}) as ${column}`).join(", ")}
      from (
        select ${group.join(", ")}, ${measured.join(", ")} from usage_day where 1 = 1${days}${filters}
        union all
        select ${group.join(", ")}, ${measured.join(", ")} from unsummed where 1 = 1${days}${filters}
      ) t
      group by ${groupBy}
    )
    select 0 as place, '' as name, '' as account,
      ${measured.map((column) => `cast(coalesce(sum(${column}), 0) as text)`).join(", ")}
    from sums
    union all
    select row_number() over (order by ${inOrder}), cast(name as text), cast(account as text),
      ${measured.map((column) => `cast(${column} as text)`).join(", ")}
    from sums where 1 = 1${isAfter}
    order by place${page}`;
  return { text, values };
}

export function usageSumsOf(finalDay: Day, cells: readonly (readonly unknown[])[]): UsageSums {
  const [total, ...rows] = cells;
  invariant(total !== undefined, "the statement returns the total");
  return { finalDay, total: sumOf(total), rows: rows.map(rowOf) };
}

function rowOf(cells: readonly unknown[]): UsageSumRow {
  const [, name, account] = cells;
  return { name: String(name), account: account === null ? null : String(account), ...sumOf(cells) };
}

/** The sums follow the place, the name and the account. */
function sumOf(cells: readonly unknown[]): UsageSum {
  return sumIn(cells, 3);
}

/** Reads the columns of `measures` that begin at cell `from`. */
export function sumIn(cells: readonly unknown[], from: number): UsageSum {
  const sums = new Map(measured.map((column, index) => [column, exact(cells[index + from])]));
  const of = (column: keyof typeof measures) => sums.get(column) ?? 0;
  return {
    requests: of("requests"),
    late: of("late"),
    promptTokens: of("prompt_tokens"),
    cachedTokens: of("cached_tokens"),
    completionTokens: of("completion_tokens"),
    reasoningTokens: of("reasoning_tokens"),
    cost: of("cost"),
    base: of("base"),
    overage: of("overage"),
    additional: of("additional"),
    shortfall: of("shortfall"),
  };
}

const creditsMax: Credits = creditsIn(Number.MAX_SAFE_INTEGER);

function exact(cell: unknown): number {
  const number = Number(cell);
  if (Number.isSafeInteger(number)) return number;
  throw new OperatorError(
    `The sum is more than ${creditsMax} credits, and cannot be shown exactly. Request a shorter period, or one account.`,
  );
}
