/**
 * One commit of the ledger on PostgreSQL: lock, read the rows of the operations, let the kernel
 * decide, write.
 *
 * Guarantees that a batch is written completely or not at all. The clock is the database's own, so
 * all nodes use the same one, and it is read under the locks. If this node does not believe it,
 * its trusted time counts (clock.ts). Accounts are locked and opened in the order of their ids, so
 * that two commits never wait for each other. An account with a row that another session keeps
 * locked is answered `locked`, and the others are decided. Transient errors are a
 * `StoreUnavailableError`. If the answer to `commit` is lost, a retry finds the finished
 * operations by their ids.
 *
 * A commit takes two round trips: lock and read are sent together, and so are write and commit.
 * The server runs one statement after another, each with its own snapshot (read committed), so
 * reads see the rows that the locks waited for. After an error it skips the rest and rolls back.
 * Only the kernel decides about credits.
 *
 * | attempts are repeated by | because of | at most |
 * |---|---|---|
 * | `Ledger` (ledger/batcher.ts) | a `StoreUnavailableError` | 5 times in 4 s |
 * | `AccountQueues` (ledger/) | the answer `locked` | for 4 s |
 * | `PostgresLedger.commit` | an account that another node has just opened | 2 times |
 * | `#withoutLocked` | a lock timeout; it then skips locked rows | 2 times |
 *
 * `CommitOrder` (store.ts) repeats nothing. It keeps commits of the same account in order.
 */

import { invariant, withNothingDone } from "../../errors.ts";
import { decide } from "../../ledger/kernel.ts";
import type { Decision, Operation } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import { type Changes, overdueMax, rowKey, type Snapshot } from "../../ledger/unit-of-work.ts";
import {
  accountTable,
  holdKeyTable,
  holdTable,
  journalTable,
  keyStateTable,
  type Table,
  usageTable,
} from "../tables.ts";
import type { CommitClock } from "./clock.ts";
import type { Connection, Connections, Statement } from "./connection.ts";
import { doubledIn, isLockTimeout, isRefused } from "./errors.ts";
import { readUnderLock, type Skips, together } from "./read-under-lock.ts";
import { arraysOf, onlyRow, unnest } from "./rows.ts";

/** A violation of this index means that another node has just opened the account. */
const accountsIndex = "account_pkey";
const openingAttemptsMax = 3;

/** After a lock timeout, commits of this node skip locked rows for this time. */
const skipsForMs = 10_000;

/** For tests: shorter lists and times. */
interface PostgresLedgerLimits {
  overdueHoldsMax?: number;
  skipsForMs?: number;
}

export class PostgresLedger {
  readonly #connections: Connections;
  readonly #plans: Plans;
  readonly #clock: CommitClock;
  readonly #overdueMax: number;
  readonly #skipsForMs: number;
  #skips: Skips = "nothing";
  /** A time of `performance.now()`. */
  #skipsUntilMs = 0;

  constructor(connections: Connections, plans: Plans, clock: CommitClock, limits: PostgresLedgerLimits = {}) {
    this.#overdueMax = limits.overdueHoldsMax ?? overdueMax;
    this.#skipsForMs = limits.skipsForMs ?? skipsForMs;
    this.#connections = connections;
    this.#plans = plans;
    this.#clock = clock;
  }

  async commit(operations: readonly Operation[]): Promise<Decision[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#withoutLocked(operations);
      } catch (error) {
        if (attempt === openingAttemptsMax || doubledIn(error) !== accountsIndex) throw error;
      }
    }
  }

  /**
   * Waits for locked rows at first: another commit releases them within milliseconds, and waiting
   * in line is fast and fair. A row that stays locked belongs to a stuck session. Commits then
   * skip locked rows for some time, so that the stuck row delays the other accounts only once. A
   * skipped row may be in normal use, so it does not extend that time.
   */
  async #withoutLocked(operations: readonly Operation[]): Promise<Decision[]> {
    for (;;) {
      const skips = this.#skipsNow();
      try {
        return await this.#attempt(operations, skips);
      } catch (error) {
        if (!isLockTimeout(error)) throw error;
        if (skips === "rows") {
          if (new Set(operations.map(({ account }) => account)).size > 1) throw error;
          // Another session is opening the account, so there is no row to skip yet.
          return operations.map(() => ({ kind: "locked" }));
        }
        this.#skips = skips === "accounts" || this.#skipsNow() === "rows" ? "rows" : "accounts";
        this.#skipsUntilMs = performance.now() + this.#skipsForMs;
      }
    }
  }

  #skipsNow(): Skips {
    return performance.now() < this.#skipsUntilMs ? this.#skips : "nothing";
  }

  async #attempt(operations: readonly Operation[], skips: Skips): Promise<Decision[]> {
    const connection = await this.#connections.connect().catch((error: unknown) => {
      throw withNothingDone(error);
    });
    let broken = true;
    let isWriting = false;
    try {
      const asked = this.#clock.ask();
      const { snapshot, locked, clockMs } = await readUnderLock(connection, operations, {
        time: asked.parameter,
        skips,
        overdueMax: this.#overdueMax,
      });
      this.#clock.answered(asked, clockMs);
      const free = operations.filter(({ account }) => !locked.has(account));
      const { outcomes, changes } = decide(snapshot, this.#plans, free);
      isWriting = true;
      await write(connection, snapshot, changes);
      broken = false;
      const decided = outcomes.values();
      return operations.map(({ account }) => {
        if (locked.has(account)) return { kind: "locked" };
        const { value } = decided.next();
        invariant(value !== undefined, "the kernel decides each operation");
        return value;
      });
    } catch (error) {
      broken = await isBroken(connection);
      throw isWriting && !isRefused(error) ? error : withNothingDone(error);
    } finally {
      connection.release(broken);
    }
  }
}

