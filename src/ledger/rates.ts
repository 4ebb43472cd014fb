/**
 * Counts requests, tokens and running requests against the limits of the plan of an account and of
 * a key.
 *
 * Rates use GCRA: a timestamp each (the theoretical arrival time, TAT) and a burst of one period.
 * It is exact at any moment without counters or windows. The prompt is counted when a request is
 * admitted, and the completion when the request has ended. If an answer exceeds the limit, the
 * next request waits. Elapsed time never goes back. Pure: only the given rows change.
 */
import type { RateState } from "../errors.ts";
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import type { RateRefused } from "./outcomes.ts";
import type { Limits } from "./plan.ts";
import { type RateAmounts, type RateName, type Rates, rateLimits, rateNames } from "./rate-limits.ts";
import { type AccountRow, type CountRow, type KeyRow, limitsIn } from "./rows.ts";

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
 * Converts debts if their limits have changed: a debt in tokens stays, so a higher limit makes the
 * wait shorter. Without a limit there is no debt.
 */
export function followLimits(scopes: readonly Scope[], nowMs: EpochMs): void {
  for (const { limits, row } of scopes) {
    for (const name of rateNames) {
      const { limit: field, tat, lastLimit } = rateLimits[name];
      if (lastLimit === null) continue;
      const limit = limits[field] ?? null;
      const before = row[lastLimit];
      if (limit === before) continue;
      row[lastLimit] = limit;
      if (limit === null) row[tat] = 0;
      else if (before !== null && row[tat] > nowMs) row[tat] = nowMs + ((row[tat] - nowMs) * before) / limit;
    }
  }
}

/** A limit of a scope with its state. */
interface Rate {
  limit: number;
  periodMs: number;
  tatMs: EpochMs;
}

/** Null without a limit. */
function rateOf({ limits, row }: Scope, name: RateName): Rate | null {
  const { limit: field, tat, periodMs } = rateLimits[name];
  const limit = limits[field];
  return limit === undefined ? null : { limit, periodMs, tatMs: row[tat] };
}

/** Returns the TAT after `amount` more. */
function advanced({ limit, periodMs, tatMs }: Rate, amount: number, nowMs: EpochMs): EpochMs {
  return Math.max(tatMs, nowMs) + (amount * periodMs) / limit;
}

/**
 * Returns the tolerance of a limit. A present timestamp is exact to 1/4096 ms, and the requests of
 * a period add up as many rounding errors. Without the tolerance the last of 42 requests per
 * minute is refused. It is less than half a request.
 */
function slackMs({ limit, periodMs }: Rate): number {
  return Math.min(periodMs / limit / 2, 1e-3 + limit / 2048);
}

function stateOf(rate: Rate, nowMs: EpochMs): RateState {
  const { limit, periodMs, tatMs } = rate;
  const aheadMs = Math.max(0, tatMs - nowMs);
  const slack = slackMs(rate);
  const remaining = Math.floor(((periodMs - aheadMs + slack) * limit) / periodMs);
  return { limit, remaining: Math.max(0, remaining), resetMs: Math.max(0, Math.ceil(aheadMs - slack)) };
}

/** What is left now of a limit. */
export interface LimitLeft extends RateState {
  of: Scope["scope"];
  name: keyof Limits;
}

/** Returns each limit of a scope with what is left of it. Changes nothing. */
export function limitsLeft({ scope: of, limits, row }: Scope, nowMs: EpochMs): LimitLeft[] {
  const scope = { scope: of, limits, row: { ...row } };
  followLimits([scope], nowMs);
  const left: LimitLeft[] = rateNames.flatMap((name) => {
    const rate = rateOf(scope, name);
    return rate === null ? [] : [{ of, name: rateLimits[name].limit, ...stateOf(rate, nowMs) }];
  });
  const { concurrent: limit } = limits;
  if (limit === undefined) return left;
  return [...left, { of, name: "concurrent", limit, remaining: Math.max(0, limit - row.holds), resetMs: 0 }];
}

/** Returns the refusal of a request, or null if the limits admit it. Changes nothing. */
export function rateRefusalOf(
  scopes: readonly Scope[],
  amounts: RateAmounts,
  nowMs: EpochMs,
): RateRefused | null {
  for (const each of scopes) {
    for (const of of rateNames) {
      const rate = rateOf(each, of);
      if (rate === null) continue;
      const overMs = advanced(rate, amounts[of], nowMs) - nowMs - rate.periodMs - slackMs(rate);
      if (overMs <= 0) continue;
      const retryAfterMs = amounts[of] > rate.limit ? null : Math.ceil(overMs);
      const rates = ratesOf(scopes, nowMs);
      return { kind: "rate_limit_exceeded", of, scope: each.scope, retryAfterMs, rates };
    }
  }
  for (const { scope, limits, row } of scopes) {
    const { concurrent: limit } = limits;
    if (limit === undefined || row.holds < limit) continue;
    const rates = ratesOf(scopes, nowMs);
    return { kind: "concurrency_limit_exceeded", scope, limit, rates };
  }
  return null;
}

/**
 * Counts what an admitted request, or a finished answer, has used. A negative amount takes back
 * what was counted but not used.
 */
export function countRates(scopes: readonly Scope[], amounts: RateAmounts, nowMs: EpochMs): void {
  for (const scope of scopes) {
    for (const name of rateNames) {
      const rate = rateOf(scope, name);
      if (rate === null || amounts[name] === 0) continue;
      scope.row[rateLimits[name].tat] = advanced(rate, amounts[name], nowMs);
    }
  }
}

/** Counts generated tokens. */
export function countTokens(scopes: readonly Scope[], tokens: number, nowMs: EpochMs): void {
  if (tokens === 0) return;
  followLimits(scopes, nowMs);
  countRates(scopes, { requests: 0, tokens }, nowMs);
}

/** Returns the tightest state of each rate over all scopes, for `x-ratelimit-*`. */
export function ratesOf(scopes: readonly Scope[], nowMs: EpochMs): Rates {
  const rates: Rates = {};
  for (const scope of scopes) {
    for (const name of rateNames) {
      const rate = rateOf(scope, name);
      if (rate === null) continue;
      const state = stateOf(rate, nowMs);
      const before = rates[name];
      if (before === undefined || state.remaining < before.remaining) rates[name] = state;
    }
  }
  return rates;
}
