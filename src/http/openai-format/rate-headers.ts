/** `x-ratelimit-*`, in the words and units that SDKs know from elsewhere (a reset is written `1m30s`, `250ms`). */
import type { RateState, Rates } from "../../ledger/operations.ts";

export function rateHeaders(rates: Rates): Record<string, string> {
  const headers: Record<string, string> = {};
  if (rates.requests !== undefined) add(headers, "requests", rates.requests);
  if (rates.tokens !== undefined) add(headers, "tokens", rates.tokens);
  return headers;
}

function add(headers: Record<string, string>, of: "requests" | "tokens", state: RateState): void {
  headers[`x-ratelimit-limit-${of}`] = String(state.limit);
  headers[`x-ratelimit-remaining-${of}`] = String(Math.max(0, Math.floor(state.remaining)));
  headers[`x-ratelimit-reset-${of}`] = duration(Math.max(0, Math.ceil(state.resetMs)));
}

function duration(ms: number): string {
  if (ms < 1000) return `${ms}ms`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = `${(ms % 60_000) / 1000}s`;
  return minutes === 0 ? seconds : `${minutes}m${seconds}`;
}
