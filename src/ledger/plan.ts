/**
 * Plans: what an account is granted, its limits and its models.
 *
 * The configuration file is the source. The database is the truth: it keeps every version of every
 * plan, and which plans sections were applied. Versions are never changed or deleted, so that a
 * grant can always be checked against the version that it names. Pure.
 */
import type { Credits, EpochMs } from "../units.ts";
import type { Columns, RowOf } from "./columns.ts";
import type { LimitRow, WindowBucket } from "./rows.ts";
import type { Alignment, WindowRule } from "./windows.ts";

export interface BucketPlan {
  /** The credits of each window. */
  credits: Credits;
  /** ISO 8601 period (`PT5H`, `P1D`, `P1M`). */
  every: string;
  align: Alignment;
}

/** Absent means no limit. */
export type Limits = { [Name in keyof LimitRow]?: NonNullable<LimitRow[Name]> };

export interface Plan {
  id: string;
  base: BucketPlan;
  overage: BucketPlan;
  /** IANA name, for windows of the calendar. */
  timezone: string;
  /** Limits of the account. A key may have narrower limits. */
  limits: Limits;
  /** Model ids, or `*`. */
  models: readonly string[];
}

/** Returns how the windows of a bucket follow one another. */
export function ruleOf(plan: Pick<Plan, WindowBucket | "timezone">, bucket: WindowBucket): WindowRule {
  const { every, align } = plan[bucket];
  return { every, align, timezone: plan.timezone };
}

/** A plans section of the configuration. */
export type Plans = ReadonlyMap<string, Plan>;

/** A plan as it was from `createdMs` until the next version. */
export interface PlanVersion extends Plan {
  /** 1, 2, 3 ... for each plan. */
  version: number;
  createdMs: EpochMs;
}

/** A plans section that was applied. */
export const appliedColumns = {
  /** 1, 2, 3 ... The last one is current. */
  epoch: "integer",
  /** SHA-256 of the normalised section, lower-case hex. */
  fingerprint: "text",
  appliedMs: "ms",
  /** Who applied it. */
  by: "text",
  /** The plans that accounts can be put on, in the order of the section. */
  plans: "texts",
} as const satisfies Columns;
export interface AppliedPlans extends RowOf<typeof appliedColumns> {}

/** All plans of the database, at one moment. */
export interface PlanCatalog {
  /** The number of the current plans section, or 0 if none was applied. */
  epoch: number;
  /**
   * The plans that accounts can be put on, in the order of the section. The others are retired.
   */
  offered: readonly string[];
  /** Every plan with its versions, oldest first. */
  versions: ReadonlyMap<string, readonly PlanVersion[]>;
  /** Plans that are not among `versions`, because the database has a row that cannot be read. */
  damaged: ReadonlyMap<string, string>;
}

/** Describes why the catalog lacks one of the plans of an account. Null: it has both. */
export function planProblem(catalog: PlanCatalog, plan: string, nextPlan: string | null): string | null {
  const { versions, damaged } = catalog;
  if (!versions.has(plan)) return damaged.get(plan) ?? `the database has no version of its plan "${plan}"`;
  if (nextPlan === null || versions.has(nextPlan)) return null;
  return damaged.get(nextPlan) ?? `the database has no version of its scheduled plan "${nextPlan}"`;
}

/** Returns a version of a plan by its number. */
export function versionOf(catalog: PlanCatalog, plan: string, version: number): PlanVersion | undefined {
  return catalog.versions.get(plan)?.[version - 1];
}

/** Returns the newest version of a plan, retired or not. */
export function newestVersion(catalog: PlanCatalog, plan: string): PlanVersion | undefined {
  return catalog.versions.get(plan)?.at(-1);
}

/**
 * Returns the version for a window that starts then: the newest from before, or the first version
 * if the plan is younger. A refresh comes before a new version of the same moment.
 */
export function versionAt(versions: readonly PlanVersion[], startsMs: EpochMs): PlanVersion | undefined {
  return versions.findLast(({ createdMs }) => createdMs < startsMs) ?? versions[0];
}

/** Returns the newest versions of the plans that accounts can be put on. */
export function offeredPlans({ offered, versions }: PlanCatalog): Plans {
  return new Map(
    offered.flatMap((id) => {
      const plan = versions.get(id)?.at(-1);
      return plan === undefined ? [] : [[id, plan]];
    }),
  );
}
