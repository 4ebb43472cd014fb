/** The JSON of the limits of a plan or a key, for both APIs and the command line. */
import type { Limits } from "../ledger/plan.ts";
import { closed, count, orNull } from "./json-objects.ts";

/** Null means no limit. */
export const limitsSchema = closed({
  requests_per_minute: orNull(count),
  tokens_per_minute: orNull(count),
  concurrent: orNull(count),
});

export function limitsObject({ requestsPerMinute, tokensPerMinute, concurrent }: Limits) {
  return {
    requests_per_minute: requestsPerMinute ?? null,
    tokens_per_minute: tokensPerMinute ?? null,
    concurrent: concurrent ?? null,
  };
}
