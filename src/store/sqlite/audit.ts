/**
 * The audit of an SQLite file, by a service in a thread of its own (sqlite-audit-worker.ts): it takes seconds on a
 * large one, and neither requests nor commits wait for it.
 *
 * Guarantees that all of a report is about one moment, on a connection that cannot write: a backup stays what it was,
 * to the byte, also one that an older version made. In WAL mode a reader holds up no writer; the log grows for as long
 * as the reader is at it.
 */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { OperatorError } from "../../errors.ts";
import type { EpochMs } from "../../units.ts";
import { type AuditReport, auditQueries, type FaultyRow, faultyRowsMax } from "../audit.ts";
import { openAsItIs, type SqliteFile, storeError, versionOf } from "./file.ts";

/** Beyond the invariants of every store: what SQLite can say about its file, its indexes and the checks of its tables. */
const fileIsWhole = "the file is whole, and its indexes and checks agree with its tables";

/** The oldest schema that has what the rules ask for. 0002 changed a key of receipts, and none of their columns. */
const auditedVersionMin = 1;

export interface AuditTask {
  file: SqliteFile;
  nowMs: EpochMs;
}

/**
 * Everything read within one transaction. Throws an OperatorError where there is no ledger, or one of another version
 * of Inkwell whose rules are not known here, and a StoreUnavailableError where the file cannot be read just now.
 */
export function auditFile({ file, nowMs }: AuditTask): AuditReport {
  const db = openAsItIs(file, "check");
  try {
    requireAudited(versionOf(db, file), file);
    // Mapped, pages need not be copied: half of the time on a large file. 4 GiB, or as much as the build allows.
    db.exec("pragma cache_size = -65536; pragma mmap_size = 4294967296; pragma temp_store = memory; begin");
    const report = auditOf(db, nowMs);
    const rows = rowsOf(db, `pragma integrity_check(${faultyRowsMax})`);
    const problems = rows.filter((row) => row.integrity_check !== "ok");
    if (problems.length > 0) report.broken.push({ invariant: fileIsWhole, rows: problems });
    return report;
  } catch (error) {
    throw storeError(error);
  } finally {
    db.close();
  }
}

function requireAudited(version: number, { path }: SqliteFile): void {
  if (version >= auditedVersionMin) return;
  throw new OperatorError(
    `${path} cannot be checked: its schema is version ${version}, the oldest that this version of Inkwell can check ` +
      `is ${auditedVersionMin}. Nothing was changed: check it with the version that made it.`,
  );
}

/** The invariants that every store has. The caller has begun a transaction, or is alone with the database. */
export function auditOf(db: DatabaseSync, nowMs: EpochMs): AuditReport {
  const [counted] = rowsOf(db, "select count(*) as entries from journal");
  const broken = auditQueries()
    .map(({ invariant, sql }) => ({ invariant, rows: rowsOf(db, sql) }))
    .filter(({ rows }) => rows.length > 0);
  return { checkedMs: nowMs, journalRows: Number(counted?.entries ?? 0), broken };
}

function rowsOf(db: DatabaseSync, sql: string): FaultyRow[] {
  // Amounts at fault may be beyond what a number holds.
  const statement = db.prepare(sql);
  statement.setReadBigInts(true);
  try {
    return statement.all().map(plain);
  } catch (error) {
    // No sound amounts add up to more than 63 bits, and no sound file cannot be read.
    if (error instanceof Error && /integer overflow|malformed/.test(error.message))
      return [{ problem: error.message }];
    throw error;
  }
}

function plain(row: Record<string, SQLOutputValue>): FaultyRow {
  return Object.fromEntries(Object.entries(row).map(([column, value]) => [column, plainValue(value)]));
}

function plainValue(value: SQLOutputValue): string | number | null {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : String(value);
  }
  return value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value;
}
