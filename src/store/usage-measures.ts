/** The amounts of charges that reports, graphs and the tables behind them add up. */
import { OperatorError } from "../errors.ts";
import { type Credits, creditsIn, type MicroCredits } from "../units.ts";

/** Tokens and credits of requests. Corrections by late charges can make token counts negative. */
export interface UsageSum {
  requests: number;
  /** Late charges, which are not requests of their own. */
  late: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  costMicro: MicroCredits;
  baseMicro: MicroCredits;
  overageMicro: MicroCredits;
  additionalMicro: MicroCredits;
  shortfallMicro: MicroCredits;
}

/** Columns of `usage_sum` with their values for one charge. */
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

/** The same columns of one charge `c`, for a select. */
export const measuresOfCharge = Object.entries(measures)
  .map(([column, value]) => `${value} as ${column}`)
  .join(", ");

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
    costMicro: of("cost"),
    baseMicro: of("base"),
    overageMicro: of("overage"),
    additionalMicro: of("additional"),
    shortfallMicro: of("shortfall"),
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
