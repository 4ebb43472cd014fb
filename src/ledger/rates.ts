/**
 * Requests per minute, tokens per minute and running requests, of an account's plan and of a key.
 *
 * The two rates are GCRA: one timestamp each (the theoretical arrival time, TAT), a burst of a whole minute's
 * worth, exact at any moment without counters or windows. A request counts its prompt when it is admitted and
 * its completion when it has ended, so that nobody waits for tokens that were never made; what has been made
 * beyond the minute's worth is waited for by the next request. Pure: it changes only the rows it is handed.
 *
 * A timestamp far ahead of the clock may be a debt of tokens, which has no bound, or may have been counted before the
 * clock was set back. The requests' timestamp tells the two apart: it never lies before the moment at which anything
 * was counted, and at most a minute after it, because no more requests are let in.
 */
import { given } from "../given.ts";
import type { EpochMs } from "../units.ts";
import type { HoldOutcome, RateState, Rates } from "./operations.ts";
import type { Limits, Plan } from "./plan.ts";
import type { AccountRow, KeyRow } from "./rows.ts";

const minuteMs = 60_000;

/** Whose limits, and the row that keeps their state. */
export interface Scope {
  scope: "account" | "key";
  limits: Limits;
  row: { requestsTatMs: EpochMs; tokensTatMs: EpochMs; holds: number };
}

export function scopesOf(account: AccountRow, plan: Plan, key: KeyRow | null): Scope[] {
  const scopes: Scope[] = [{ scope: "account", limits: plan.limits, row: account }];
  if (key !== null) {
    const { requestsPerMinute, tokensPerMinute, concurrent } = key;
    const limits = given({ requestsPerMinute, tokensPerMinute, concurrent });
    scopes.push({ scope: "key", limits, row: key });
  }
  return scopes;
}

/**
 * Where the clock was set back by minutes or more since something was counted, sets the timestamps back with it, as
 * far as is certain: no request is let in early, no debt is forgiven, and nobody waits longer than a minute beyond
 * what there was to wait for when it was counted. A clock that was set back by less is waited for.
 *
 * What it changes is to be written though the request be refused: timestamps that followed the clock anew each time
 * would never be reached by it.
 */
export function followClock(scopes: readonly Scope[], nowMs: EpochMs): void {
  for (const { row } of scopes) {
    if (row.requestsTatMs <= nowMs + 2 * minuteMs) continue;
    const aheadMs = row.requestsTatMs - nowMs - minuteMs;
    row.requestsTatMs -= aheadMs;
    row.tokensTatMs = Math.max(0, row.tokensTatMs - aheadMs);
  }
}

type RateRefusal = Extract<HoldOutcome, { reason: "rate_limit_exceeded" | "concurrency_limit_exceeded" }>;

/** Where the TAT stands after `amount` more; at least now. */
function advanced(tatMs: EpochMs, limit: number, amount: number, nowMs: EpochMs): EpochMs {
  return Math.max(tatMs, nowMs) + (amount * minuteMs) / limit;
}

/**
 * How far over a limit still counts as within it. A timestamp of today is exact to 1/4096 ms, and a minute's worth
 * of requests adds up as many roundings: without this the last of 42 requests a minute would be refused. Never as
 * much as half a request.
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

/** Whether the limits let a request with so many prompt tokens in. Changes nothing. */
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
  for (const { limits, row } of scopes) {
    if (limits.requestsPerMinute !== undefined) {
      row.requestsTatMs = advanced(row.requestsTatMs, limits.requestsPerMinute, 1, nowMs);
    }
  }
  countTokens(scopes, promptTokens, nowMs);
}

/** Counts tokens that were made, or takes back (negative) ones that were counted and never worked on. */
export function countTokens(scopes: readonly Scope[], tokens: number, nowMs: EpochMs): void {
  if (tokens === 0) return;
  followClock(scopes, nowMs);
  for (const { limits, row } of scopes) {
    if (limits.tokensPerMinute !== undefined) {
      row.tokensTatMs = advanced(row.tokensTatMs, limits.tokensPerMinute, tokens, nowMs);
      // Takes no request's room, and tells when these were counted.
      row.requestsTatMs = Math.max(row.requestsTatMs, nowMs);
    }
  }
}

/** The tightest state of each rate over all scopes; for `x-ratelimit-*`. */
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
