/**
 * Plans in the database: reading all of them, and applying a plans section of the configuration.
 *
 * Guarantees that a section is applied completely or not at all, under one lock, and that every
 * reader sees the plans of one moment. Rows are only added.
 */

import { messageOf } from "../errors.ts";
import {
  type AppliedPlans,
  newestVersion,
  type PlanCatalog,
  type Plans,
  type PlanVersion,
} from "../ledger/plan.ts";
import { type PlanChanges, planChanges, plansFingerprintOf } from "../ledger/plan-section.ts";
import { limitsIn, windowBuckets } from "../ledger/rows.ts";
import { isCalendarPeriod, isPeriod, isTimezone } from "../ledger/windows.ts";
import { given } from "../objects.ts";
import { creditsMax, type EpochMs } from "../units.ts";
import { type ChangeLogRow, changeLogRow } from "./change-log.ts";
import { type PlanVersionRow, planFileTable, planVersionTable } from "./tables.ts";

/** The statements that read all plans. Run both in one transaction. */
export const readVersions = `select ${planVersionTable.list()} from plan_version order by plan, version`;
export const readFiles = `select ${planFileTable.list()} from plan_file order by epoch`;
/**
 * The mark of the current section. Plans that were read with this mark are still current. After a
 * failover that lost a section, the next one gets its number.
 */
export const readMark =
  "select coalesce((select epoch + applied_ms from plan_file order by epoch desc limit 1), 0)";

/** Counts the accounts on each plan. A closed account needs no plan any more. */
export const countAccounts = "select plan, count(*) from account where state <> 'closed' group by plan";

type Cells = readonly (readonly unknown[])[];

/** Returns the catalog of these rows. */
export function catalogOf(versionCells: Cells, fileCells: Cells): PlanCatalog {
  const versions = new Map<string, PlanVersion[]>();
  const damaged = new Map<string, string>();
  for (const cells of versionCells) {
    const read = readVersion(cells);
    if ("problem" in read) {
      damaged.set(read.plan, read.problem);
      continue;
    }
    const list = versions.get(read.id);
    if (list === undefined) versions.set(read.id, [read]);
    else list.push(read);
  }
  for (const plan of damaged.keys()) versions.delete(plan);
  const files = fileCells.map((cells) => planFileTable.rowOf(cells));
  const { epoch = 0, appliedMs = 0, plans: offered = [] } = files.at(-1) ?? {};
  const fingerprints = files.map(({ fingerprint }) => fingerprint);
  return { epoch, mark: epoch + appliedMs, fingerprints, offered, versions, damaged };
}

/**
 * Returns the version, or why its row cannot be used. Accounts of other plans are not affected by
 * it.
 */
function readVersion(cells: readonly unknown[]): PlanVersion | { plan: string; problem: string } {
  const [plan, number] = cells.map(String);
  const damage = (problem: string) => ({
    plan: String(plan),
    problem: `version ${number} of the plan "${plan}" cannot be read: ${problem}`,
  });
  let version: PlanVersion;
  try {
    version = planVersionOf(planVersionTable.rowOf(cells));
  } catch (error) {
    return damage(messageOf(error));
  }
  const granted = [
    ...windowBuckets.map((bucket) => [bucket, version[bucket]] as const),
    ...version.caps.map((cap) => [`the cap "${cap.name}"`, cap] as const),
  ];
  for (const [what, { credits, every, align }] of granted) {
    if (!isPeriod(every)) return damage(`the period of ${what} is "${every}"`);
    if (align === "calendar" && !isCalendarPeriod(every))
      return damage(`the windows of ${what} begin with the calendar, and its period is "${every}"`);
    if (!Number.isSafeInteger(credits) || credits < 0 || credits > creditsMax)
      return damage(`the credits of ${what} are ${credits}`);
  }
  if (!isTimezone(version.timezone)) return damage(`its time zone is "${version.timezone}"`);
  return version;
}

