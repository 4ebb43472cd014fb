/**
 * The audit that a service runs, as the database knows it: whether one runs now, and the last
 * result. All processes on the database see the same, and so does the next start.
 *
 * Guarantees that one audit runs at a time. An audit without a sign of life for `auditSilentMs`
 * does not run any more: its process has died.
 */
import Type from "typebox";
import { Check } from "typebox/value";
import { invariant } from "../errors.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";
import type { AuditReport } from "./audit-report.ts";

export const auditSilentMs = 20_000;

/** The row of the table. */
export const auditJobColumns = {
  /** Id of the audit that runs, or null. Its process may have died. */
  run: "text?",
  startedMs: "ms?",
  /** The last sign of life. */
  aliveMs: "ms?",
  /** Of the last audit that read all rows, as `problems` and `report`. */
  lastStartedMs: "ms?",
  lastEndedMs: "ms?",
  /** Number of broken rules. */
  problems: "integer?",
  /** JSON of the `AuditReport`. */
  report: "text?",
  /** When an audit after that one failed, and why. */
  failedMs: "ms?",
  failure: "text?",
} as const satisfies Columns;
export interface AuditJobRow extends RowOf<typeof auditJobColumns> {}

/** A report with the times of its audit. */
export interface StoredAudit extends AuditReport {
  startedMs: EpochMs;
  endedMs: EpochMs;
}

export interface AuditJob {
  /** The audit that runs now in a process of this database, or null. */
  running: { startedMs: EpochMs } | null;
  /** The last audit that read all rows, or null. */
  last: StoredAudit | null;
  /** A later audit that could not read all rows, or null. */
  failed: { atMs: EpochMs; reason: string } | null;
}

/** The table, on either database. Times are those of the ledger. */
export interface AuditJobs {
  read(): Promise<AuditJobRow>;
  /** Claims the job for this audit. Returns false if another audit runs. */
  begin(run: string, nowMs: EpochMs): Promise<boolean>;
  /** Records a sign of life. */
  refresh(run: string, nowMs: EpochMs): Promise<void>;
  /** Ends this audit with its report. Has no effect if another audit has replaced it. */
  finish(run: string, audit: StoredAudit): Promise<void>;
  /** Ends this audit without a report. */
  fail(run: string, nowMs: EpochMs, reason: string): Promise<void>;
}

/** Returns what a row says at this time. */
export function auditJobOf(row: AuditJobRow, nowMs: EpochMs): AuditJob {
  const { run, startedMs, aliveMs, failedMs, failure } = row;
  const isRunning = run !== null && aliveMs !== null && Math.abs(nowMs - aliveMs) <= auditSilentMs;
  return {
    running: isRunning && startedMs !== null ? { startedMs } : null,
    last: storedAuditOf(row),
    failed: failedMs === null || failure === null ? null : { atMs: failedMs, reason: failure },
  };
}

const cell = Type.Union([Type.String(), Type.Number(), Type.Null()]);
const reportSchema = Type.Object({
  checkedMs: Type.Number(),
  journalRows: Type.Number(),
  broken: Type.Array(
    Type.Object({
      invariant: Type.String(),
      rows: Type.Array(Type.Record(Type.String(), cell)),
    }),
  ),
});

function storedAuditOf({ lastStartedMs, lastEndedMs, report }: AuditJobRow): StoredAudit | null {
  if (lastStartedMs === null || lastEndedMs === null || report === null) return null;
  const stored: unknown = JSON.parse(report);
  invariant(Check(reportSchema, stored), "the stored report of the audit is one");
  return { ...stored, startedMs: lastStartedMs, endedMs: lastEndedMs };
}
