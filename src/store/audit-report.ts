/** The report of an audit, and the record of the last audit in a database. */
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";

/** A row at fault, by column. Amounts beyond 2^53 are text. */
export type FaultyRow = Record<string, string | number | null>;

/** Converts a cell of a faulty row. */
export function faultyCell(cell: unknown): string | number | null {
  if (cell === null || typeof cell === "number") return cell;
  if (typeof cell === "bigint" && Number.isSafeInteger(Number(cell))) return Number(cell);
  return cell instanceof Uint8Array ? Buffer.from(cell).toString("hex") : String(cell);
}

export interface Broken {
  /** The name of the invariant: a sentence that should be true. */
  invariant: string;
  /** The first rows at fault, at most `faultyRowsMax`. */
  rows: FaultyRow[];
}

export interface AuditReport {
  /** The start of the audit. The state that it checks is not older. */
  checkedMs: EpochMs;
  /** The number of journal entries at that time, charges included. */
  journalRows: number;
  /** Empty if the ledger is sound. */
  broken: Broken[];
}

/** The row of the table `audit_record`. */
export const auditRecordColumns = {
  /** As in the report. */
  checkedMs: "ms",
  journalRows: "integer",
  /** Number of broken invariants. */
  problems: "integer",
  /** The first of them. */
  firstProblem: "text?",
} as const satisfies Columns;
export interface AuditRecord extends RowOf<typeof auditRecordColumns> {}

/** Rows shown for each broken invariant. */
export const faultyRowsMax = 20;