function planVersionOf({ plan: id, ...row }: PlanVersionRow): PlanVersion {
  const { version, createdMs, base, overage, caps, timezone, models } = row;
  return { id, version, createdMs, base, overage, caps, timezone, limits: given(limitsIn(row)), models };
}

function planVersionRowOf({ id, limits, ...version }: PlanVersion): PlanVersionRow {
  return { plan: id, ...limitsIn(limits), ...version };
}

/** Accounts on each plan, without closed accounts. */
export type AccountsOnPlans = ReadonlyMap<string, number>;

/** Returns the counts of these rows. */
export function accountsOnPlansOf(cells: Cells): AccountsOnPlans {
  return new Map(cells.map(([plan, accounts]) => [String(plan), Number(accounts)]));
}

interface RetiredPlan {
  plan: string;
  accounts: number;
}

/** Returns the plans that accounts have and that are not among the offered ones, by name. */
export function retiredInUse(offered: readonly string[], accounts: AccountsOnPlans): RetiredPlan[] {
  return [...accounts]
    .filter(([plan]) => !offered.includes(plan))
    .map(([plan, count]) => ({ plan, accounts: count }))
    .sort((a, b) => (a.plan < b.plan ? -1 : 1));
}

export function inUseWarning(inUse: readonly RetiredPlan[]): string {
  const names = inUse.map(
    ({ plan, accounts }) => `${plan} (${accounts} account${accounts === 1 ? "" : "s"})`,
  );
  return `Retired plans that accounts still have, and keep: ${names.join(", ")}.`;
}

/** The plans of a database and what depends on them. */
export interface PlansInUse {
  catalog: PlanCatalog;
  accounts: AccountsOnPlans;
}

/** Returns what these rows say. */
export function plansInUseOf(versions: Cells, files: Cells, counted: Cells): PlansInUse {
  return {
    catalog: catalogOf(versions, files),
    accounts: accountsOnPlansOf(counted),
  };
}

/** Finds the rows of one of the statements above. */
export type Find = (text: string) => Promise<Cells>;

export async function readCatalog(find: Find): Promise<PlanCatalog> {
  // In this order the versions of the section are among those that are read.
  const files = await find(readFiles);
  return catalogOf(await find(readVersions), files);
}

/** `force` applies a section that was superseded as well. */
export interface PlansOptions {
  force: boolean;
  /** Who applies it. */
  by: string;
}

/** The rows that make a section current. */
interface PlansToApply {
  changes: PlanChanges;
  versions: PlanVersionRow[];
  /** Null: nothing changes. */
  applied: { file: AppliedPlans; change: ChangeLogRow } | null;
}

/** The cells are those of the two statements. */
export function plansToApply(
  { versions, files }: { versions: Cells; files: Cells },
  section: Plans,
  { force, nowMs, by }: PlansOptions & { nowMs: EpochMs },
): PlansToApply {
  const catalog = catalogOf(versions, files);
  const changes = planChanges(catalog, section, { force, nowMs });
  if (changes.kind !== "applied") return { changes, versions: [], applied: null };
  const fingerprint = plansFingerprintOf(section);
  const epoch = catalog.epoch + 1;
  const plans = [...section.keys()];
  const newest = (ids: readonly string[], added: readonly PlanVersion[] = []) => {
    const versionOfPlan = (id: string) =>
      added.find((version) => version.id === id) ?? newestVersion(catalog, id) ?? null;
    return { plans: Object.fromEntries(ids.map((id) => [id, versionOfPlan(id)?.version ?? null])) };
  };
  const change = changeLogRow({
    id: `plans:${epoch}`,
    kind: "plans",
    by,
    atMs: nowMs,
    before: newest(catalog.offered),
    after: newest(plans, changes.versions),
  });
  const file = { epoch, fingerprint, appliedMs: nowMs, by, plans };
  return { changes, versions: changes.versions.map(planVersionRowOf), applied: { file, change } };
}
