/**
 * The limits that plans and keys have. A key's limits count in addition to those of its plan.
 * Pages bundle this file.
 */
import { grouped } from "../units.ts";

/** By their names in the API and the configuration. `row`: in the program. `unit`: of a number. */
export const limits = {
  requests_per_minute: {
    row: "requestsPerMinute",
    label: "Requests per minute",
    unit: "requests/min",
    option: "--rpm <number>",
    about: "requests per minute, in addition to the plan's limit",
  },
  tokens_per_minute: {
    row: "tokensPerMinute",
    label: "Tokens per minute",
    unit: "tokens/min",
    option: "--tpm <number>",
    about: "tokens per minute, in addition to the plan's limit",
  },
  concurrent: {
    row: "concurrent",
    label: "Requests at once",
    unit: "at once",
    option: "--concurrent <number>",
    about: "requests at a time, in addition to the plan's limit",
  },
} as const;

type LimitName = keyof typeof limits;
export const limitNames = Object.keys(limits) as LimitName[];

type LimitRow = (typeof limits)[LimitName]["row"];
/** Absent and null: no limit. */
export type RowLimits = { [Row in LimitRow]?: number | null | undefined };

/** Returns the limits as the API names them. */
export function limitsObject(row: RowLimits): Record<LimitName, number | null> {
  const values = limitNames.map((name) => [name, row[limits[name].row] ?? null]);
  return Object.fromEntries(values);
}

/** Returns the limits of a row, with null for those that are absent. */
export function limitsOf(row: RowLimits): Record<LimitRow, number | null> {
  const values = Object.values(limits).map((limit) => [limit.row, row[limit.row] ?? null]);
  return Object.fromEntries(values);
}

/** Returns the limits that are set, for people. */
export function limitTexts(values: Record<LimitName, number | null>): string[] {
  return limitNames.flatMap((name) => {
    const value = values[name];
    return value === null ? [] : [`${grouped(value)} ${limits[name].unit}`];
  });
}
