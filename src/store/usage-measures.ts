/** The amounts of charges that reports, graphs and the tables behind them add up. */
import { OperatorError } from "../errors.ts";
import { type Credits, creditsIn, type MicroCredits } from "../units.ts";
import { columnOf } from "./table.ts";

/** Fields of sums, with their values for one charge. */
const fields = {
  requests: "case when c.late then 0 else 1 end",
  /** Late charges, which are not requests of their own. */
  late: "case when c.late then 1 else 0 end",
  promptTokens: "c.prompt_tokens",
  cachedTokens: "c.cached_tokens",
  completionTokens: "c.completion_tokens",
  reasoningTokens: "c.reasoning_tokens",
  costMicro: "c.cost",
  baseMicro: "c.base",
  overageMicro: "c.overage",
  additionalMicro: "c.additional",
  shortfallMicro: "c.shortfall",
} as const;

const names = Object.keys(fields);

/** Tokens and credits of requests. Corrections by late charges can make token counts negative. */
export type UsageSum = {
  [Name in keyof typeof fields]: Name extends `${string}Micro` ? MicroCredits : number;
};

/** Columns of `usage_sum` with their values for one charge. */
export const measures: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(fields).map(([field, value]) => [columnOf(field), value]),
);

export const measured = Object.keys(measures);

/** The same columns of one charge `c`, for a select. */
export const measuresOfCharge = Object.entries(measures)
  .map(([column, value]) => `${value} as ${column}`)
  .join(", ");

/** Reads the columns of `measures` that begin at cell `from`. */
export function sumIn(cells: readonly unknown[], from: number): UsageSum {
  const of = (field: keyof typeof fields) => exact(cells[from + names.indexOf(field)]);
  return {
    requests: of("requests"),
    late: of("late"),
    promptTokens: of("promptTokens"),
    cachedTokens: of("cachedTokens"),
    completionTokens: of("completionTokens"),
    reasoningTokens: of("reasoningTokens"),
    costMicro: of("costMicro"),
    baseMicro: of("baseMicro"),
    overageMicro: of("overageMicro"),
    additionalMicro: of("additionalMicro"),
    shortfallMicro: of("shortfallMicro"),
  };
}

/**
 * Returns a column that no index finds. SQLite has no statistics, and would find the rows of one
 * account by an index that has all accounts.
 */
export function hidden(column: string): string {
  return `${column} || ''`;
}

const creditsMax: Credits = creditsIn(Number.MAX_SAFE_INTEGER);

function exact(cell: unknown): number {
  const number = Number(cell);
  if (Number.isSafeInteger(number)) return number;
  throw new OperatorError(
    `The sum is more than ${creditsMax} credits, and cannot be shown exactly. Request a shorter period, or one account.`,
  );
}
