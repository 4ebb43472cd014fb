/**
 * Reads rows of accounts, and finds out whether they can be read at all.
 *
 * Guarantees that a damaged row never throws, because it would fail the requests of other accounts
 * in the same commit. Amounts beyond 2^53 are read as inexact numbers, which no check of the
 * ledger accepts. The kernel checks whether a row contradicts itself, and the audit compares it
 * with the facts.
 */
import { messageOf } from "../errors.ts";
import type { AccountRow } from "../ledger/rows.ts";
import { emptyAccount } from "../ledger/unit-of-work.ts";
import { accountTable } from "./tables.ts";

/** A row, and why it cannot be used. Null: it could be read. */
export interface ReadAccount {
  row: AccountRow;
  problem: string | null;
}

/** Amounts beyond 2^53 are inexact then, and no check accepts them. */
export function numberIn(cell: unknown): unknown {
  return typeof cell === "bigint" ? Number(cell) : cell;
}

/** Returns the account of these cells. */
export function accountRowIn(cells: readonly unknown[]): ReadAccount {
  try {
    return { row: accountTable.rowOf(cells.map(numberIn)), problem: null };
  } catch (error) {
    return { row: { ...emptyAccount, id: String(cells[0]) }, problem: messageOf(error) };
  }
}
