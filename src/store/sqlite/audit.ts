/**
 * The audit of an SQLite file, which takes seconds if the file is large. Services may write to it.
 *
 * Guarantees that a report describes one state of the file. The connection is read-only, so a
 * backup stays unchanged to the byte. In WAL mode a reader does not delay the writer, but the log
 * grows as long as the reader runs.
 */
import type { DatabaseSync } from "node:sqlite";
import type { PlanCatalog } from "../../ledger/plan.ts";
import type { EpochMs } from "../../units.ts";
import { type AuditAnswer, type AuditStep, auditSteps, type SealedReport } from "../audit.ts";
import { type FaultyRow, faultyCell, faultyRowsMax } from "../audit-report.ts";
import type { Seal } from "../seal.ts";
import { readAsItIs, type SqliteFile } from "./file.ts";
import { readCatalog } from "./plans.ts";

/** An invariant of SQLite alone: its own check of the file, the indexes and the constraints. */
const fileIsWhole = "the file is whole, and its indexes and checks agree with its tables";

interface AuditTask {
  file: SqliteFile;
  nowMs: EpochMs;
  /** Compared with the facts. */
  against?: Seal | null;
}

/**
 * Audits a file within one transaction. Throws an OperatorError if the file has no ledger of this
 * version, and a StoreUnavailableError if the file cannot be read at present.
 */
export function auditFile({ file, nowMs, against = null }: AuditTask): SealedReport {
  return readAsItIs(file, (db) => {
    // Memory-mapped pages are not copied, which halves the time on a large file. 4 GiB, or the
    // limit of the build.
    db.exec("pragma cache_size = -65536; pragma mmap_size = 4294967296; pragma temp_store = memory; begin");
    const report = auditOf(db, nowMs, against);
    const rows = rowsOf(db, `pragma integrity_check(${faultyRowsMax})`);
    const problems = rows.filter((row) => row.integrity_check !== "ok");
    if (problems.length > 0) report.broken.push({ invariant: fileIsWhole, rows: problems });
    return report;
  });
}

/**
 * Checks the invariants of every store. The caller has begun a transaction, or is the only user of
 * the database.
 */
export function auditOf(db: DatabaseSync, nowMs: EpochMs, against: Seal | null = null): SealedReport {
  const [counted] = rowsOf(
    db,
    "select (select count(*) from journal) + (select count(*) from charge) as entries",
  );
  const plans = readCatalog(db);
  const steps = auditSteps((n) => `?${n}`, { checkedMs: nowMs, against });
  let step = steps.next();
  while (step.done !== true) step = steps.next(answerStep(db, step.value, plans));
  return { checkedMs: nowMs, journalRows: Number(counted?.entries ?? 0), ...step.value };
}

function answerStep(db: DatabaseSync, step: AuditStep, plans: PlanCatalog): AuditAnswer {
  if (step.kind === "snapshot") return { kind: "snapshot", plans };
  if (step.kind === "rule") return { kind: "rule", rows: rowsOf(db, step.sql) };
  const { text, values } = step.statement;
  const statement = db.prepare(text);
  statement.setReadBigInts(true);
  statement.setReturnArrays(true);
  const rows: unknown = statement.all(...values);
  return { kind: "rows", rows: rows as unknown[][] };
}

function rowsOf(db: DatabaseSync, sql: string): FaultyRow[] {
  // Damaged amounts may be too large for a number.
  const statement = db.prepare(sql);
  statement.setReadBigInts(true);
  try {
    return statement
      .all()
      .map((row) =>
        Object.fromEntries(Object.entries(row).map(([column, cell]) => [column, faultyCell(cell)])),
      );
  } catch (error) {
    // Sound amounts never add up to more than 63 bits, and a sound file is never malformed.
    if (error instanceof Error && /integer overflow|malformed/.test(error.message))
      return [{ problem: error.message }];
    throw error;
  }
}
