/**
 * Limits requests per minute, tokens per minute and running requests, for the plan of an account
 * and for a key.
 *
 * Both rates use GCRA: a timestamp each (the theoretical arrival time, TAT) and a burst of one
 * minute. It is exact at any moment without counters or windows. The prompt is counted when a
 * request is admitted, and the completion when the request has ended. If an answer exceeds the
 * limit, the next request waits. Pure: only the given rows change.
 *
 * A timestamp far ahead of the clock has one of two causes: a debt of tokens, which has no bound,
 * or a clock that was set back. The timestamp of requests distinguishes them. It is never before
 * the last count, and at most a minute after it, because further requests are refused.
 */
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import type { HoldOutcome, RateState, Rates } from "./operations.ts";
import type { Limits } from "./plan.ts";
import { type AccountRow, type CountRow, type KeyRow, limitsIn } from "./rows.ts";

const minuteMs = 60_000;

/** Limits of an account or a key, and the row with their state. */
export interface Scope {
  scope: "account" | "key";
  limits: Limits;
  row: CountRow;
}

/** `plan` null: the plan of the account is not known, and its limits are not counted. */
export function scopesOf(account: AccountRow, plan: { limits: Limits } | null, key: KeyRow | null): Scope[] {
  const scopes: Scope[] = plan === null ? [] : [{ scope: "account", limits: plan.limits, row: account }];
  if (key !== null) {
    scopes.push({ scope: "key", limits: given(limitsIn(key)), row: key });
  }
  return scopes;
}

/**
 * Converts the debt of tokens if the limit of tokens per minute has changed: the debt in tokens
 * stays, so a higher limit makes the wait shorter. Without a limit there is no debt.
 */
function followLimit({ limits, row }: Scope, nowMs: EpochMs): void {
  const limit = limits.tokensPerMinute ?? null;
  const before = row.tokensLimit;
  if (limit === before) return;
  row.tokensLimit = limit;
  if (limit === null) row.tokensTatMs = 0;
  else if (before !== null && row.tokensTatMs > nowMs) {
    row.tokensTatMs = nowMs + ((row.tokensTatMs - nowMs) * before) / limit;
  }
}

/**
 * Sets the timestamps back if the clock was set back by minutes or more since the last count. No
 * request is admitted early and no debt is forgiven. A wait grows by a minute at most. Limits wait
 * for a clock that was set back by less.
 *
 * The new timestamps must be written even if the request is refused. Otherwise they would follow
 * the clock each time, and the clock would never reach them.
 */
export function followClock(scopes: readonly Scope[], nowMs: EpochMs): void {
  for (const scope of scopes) {
    followLimit(scope, nowMs);
    const { row } = scope;
    if (row.requestsTatMs <= nowMs + 2 * minuteMs) continue;
    const aheadMs = row.requestsTatMs - nowMs - minuteMs;
    row.requestsTatMs -= aheadMs;
    row.tokensTatMs = Math.max(0, row.tokensTatMs - aheadMs);
  }
}

type RateRefusal = Extract<HoldOutcome, { reason: "rate_limit_exceeded" | "concurrency_limit_exceeded" }>;

/** Returns the TAT after `amount` more. */
function advanced(tatMs: EpochMs, limit: number, amount: number, nowMs: EpochMs): EpochMs {
  return Math.max(tatMs, nowMs) + (amount * minuteMs) / limit;
}

/**
 * Returns the tolerance of a limit. A present timestamp is exact to 1/4096 ms, and the requests of
 * a minute add up as many rounding errors. Without the tolerance the last of 42 requests per
 * minute is refused. It is less than half a request.
 */
function slackMs(limit: number): number {
  return Math.min(minuteMs / limit / 2, 1e-3 + limit / 2048);
}

function stateOf(tatMs: EpochMs, limit: number, nowMs: EpochMs): RateState {
  const aheadMs = Math.max(0, tatMs - nowMs);
  const slack = slackMs(limit);
  const remaining = Math.floor(((minuteMs - aheadMs + slack) * limit) / minuteMs);
  return { limit, remaining: Math.max(0, remaining), resetMs: Math.max(0, Math.ceil(aheadMs - slack)) };
}

/** Returns the refusal of a request, or null if the limits admit it. Changes nothing. */
export function rateRefusalOf(
  scopes: readonly Scope[],
  promptTokens: number,
  nowMs: EpochMs,
): RateRefusal | null {
  for (const { scope, limits, row } of scopes) {
    const checks = [
      { of: "requests", limit: limits.requestsPerMinute, tatMs: row.requestsTatMs, amount: 1 },
      { of: "tokens", limit: limits.tokensPerMinute, tatMs: row.tokensTatMs, amount: promptTokens },
    ] as const;
    for (const { of, limit, tatMs, amount } of checks) {
      if (limit === undefined) continue;
      const overMs = advanced(tatMs, limit, amount, nowMs) - nowMs - minuteMs - slackMs(limit);
      if (overMs <= 0) continue;
      const retryAfterMs = amount > limit ? null : Math.ceil(overMs);
      const rates = ratesOf(scopes, nowMs);
      return { kind: "refused", reason: "rate_limit_exceeded", of, scope, retryAfterMs, rates };
    }
  }
  for (const { scope, limits, row } of scopes) {
    if (limits.concurrent !== undefined && row.holds >= limits.concurrent) {
      const rates = ratesOf(scopes, nowMs);
      return {
        kind: "refused",
        reason: "concurrency_limit_exceeded",
        scope,
        limit: limits.concurrent,
        rates,
      };
    }
  }
  return null;
}

/** Counts an admitted request and its prompt. */
export function countRequest(scopes: readonly Scope[], promptTokens: number, nowMs: EpochMs): void {
  for (const scope of scopes) {
    const { limits, row } = scope;
    if (limits.requestsPerMinute !== undefined) {
      row.requestsTatMs = advanced(row.requestsTatMs, limits.requestsPerMinute, 1, nowMs);
    }
    if (promptTokens > 0) addTokens(scope, promptTokens, nowMs);
  }
}

/** Counts generated tokens. A negative number takes back tokens that were counted but not used. */
export function countTokens(scopes: readonly Scope[], tokens: number, nowMs: EpochMs): void {
  if (tokens === 0) return;
  followClock(scopes, nowMs);
  for (const scope of scopes) addTokens(scope, tokens, nowMs);
}

function addTokens({ limits, row }: Scope, tokens: number, nowMs: EpochMs): void {
  if (limits.tokensPerMinute === undefined) return;
  row.tokensTatMs = advanced(row.tokensTatMs, limits.tokensPerMinute, tokens, nowMs);
  // Records the time of this count. It uses up no request.
  row.requestsTatMs = Math.max(row.requestsTatMs, nowMs);
}

/** Returns the tightest state of each rate over all scopes, for `x-ratelimit-*`. */
export function ratesOf(scopes: readonly Scope[], nowMs: EpochMs): Rates {
  const rates: Rates = {};
  for (const { limits, row } of scopes) {
    if (limits.requestsPerMinute !== undefined) {
      const state = stateOf(row.requestsTatMs, limits.requestsPerMinute, nowMs);
      if (rates.requests === undefined || state.remaining < rates.requests.remaining) rates.requests = state;
    }
    if (limits.tokensPerMinute !== undefined) {
      const state = stateOf(row.tokensTatMs, limits.tokensPerMinute, nowMs);
      if (rates.tokens === undefined || state.remaining < rates.tokens.remaining) rates.tokens = state;
    }
  }
  return rates;
}
