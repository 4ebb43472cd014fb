/**
 * One commit of the ledger on PostgreSQL: lock, read what the operations can touch, let the kernel decide, write.
 *
 * Guarantees that all of a batch is written or nothing, that the clock is read after the locks are held and is the
 * database's own, so that all nodes go by one, and that accounts are locked in the order of their ids, and opened in
 * it, so that no two commits wait for each other. An account with a row that another session keeps locked is answered
 * `locked`, and the others are decided. What goes wrong in a way that another attempt can mend is a
 * `StoreUnavailableError`; where the answer to `commit` itself is lost, what was done is found by its operation ids.
 *
 * Two round trips: lock and read are sent together, and so are write and commit. The server does one statement after
 * another, each with a snapshot of its own (read committed): what waited for a lock is followed by what reads. It
 * skips the rest once one has failed, and ends the transaction with a rollback. It decides nothing about credits.
 */

import { invariant } from "../../errors.ts";
import { decide } from "../../ledger/kernel.ts";
import type { Decision, Operation } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import { withNothingDone } from "../../ledger/retry.ts";
import { type Changes, overdueMax, rowKey, type Snapshot } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import {
  accountTable,
  holdKeyTable,
  holdTable,
  journalTable,
  keyStateTable,
  type Table,
  usageTable,
} from "../tables.ts";
import type { Connection, Connections, Statement } from "./connection.ts";
import { doubledIn, isLockTimeout, isRefused } from "./errors.ts";
import { arraysOf, unnest } from "./rows.ts";
import { readUnderLock, type Skips, together } from "./snapshot.ts";

/** Where the database refuses an account as already there, another node has opened it just now. */
const accountsIndex = "account_pkey";
const openingAttemptsMax = 3;

/** For so long after a row was waited for in vain, commits of this node skip such rows. */
const skipsForMs = 10_000;

/** For tests. */
export interface PostgresLedgerLimits {
  overdueHoldsMax?: number;
  skipsForMs?: number;
}

export class PostgresLedger {
  readonly #connections: Connections;
  readonly #plans: Plans;
  readonly #now: (() => EpochMs) | null;
  readonly #overdueMax: number;
  readonly #skipsForMs: number;
  #skips: Skips = "nothing";
  /** By the clock of `performance.now()`. */
  #skipsUntilMs = 0;

  /** `now` null: the clock of the database. */
  constructor(
    connections: Connections,
    plans: Plans,
    now: (() => EpochMs) | null,
    limits: PostgresLedgerLimits = {},
  ) {
    this.#overdueMax = limits.overdueHoldsMax ?? overdueMax;
    this.#skipsForMs = limits.skipsForMs ?? skipsForMs;
    this.#connections = connections;
    this.#plans = plans;
    this.#now = now;
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
   * A row that another commit works on is free in a moment, and waiting for it in line is fast and fair. If it is not
   * free by then, its session is stuck, and for some time no row like it is waited for: it delays the others once. A row
   * that is skipped in that time may well be in use for a moment only, and so does not make it longer.
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
          // Another session is just opening the account, and there is no row yet to skip.
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
      const nowMs = this.#now?.() ?? null;
      const { snapshot, locked } = await readUnderLock(connection, operations, {
        nowMs,
        skips,
        overdueMax: this.#overdueMax,
      });
      const free = operations.filter(({ account }) => !locked.has(account));
      const { outcomes, changes } = decide(snapshot, this.#plans, free);
      isWriting = true;
      await write(connection, snapshot, changes);
      broken = false;
      const decided = outcomes.values();
      return operations.map(({ account }) => {
        if (locked.has(account)) return { kind: "locked" };
        const { value } = decided.next();
        invariant(value !== undefined, "the kernel answers each operation");
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

/** Ends what was begun; where that fails too, the connection is of no more use, and the server ends it. */
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
  // What is not there yet cannot be locked: two nodes that open the same accounts meet in one order here as well.
  newAccounts.sort((a, b) => (a.id < b.id ? -1 : 1));
  const [newHolds, holds] = apart(changes.holdsPut, (row) => snapshot.holds.has(rowKey(row.account, row.id)));
  const [newUsage, usage] = apart(changes.usage, (row) => snapshot.usage.has(rowKey(row.account, row.id)));
  const statements = [
    insertAccounts(newAccounts),
    updateAccounts(accounts),
    insertHolds(newHolds),
    updateHolds(holds),
    deleteHolds(holdsEnded),
    insertJournal(changes.journal),
    insertUsage(newUsage),
    updateUsage(usage),
    updateKeys(keys),
  ];
  await together(connection, [...statements, { text: "commit" }]);
}

function apart<R>(rows: readonly R[], isRead: (row: R) => boolean): [fresh: R[], read: R[]] {
  return [rows.filter((row) => !isRead(row)), rows.filter(isRead)];
}

/** Writes all rows with one statement; null if there are none. */
type Writing<R> = (rows: readonly R[]) => Statement | null;

function insertInto<R>(table: Table<R>): Writing<R> {
  const { name } = table;
  const text = `insert into ${name} (${table.list()}) select * from ${unnest(table)}`;
  return (rows) =>
    rows.length === 0 ? null : { name: `insert ${name}`, text, values: arraysOf(table, rows) };
}

/** The key is not set, not even to itself: so that no index is touched, and nobody who refers to it waits. */
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

/** The last parameter is how many rows it must be: that they were read under the lock is not taken for granted. */
function expecting<R>(
  kind: "update" | "delete",
  table: Table<R>,
  { verb, key }: { verb: string; key: readonly string[] },
): Writing<R> {
  const where = key.map((column) => `t.${column} = n.${column}`).join(" and ");
  const text = `
    with written as (${verb} ${unnest(table)} as n(${table.list()}) where ${where} returning 1)
    select expect_rows(count(*), $${table.columns.length + 1}::bigint, '${table.name}') from written`;
  const name = `${kind} ${table.name}`;
  return (rows) =>
    rows.length === 0 ? null : { name, text, values: [...arraysOf(table, rows), rows.length] };
}
