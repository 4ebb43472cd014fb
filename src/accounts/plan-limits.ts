/**
 * The limits that plans and keys have. A key's limits count in addition to those of its plan.
 * Pages bundle this file.
 */
import { type EpochMs, grouped } from "../units.ts";

/** By their names in the API and the configuration. `row`: in the program. `unit`: of a number. */
export const planLimits = {
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

type LimitName = keyof typeof planLimits;
export const planLimitNames = Object.keys(planLimits) as LimitName[];

type LimitRow = (typeof planLimits)[LimitName]["row"];
/** Absent and null: no limit. */
type RowLimits = { [Row in LimitRow]?: number | null | undefined };

/** Returns the limits as the API names them. */
export function limitsObject(row: RowLimits): Record<LimitName, number | null> {
  const values = planLimitNames.map((name) => [name, row[planLimits[name].row] ?? null]);
  return Object.fromEntries(values);
}

/** Returns the limits that are set, for people. */
export function limitTexts(values: Record<LimitName, number | null>): string[] {
  return planLimitNames.flatMap((name) => {
    const value = values[name];
    return value === null ? [] : [`${grouped(value)} ${planLimits[name].unit}`];
  });
}

/**
 * Returns what is left of a limit at `nowMs`, some time after `left` was. A rate recovers evenly
 * within a minute.
 */
export function leftAt({ left, most, full_at }: LimitLeft, nowMs: EpochMs): number {
  if (full_at === null) return left;
  const missing = Math.ceil(((Date.parse(full_at) - nowMs) / 60_000) * most);
  return Math.min(most, Math.max(left, most - missing));
}

interface LimitLeft {
  left: number;
  most: number;
  full_at: string | null;
}

/** Returns an object with the same names, and with what is made of each value. */
export function allOf<From extends Record<string, unknown>, To>(
  from: From,
  make: (value: From[keyof From]) => To,
): { [Name in keyof From]: To } {
  const names: (keyof From)[] = Object.keys(from);
  const made = names.map((name) => [name, make(from[name])]);
  return Object.fromEntries(made);
}
