/** What an operator grants: two refilled buckets, limits and models. Plans live in the configuration; accounts name one. */
import type { Credits } from "../units.ts";

export interface BucketPlan {
  /** The cap, and what each refresh fills the bucket to. */
  credits: Credits;
  /** ISO 8601 period (`PT5H`, `P1D`, `P1M`), UTC. */
  every: string;
}

/** Absent means no limit. */
export interface Limits {
  requestsPerMinute?: number;
  tokensPerMinute?: number;
  concurrent?: number;
}

export interface Plan {
  id: string;
  base: BucketPlan;
  overage: BucketPlan;
  /** For the account as a whole; a key may have narrower ones of its own. */
  limits: Limits;
  /** Model ids, or `*`. */
  models: readonly string[];
}

export type Plans = ReadonlyMap<string, Plan>;
