/**
 * The audit of a ledger: its report, and the queries that every store runs. Each query selects the
 * rows at fault, so it finds nothing in a sound ledger. The audit does not use the kernel: it adds
 * up the rows.
 */
import type { EpochMs } from "../units.ts";
import { entitlementRules } from "./audit-entitlement.ts";
import { journalRules } from "./audit-journal.ts";
import { usageRules } from "./audit-usage.ts";

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
  /** The number of journal entries at that time. */
  journalRows: number;
  /** Empty if the ledger is sound. */
  broken: Broken[];
}

/** Rows shown for each broken invariant. */
export const faultyRowsMax = 20;

/**
 * Returns one query for each invariant. Each query must see one state of the database, but not all
 * the same state.
 */
export function auditQueries(): { invariant: string; sql: string }[] {
  return Object.entries(invariants).map(([invariant, sql]) => ({
    invariant,
    sql: `${sql} limit ${faultyRowsMax}`,
  }));
}

/** The queries by the names of their invariants. docs/ledger.md lists the names. */
export const invariants: Readonly<Record<string, string>> = {
  ...journalRules,
  ...entitlementRules,
  ...usageRules,
};
