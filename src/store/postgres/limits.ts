/** How long a node waits for PostgreSQL, and how many connections it opens. */

/** No wait for the database is longer. */
export const limits = {
  /** To connect, and to get a connection of the pool. */
  connectMs: 5_000,
  /** One statement of a commit or a lookup. */
  statementMs: 10_000,
  /** One page of a list. */
  listMs: 10_000,
  /** For a row that a key is revoked under, or made. */
  lockMs: 5_000,
  /** For a row that another commit has locked: commits take milliseconds, and after this the others no longer wait. */
  commitLockMs: 200,
  /** A transaction whose node is frozen, or has vanished, gives its locks back. A commit is idle for milliseconds. */
  idleInTransactionMs: 2_000,
  /** The same for an audit and a migration, whose locks are in no request's way: a start may be busy with other things. */
  idleAloneMs: 30_000,
  /** The same, if the server still has an answer to send and the node does not read it. */
  unreadAnswerMs: 5_000,
  /** For an answer, where the server or the network is gone without a word. */
  answerMs: 15_000,
  /** For another node that is changing the schema. */
  migrationLockMs: 60_000,
  /** One query of an audit, which reads all rows: an hour for every few hundred million entries. */
  auditStatementMs: 24 * 3_600_000,
} as const;

/** Connections beside those of commits, by what they are for. No list, and no change of a key, is in the way of a request. */
export const connectionsMax = {
  /** Keys and balances, which requests wait for. */
  lookups: 4,
  /** What the service asks for its own sake, and single rows for operators: each takes milliseconds. */
  service: 2,
  /** Receipts, journals, holds and keys by the page, which may take seconds. */
  lists: 2,
  /** New and revoked keys, which wait for the commits of their account. */
  keyChanges: 1,
} as const;