/**
 * Rolls back. If that fails too, the connection is broken, and the server ends the transaction.
 */
async function isBroken(connection: Connection): Promise<boolean> {
  return await connection.query({ text: "rollback" }).then(
    () => false,
    () => true,
  );
}

const insertAccounts = insertInto(accountTable);
const updateAccounts = update(accountTable, ["id"]);
const insertHolds = insertInto(holdTable);
const updateHolds = update(holdTable, ["account", "id"]);
const deleteHolds = deletion(holdKeyTable);
const insertJournal = insertInto(journalTable);
const insertUsage = insertInto(usageTable);
const updateUsage = update(usageTable, ["account", "id"]);
const updateKeys = update(keyStateTable, ["account", "id"]);

async function write(connection: Connection, snapshot: Snapshot, changes: Changes): Promise<void> {
  const { holdsEnded, keys } = changes;
  const [newAccounts, accounts] = apart(changes.accounts, (row) => snapshot.accounts.has(row.id));
  // New accounts have no rows to lock. Their order keeps two nodes that open the same accounts
  // from a deadlock.
  newAccounts.sort((a, b) => (a.id < b.id ? -1 : 1));
  const [newHolds, holds] = apart(changes.holdsPut, (row) => snapshot.holds.has(rowKey(row.account, row.id)));
  const [newUsage, usage] = apart(changes.usage, (row) => snapshot.usage.has(rowKey(row.account, row.id)));
  await together(connection, {
    newAccounts: insertAccounts(newAccounts),
    accounts: updateAccounts(accounts),
    newHolds: insertHolds(newHolds),
    holds: updateHolds(holds),
    holdsEnded: deleteHolds(holdsEnded),
    journal: insertJournal(changes.journal),
    newUsage: insertUsage(newUsage),
    usage: updateUsage(usage),
    keys: updateKeys(keys),
    commit: { text: "commit" },
  });
}

function apart<R>(rows: readonly R[], isRead: (row: R) => boolean): [fresh: R[], read: R[]] {
  return [rows.filter((row) => !isRead(row)), rows.filter(isRead)];
}

/** Writes all rows with one statement. Null if the list is empty. */
type Writing<R> = (rows: readonly R[]) => Statement | null;

function insertInto<R>(table: Table<R>): Writing<R> {
  const { name } = table;
  const textFrom = (rows: string) =>
    `insert into ${name} (${table.list()}) select * from ${rows} as n(${table.list()})`;
  return writing(`insert ${name}`, table, textFrom, (rows) => arraysOf(table, rows));
}

/**
 * The key is not set, not even to its own value: no index changes, and sessions with rows that
 * refer to it do not wait.
 */
function update<R>(table: Table<R>, key: readonly string[]): Writing<R> {
  const set = table.columns.filter((column) => !key.includes(column.name));
  return expecting("update", table, {
    verb: `update ${table.name} t set ${set.map((column) => `${column.name} = n.${column.name}`).join(", ")} from`,
    key,
  });
}

function deletion<R>(table: Table<R>): Writing<R> {
  const key = table.columns.map((column) => column.name);
  return expecting("delete", table, { verb: `delete from ${table.name} t using`, key });
}

/**
 * The last parameter is the number of rows that must be written, in case they changed after they
 * were read.
 */
function expecting<R>(
  kind: "update" | "delete",
  table: Table<R>,
  { verb, key }: { verb: string; key: readonly string[] },
): Writing<R> {
  const where = key.map((column) => `t.${column} = n.${column}`).join(" and ");
  const textFrom = (rows: string) => `
    with written as (${verb} ${rows} as n(${table.list()}) where ${where} returning 1)
    select expect_rows(count(*), $${table.columns.length + 1}::bigint, '${table.name}') from written`;
  const valuesOf = (rows: readonly R[]) => [...arraysOf(table, rows), rows.length];
  return writing(`${kind} ${table.name}`, table, textFrom, valuesOf);
}

/** A single row has a statement of its own, which takes less time. */
function writing<R>(
  name: string,
  table: Table<R>,
  textFrom: (rows: string) => string,
  valuesOf: (rows: readonly R[]) => unknown[],
): Writing<R> {
  const many = { name, text: textFrom(unnest(table)) };
  const one = { name: `${name}, one row`, text: textFrom(onlyRow(table)) };
  return (rows) =>
    rows.length === 0 ? null : { ...(rows.length === 1 ? one : many), values: valuesOf(rows) };
}
