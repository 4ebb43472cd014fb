/**
 * Plans in the database: reading all of them, and applying a plans section of the configuration.
 *
 * Guarantees that a section is applied completely or not at all, under one lock, and that every
 * reader sees the plans of one moment. Rows are only added.
 */

import {
  type AppliedPlans,
  fingerprintOf,
  type PlanCatalog,
  type PlanChanges,
  type Plans,
  type PlanVersion,
  planChanges,
} from "../ledger/plan.ts";
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { type PlanVersionRow, planFileTable, planVersionTable } from "./tables.ts";

/** The statements that read all plans. Run both in one transaction. */
export const readVersions = `select ${planVersionTable.list()} from plan_version order by plan, version`;
export const readFiles = `select ${planFileTable.list()} from plan_file order by epoch`;
/**
 * The number of the current section. Plans that were read with this number are still current.
 */
export const readEpoch = "select coalesce(max(epoch), 0) from plan_file";

/** Counts the accounts on each plan. A closed account needs no plan any more. */
export const countAccounts = "select plan, count(*) from account where state <> 'closed' group by plan";

type Cells = readonly (readonly unknown[])[];

/** Returns the catalog of these rows. */
export function catalogOf(versionCells: Cells, fileCells: Cells): PlanCatalog {
  const versions = new Map<string, PlanVersion[]>();
  for (const cells of versionCells) {
    const version = versionOf(planVersionTable.rowOf(cells));
    const list = versions.get(version.id);
    if (list === undefined) versions.set(version.id, [version]);
    else list.push(version);
  }
  const last = fileCells.at(-1);
  const current = last === undefined ? undefined : planFileTable.rowOf(last);
  return { epoch: current?.epoch ?? 0, offered: current?.plans ?? [], versions };
}

function versionOf(row: PlanVersionRow): PlanVersion {
  const { plan, version, createdMs, models, requestsPerMinute, tokensPerMinute, concurrent } = row;
  return {
    id: plan,
    version,
    createdMs,
    base: { credits: row.baseCredits, every: row.baseEvery },
    overage: { credits: row.overageCredits, every: row.overageEvery },
    limits: given({ requestsPerMinute, tokensPerMinute, concurrent }),
    models,
  };
}

export function planVersionRowOf({
  id,
  version,
  createdMs,
  base,
  overage,
  limits,
  models,
}: PlanVersion): PlanVersionRow {
  return {
    plan: id,
    version,
    createdMs,
    baseCredits: base.credits,
    baseEvery: base.every,
    overageCredits: overage.credits,
    overageEvery: overage.every,
    requestsPerMinute: limits.requestsPerMinute ?? null,
    tokensPerMinute: limits.tokensPerMinute ?? null,
    concurrent: limits.concurrent ?? null,
    models,
  };
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
  /** Of every section that was applied, oldest first. */
  fingerprints: readonly string[];
  accounts: AccountsOnPlans;
}

/** Returns what these rows say. */
export function plansInUseOf(versions: Cells, files: Cells, counted: Cells): PlansInUse {
  return {
    catalog: catalogOf(versions, files),
    fingerprints: files.map((cells) => planFileTable.rowOf(cells).fingerprint),
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

/** The rows that make a section current. */
interface PlansToApply {
  changes: PlanChanges;
  versions: PlanVersionRow[];
  file: AppliedPlans | null;
}

/**
 * `force` applies a section that was superseded as well. The cells are those of the two
 * statements.
 */
export function plansToApply(
  { versions, files }: { versions: Cells; files: Cells },
  section: Plans,
  { force, nowMs }: { force: boolean; nowMs: EpochMs },
): PlansToApply {
  const catalog = catalogOf(versions, files);
  const fingerprints = files.map((cells) => planFileTable.rowOf(cells).fingerprint);
  const changes = planChanges(catalog, section, { fingerprints, force, nowMs });
  if (changes.kind !== "applied") return { changes, versions: [], file: null };
  const fingerprint = fingerprintOf(section);
  const file = { epoch: catalog.epoch + 1, fingerprint, appliedMs: nowMs, plans: [...section.keys()] };
  return { changes, versions: changes.versions.map(planVersionRowOf), file };
}
