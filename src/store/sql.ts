/** Statements, and the words of SQL in which the two databases differ. */
import type { EpochMs } from "../units.ts";
import type { Value } from "./table.ts";

export interface SqlStatement {
  text: string;
  values: readonly Value[];
  /** Prepared under this name, once on each connection. */
  name?: string;
}

export interface SqlDialect {
  /** The parameter with this number, from 1. */
  parameter(n: number): string;
  /** Ledger time. */
  ledgerMs(): EpochMs;
  /** The items of a JSON array as rows: `e.value`. Nothing if the array is null. */
  items(array: string): string;
}
