/**
 * Plans in an SQLite file. The caller holds the lock of a transaction, or is the only user of the
 * file.
 */
import type { DatabaseSync } from "node:sqlite";
import type { PlanCatalog, Plans } from "../../ledger/plan.ts";
import type { PlanChanges } from "../../ledger/plan-section.ts";
import type { EpochMs } from "../../units.ts";
import { catalogOf, type PlansOptions, plansToApply, readFiles, readVersions } from "../plans.ts";
import { changeLogTable, planFileTable, planVersionTable } from "../tables.ts";
import { type Cells, insertInto } from "./query.ts";
import { Statements } from "./statements.ts";

function read(db: DatabaseSync, text: string): Cells[] {
  return new Statements(db).rows({ text, values: [] });
}

export function readCatalog(db: DatabaseSync): PlanCatalog {
  return catalogOf(read(db, readVersions), read(db, readFiles));
}

/** Writes the versions of a section, and makes it current. */
export function applyPlans(
  db: DatabaseSync,
  section: Plans,
  options: PlansOptions & { nowMs: EpochMs },
): PlanChanges {
  const rows = { versions: read(db, readVersions), files: read(db, readFiles) };
  const { changes, versions, applied } = plansToApply(rows, section, options);
  const insertVersion = insertInto(db, planVersionTable);
  for (const version of versions) insertVersion(version);
  if (applied !== null) {
    insertInto(db, planFileTable)(applied.file);
    insertInto(db, changeLogTable)(applied.change);
  }
  return changes;
}
