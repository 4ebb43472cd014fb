/**
 * The limits of plans and keys for what is used in a period. Counting, headers and messages follow
 * from this table.
 */
import type { RateState } from "../errors.ts";
import type { LimitRow } from "./rows.ts";

/**
 * `limit` and `tat` are the columns of the limit and of the theoretical arrival time. `lastLimit`
 * is the column of the limit with which the time was counted, for counts that can be more than the
 * limit.
 */
export const rateLimits = {
  requests: {
    limit: "requestsPerMinute",
    tat: "requestsTatMs",
    lastLimit: null,
    period: "minute",
    periodMs: 60_000,
  },
  tokens: {
    limit: "tokensPerMinute",
    tat: "tokensTatMs",
    lastLimit: "tokensLimit",
    period: "minute",
    periodMs: 60_000,
  },
} as const satisfies Record<string, RateLimit>;

interface RateLimit {
  limit: keyof LimitRow;
  tat: "requestsTatMs" | "tokensTatMs";
  lastLimit: "tokensLimit" | null;
  period: string;
  periodMs: number;
}

export type RateName = keyof typeof rateLimits;
export const rateNames = Object.keys(rateLimits) as RateName[];

/** By rate: how much of it a request uses. */
export type RateAmounts = Readonly<Record<RateName, number>>;

/** The limits after a decision, for `x-ratelimit-*`. */
export type Rates = { [Name in RateName]?: RateState };
