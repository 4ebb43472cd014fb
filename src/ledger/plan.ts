/**
 * Plans: what an account is granted, its limits and its models.
 *
 * The configuration file is the source. The database is the truth: it keeps every version of every
 * plan, and which plans sections were applied. Versions are never changed or deleted, so that a
 * grant can always be checked against the version that it names. Pure.
 */
import { type Credits, type EpochMs, microOf } from "../units.ts";
import { type Capped, type HeldCap, isSameCap } from "./caps.ts";
import type { Columns, RowOf } from "./columns.ts";
import type { AccountRow, KeyRow, LimitRow, WindowBucket } from "./rows.ts";
import { type Alignment, alignments, type WindowRule } from "./windows.ts";

export interface BucketPlan {
  /** The credits of each window. */
  credits: Credits;
  /** ISO 8601 period (`PT5H`, `P1D`, `P1M`). */
  every: string;
  align: Alignment;
}

/** Absent means no limit. */
export type Limits = { [Name in keyof LimitRow]?: NonNullable<LimitRow[Name]> };

/** A cap of the accounts on a plan. Windows of the calendar follow the zone of the plan. */
export const planCapColumns = {
  name: "text",
  credits: "credits",
  every: "text",
  align: alignments,
  /** Patterns of model ids. */
  models: "texts",
} as const satisfies Columns;
export interface PlanCap extends RowOf<typeof planCapColumns> {}

export interface Plan {
  id: string;
  base: BucketPlan;
  overage: BucketPlan;
  caps: readonly PlanCap[];
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
  /** Differs for each section, also for two with one number, before and after a failover. */
  mark: number;
  /** Of every section that was applied, oldest first. */
  fingerprints: readonly string[];
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

const noCaps: readonly HeldCap[] = [];

/**
 * Returns the caps of a plan at `atMs`: those of the newest version before. Each begins with the
 * first of the versions that all have it. None if the plan cannot be read.
 */
export function planCapsAt(catalog: PlanCatalog, plan: string, atMs: EpochMs): readonly HeldCap[] {
  return planCapsOf(catalog, plan, capsVersionAt(catalog, plan, atMs));
}

/** Returns the place, from 1, of the version whose caps hold. 0 if the plan cannot be read. */
export function capsVersionAt(catalog: PlanCatalog, plan: string, atMs: EpochMs): number {
  const versions = catalog.versions.get(plan) ?? [];
  const version = versionAt(versions, atMs);
  return version === undefined ? 0 : versions.indexOf(version) + 1;
}

/** Returns the caps of the account and of the key, with the rows that count them. */
export function cappedOf(
  catalog: PlanCatalog,
  { account, times: { atMs } }: { account: AccountRow; times: { atMs: EpochMs } },
  key: KeyRow | null,
): Capped[] {
  const plan: Capped = { of: "plan", row: account, caps: planCapsAt(catalog, account.plan, atMs) };
  return key === null ? [plan] : [plan, { of: "key", row: key, caps: key.caps }];
}

const heldBy = new WeakMap<PlanVersion, readonly HeldCap[]>();

/** Returns the caps of the version at a place, from 1: its number may be damaged. Or none. */
export function planCapsOf(catalog: PlanCatalog, plan: string, place: number): readonly HeldCap[] {
  const version = catalog.versions.get(plan)?.[place - 1];
  if (version === undefined) return noCaps;
  const known = heldBy.get(version);
  if (known !== undefined) return known;
  const earlier = planCapsOf(catalog, plan, place - 1);
  const caps = version.caps.map((cap): HeldCap => {
    const { name, credits, every, align, models } = cap;
    const rule = { name, every, align, timezone: version.timezone };
    const same = earlier.find((each) => isSameCap(each, rule));
    return { ...rule, amountMicro: microOf(credits), models, sinceMs: same?.sinceMs ?? version.createdMs };
  });
  heldBy.set(version, caps);
  return caps;
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
