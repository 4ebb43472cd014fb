/**
 * A plan grants two refilled buckets, limits and models. The configuration defines plans, and each
 * account is on one.
 */
import type { Credits } from "../units.ts";

export interface BucketPlan {
  /** The cap of the bucket. Each refresh fills it to the cap. */
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
  /** Limits of the account. A key may have narrower limits. */
  limits: Limits;
  /** Model ids, or `*`. */
  models: readonly string[];
  /** The plan left the configuration: its accounts keep it, and no other account gets it. */
  retired?: true;
}

export type Plans = ReadonlyMap<string, Plan>;
