/** Time limits for each wait for PostgreSQL, and the number of connections of a node. */
import { listLimitMs } from "../store.ts";

/** Time limits in milliseconds. */
export const databaseLimits = {
  /** Opening a connection, and waiting for a connection of the pool. */
  connectMs: 5_000,
  /** One statement of a commit or a lookup. */
  statementMs: 10_000,
  /** One page of a list. */
  listMs: listLimitMs,
  /** A lock, except in a commit. */
  lockMs: 5_000,
  /**
   * A row that another commit has locked. Commits take milliseconds; after this time other
   * accounts stop waiting.
   */
  commitLockMs: 200,
  /**
   * An idle transaction of a node that is frozen or gone loses its locks. A commit is idle for
   * milliseconds.
   */
  idleInTransactionMs: 2_000,
  /**
   * The same for an audit or a migration. Their locks delay no request, and a starting node may be
   * busy.
   */
  idleAloneMs: 30_000,
  /** The same if the node does not read an answer that the server is sending. */
  unreadAnswerMs: 5_000,
  /** An answer, if the server or the network has disappeared. */
  answerMs: 15_000,
  /** Another node that is migrating the schema. Longer than `tableLocksMs` and one attempt. */
  migrationLockMs: 90_000,
  /** All attempts of a migration to lock its tables, with the pauses, without its own work. */
  tableLocksMs: 60_000,
  /**
   * A table that a migration changes, while another session reads it. Added to the server's
   * deadlock_timeout, when it ends an autovacuum. Commits on the table wait behind the migration.
   */
  tableLockMs: 1_000,
  /** Commits go on before the migration tries again. */
  tableLockPauseMs: 3_000,
  /** One query of an audit. It reads all rows: an hour for every few hundred million entries. */
  auditStatementMs: 24 * 3_600_000,
} as const;

/**
 * The most connections of each pool besides the commits. Requests never wait for lists or changes
 * of keys.
 */
export const connectionsMax = {
  /** Keys and balances of requests. */
  lookups: 4,
  /** Reads of the service itself, and single rows for operators. Each takes milliseconds. */
  service: 2,
  /** Pages of receipts, journals, holds and keys, which may take seconds. */
  lists: 2,
  /** Single rows without credits: sessions, plans, stopped requests. */
  writes: 1,
} as const;
