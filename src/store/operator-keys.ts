/** Rows of operator keys, and the port to them. Rows contain hashes, never secrets. */
import { operatorRoles } from "../actors.ts";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";
import type { ChangeLogRow } from "./change-log.ts";

export const operatorKeyColumns = {
  id: "text",
  /** Of the secret, in lower-case hex. */
  hash: "text",
  /** Last four characters of the secret, so that people can recognise it. */
  lastFour: "text",
  name: "text",
  /** The most that it may do. */
  role: operatorRoles,
  /** Who made it. */
  by: "text",
  createdMs: "ms",
  expiresMs: "ms",
  /** Written at most once a minute. */
  usedMs: "ms?",
  endedMs: "ms?",
} as const satisfies Columns;
export interface OperatorKeyRow extends RowOf<typeof operatorKeyColumns> {}

/** Whether a key works at this time. */
export function isWorking({ endedMs, expiresMs }: OperatorKeyRow, atMs: EpochMs): boolean {
  return endedMs === null && expiresMs > atMs;
}

export interface OperatorKeyStore {
  /** Adds a key and records that. Returns false, and changes nothing, if the id is used. */
  add(row: OperatorKeyRow, change: ChangeLogRow): Promise<boolean>;
  /** Finds the key with this hash. */
  find(hash: string): Promise<OperatorKeyRow | null>;
  /** Lists all keys, with ended ones, in the order of their creation. */
  list(): Promise<OperatorKeyRow[]>;
  use(id: string, atMs: EpochMs): Promise<void>;
  /** Ends a key and records that. Returns false if it is unknown or has ended before. */
  end(id: string, atMs: EpochMs, change: ChangeLogRow): Promise<boolean>;
}
