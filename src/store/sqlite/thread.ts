/** What the threads of the SQLite store say to each other: remote.ts asks, worker.ts answers. */
import type { Decision, Operation } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../../ledger/rows.ts";
import type { EpochMs } from "../../units.ts";
import type { AccountsQuery, HoldsQuery, HoldTotals, JournalQuery, UsageQuery } from "../store.ts";
import type { SqliteFile } from "./file.ts";

/** What the thread that writes can be asked, and what it answers. */
export interface WriterCalls {
  commit(operations: readonly Operation[]): Decision[];
  addKey(key: KeyRow): boolean;
  revokeKey(id: string, atMs: EpochMs): KeyRow | null;
  /** Closes the file; the thread ends. */
  close(): void;
}

/** What the thread that reads can be asked, and what it answers. */
export interface ReaderCalls {
  keyById(id: string): KeyRow | null;
  keys(account: string | undefined): KeyRow[];
  accounts(query: AccountsQuery): AccountRow[];
  usage(query: UsageQuery): UsageRow[];
  journal(account: string, query: JournalQuery): JournalRow[];
  holds(query: HoldsQuery): HoldRow[];
  holdTotals(): HoldTotals;
  overdueHolds(atMs: EpochMs | null, limit: number): HoldRow[];
  close(): void;
}

export interface Calls extends WriterCalls, ReaderCalls {}

export type Call<M extends keyof Calls = keyof Calls> = {
  [P in M]: { id: number; method: P; args: Parameters<Calls[P]> };
}[M];

export type Answer = { id: number; value: unknown } | { id: number; error: Fault };

export interface Fault {
  kind: "operator" | "unavailable" | "defect";
  message: string;
  stack: string;
  /** Of `unavailable`. */
  mayBeDone: boolean;
}

/** `id` of the first answer, which comes unasked when the file is open. */
export const openedId = 0;

export interface SqliteThreadData {
  role: "writer" | "reader";
  file: SqliteFile;
  plans: Plans;
  /** For tests: read instead of the machine's clock. Shared memory. */
  clock: BigInt64Array | null;
}

export function clockOf(clock: BigInt64Array | null): () => EpochMs {
  return clock === null ? Date.now : () => Number(Atomics.load(clock, 0));
}
