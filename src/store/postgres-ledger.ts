/**
 * One commit of the ledger on PostgreSQL: lock, read what the operations can touch, let the kernel decide, write.
 *
 * Guarantees that all of a batch is written or nothing, that the clock is read after the locks are held and is the
 * database's own, so that all nodes go by one, and that accounts are locked in the order of their ids, and opened in
 * it, so that no two commits wait for each other. What goes wrong in a way that another attempt can mend is a
 * `StoreUnavailableError`; where the answer to `commit` itself is lost, what was done is found by its operation ids.
 *
 * Two round trips: lock and read are sent together, and so are write and commit. The server does one statement after
 * another, each with a snapshot of its own (read committed): what waited for a lock is followed by what reads. It
 * skips the rest once one has failed, and ends the transaction with a rollback. It decides nothing about credits.
 */
import { type Changes, type Ground, lateOp, opOf, rowKey } from "../credits/ground.ts";
import { decide } from "../credits/kernel.ts";
import type { Operation, Outcome } from "../credits/operations.ts";
import type { Plans } from "../credits/plan.ts";
import type { HoldRow, JournalRow, KeyRow, UsageRow } from "../credits/rows.ts";
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import {
  type Connection,
  type Connections,
  doubledIn,
  type PostgresResult,
  type Statement,
} from "./postgres-connection.ts";
import {
  accountOf,
  accountTable,
  type Cell,
  holdTable,
  journalTable,
  keyTable,
  type Table,
  textArray,
  usageTable,
} from "./postgres-rows.ts";

/** The clock of the database, unless one is handed in. */
export const clockMs = "coalesce($1::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)";

const readAccounts = `
  select ${accountTable.list()} from account where id = any($1::text[]) order by id for no key update`;

/**
 * What is named, and all that is overdue; always one row, so that the clock is told. Soonest first. The statement that
 * reads the keys goes by the same time: a clock may be set back between two looks.
 */
const readHolds = `
  with clock as materialized (
    select set_config('inkwell.now_ms', (${clockMs})::text, true)::bigint as now_ms
  ),
  found as (
    select h.* from unnest($2::text[], $3::text[]) as n(account, id)
    join hold h on h.account = n.account and h.id = n.id
    union
    select h.* from clock join hold h on h.expires_ms <= clock.now_ms and h.account = any($4::text[])
  )
  select clock.now_ms, ${holdTable.list("f")} from clock left join found f on true
  order by f.expires_ms, f.account, f.id`;

const readJournal = `
  select ${journalTable.list("j")} from unnest($1::text[], $2::text[]) as n(account, op)
  join journal j on j.op = n.op and j.account = n.account`;

const readUsage = `
  select ${usageTable.list("u")} from unnest($1::text[], $2::text[]) as n(account, id)
  join usage u on u.id = n.id and u.account = n.account`;

/** Those that holds are asked with, and those of the holds and receipts that are named or overdue. */
const readKeys = `
  with named as (
    select n.account, n.key from unnest($1::text[], $2::text[]) as n(account, key)
    union
    select h.account, h.key from unnest($3::text[], $4::text[]) as n(account, id)
    join hold h on h.account = n.account and h.id = n.id
    union
    select u.account, u.key from unnest($3::text[], $4::text[]) as n(account, id)
    join usage u on u.id = n.id and u.account = n.account
    union
    select h.account, h.key from hold h
    where h.expires_ms <= current_setting('inkwell.now_ms')::bigint and h.account = any($5::text[])
  )
  select ${keyTable.list("k")} from named join api_key k on k.account = named.account and k.id = named.key`;

/** Where the database refuses an account as already there, another node has opened it just now. */
const accountsIndex = "account_pkey";
const openingAttemptsMax = 3;

export class PostgresLedger {
  readonly #connections: Connections;
  readonly #plans: Plans;
  readonly #now: (() => EpochMs) | null;

  /** `now` null: the clock of the database. */
  constructor(connections: Connections, plans: Plans, now: (() => EpochMs) | null) {
    this.#connections = connections;
    this.#plans = plans;
    this.#now = now;
  }

  async commit(operations: readonly Operation[]): Promise<Outcome[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#attempt(operations);
      } catch (error) {
        if (attempt === openingAttemptsMax || doubledIn(error) !== accountsIndex) throw error;
      }
    }
  }

  async #attempt(operations: readonly Operation[]): Promise<Outcome[]> {
    const connection = await this.#connections.connect();
    let broken = true;
    try {
      const ground = await this.#read(connection, operations);
      const { outcomes, changes } = decide(ground, this.#plans, operations);
      await write(connection, ground, changes);
      broken = false;
      return outcomes;
    } catch (error) {
      broken = await isBroken(connection);
      throw error;
    } finally {
      connection.release(broken);
    }
  }

  async #read(connection: Connection, operations: readonly Operation[]): Promise<Ground> {
    const nowMs = this.#now?.() ?? null;
    const ids = textArray([...new Set(operations.map((operation) => operation.account))]);
    const named = new Pairs();
    const settled = new Pairs();
    const ops = new Pairs();
    const keysOfHolds = new Pairs();
    for (const operation of operations) {
      const { account } = operation;
      const op = opOf(operation);
      if (op !== null) ops.add(account, op);
      if ("hold" in operation) named.add(account, operation.hold);
      if (operation.kind === "settle") {
        settled.add(account, operation.hold);
        ops.add(account, lateOp(operation.hold));
      }
      if (operation.kind === "hold") keysOfHolds.add(account, operation.key);
    }
    const [, accountRows, holdRows, journalRows, usageRows, keyRows] = await together(connection, [
      { text: "begin" },
      { name: "accounts", text: readAccounts, values: [ids] },
      { name: "holds", text: readHolds, values: [nowMs, ...named.arrays(), ids] },
      ops.size === 0 ? null : { name: "journal", text: readJournal, values: ops.arrays() },
      settled.size === 0 ? null : { name: "usage", text: readUsage, values: settled.arrays() },
      { name: "keys", text: readKeys, values: [...keysOfHolds.arrays(), ...named.arrays(), ids] },
    ]);
    const now = holdRows?.[0]?.[0];
    invariant(typeof now === "number", "the clock is told with the holds");
    const accounts = (accountRows ?? []).map(accountOf);
    // The row that tells the clock has no hold where there is none.
    const holds = (holdRows ?? [])
      .filter((cells) => cells[1] !== null)
      .map((cells) => holdTable.rowOf(cells, 1));
    const journal = (journalRows ?? []).map((cells) => journalTable.rowOf(cells));
    const usage = (usageRows ?? []).map((cells) => usageTable.rowOf(cells));
    const keys = (keyRows ?? []).map((cells) => keyTable.rowOf(cells));
    return {
      nowMs: now,
      accounts: new Map(accounts.map((row) => [row.id, row])),
      holds: new Map(holds.map((row: HoldRow) => [rowKey(row.account, row.id), row])),
      journal: new Map(journal.map((row: JournalRow) => [rowKey(row.account, row.op), row])),
      usage: new Map(usage.map((row: UsageRow) => [rowKey(row.account, row.id), row])),
      keys: new Map(keys.map((row: KeyRow) => [row.id, row])),
    };
  }
}

/** Two columns, without a pair twice. */
class Pairs {
  readonly #pairs = new Map<string, [string, string]>();

  add(account: string, id: string): void {
    this.#pairs.set(rowKey(account, id), [account, id]);
  }

  get size(): number {
    return this.#pairs.size;
  }

  arrays(): [string, string] {
    const pairs = [...this.#pairs.values()];
    return [textArray(pairs.map(([account]) => account)), textArray(pairs.map(([, id]) => id))];
  }
}

/** Sent at once, done one after another. The first that fails is why the others do. */
async function together(
  connection: Connection,
  statements: readonly (Statement | null)[],
): Promise<(PostgresResult["rows"] | null)[]> {
  const sent = statements.map((statement) => (statement === null ? null : connection.query(statement)));
  const answers = await Promise.allSettled(sent);
  const failed = answers.find((answer) => answer.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  return answers.map((answer) => (answer.status === "fulfilled" ? (answer.value?.rows ?? null) : null));
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
const deleteHolds = expecting(
  "hold",
  `delete from hold t using unnest($1::text[], $2::text[]) as n(account, id)
  where t.account = n.account and t.id = n.id`,
);
const insertJournal = insertInto(journalTable);
const insertUsage = insertInto(usageTable);
const updateUsage = update(usageTable, ["account", "id"]);
const updateKeys = expecting(
  "api_key",
  `update api_key t set requests_tat_ms = n.requests_tat_ms, tokens_tat_ms = n.tokens_tat_ms, holds = n.holds,
    last_used_ms = n.last_used_ms
  from unnest($1::text[], $2::text[], $3::double precision[], $4::double precision[], $5::bigint[], $6::bigint[])
    as n(account, id, requests_tat_ms, tokens_tat_ms, holds, last_used_ms)
  where t.account = n.account and t.id = n.id`,
);

async function write(connection: Connection, ground: Ground, changes: Changes): Promise<void> {
  const { holdsEnded, keys } = changes;
  const [newAccounts, accounts] = apart(changes.accounts, (row) => ground.accounts.has(row.id));
  // What is not there yet cannot be locked: two nodes that open the same accounts meet in one order here as well.
  newAccounts.sort((a, b) => (a.id < b.id ? -1 : 1));
  const [newHolds, holds] = apart(changes.holdsPut, (row) => ground.holds.has(rowKey(row.account, row.id)));
  const [newUsage, usage] = apart(changes.usage, (row) => ground.usage.has(rowKey(row.account, row.id)));
  const statements: (Statement | null)[] = [
    some("insert accounts", insertAccounts, newAccounts, accountTable.arraysOf),
    some("update accounts", updateAccounts, accounts, accountTable.arraysOf),
    some("insert holds", insertHolds, newHolds, holdTable.arraysOf),
    some("update holds", updateHolds, holds, holdTable.arraysOf),
    some("delete holds", deleteHolds, holdsEnded, (rows) => [
      textArray(rows.map((row) => row.account)),
      textArray(rows.map((row) => row.id)),
    ]),
    some("insert journal", insertJournal, changes.journal, journalTable.arraysOf),
    some("insert usage", insertUsage, newUsage, usageTable.arraysOf),
    some("update usage", updateUsage, usage, usageTable.arraysOf),
    some("update keys", updateKeys, keys, (rows) => [
      textArray(rows.map((row) => row.account)),
      textArray(rows.map((row) => row.id)),
      `{${rows.map((row) => row.requestsTatMs).join(",")}}`,
      `{${rows.map((row) => row.tokensTatMs).join(",")}}`,
      `{${rows.map((row) => row.holds).join(",")}}`,
      `{${rows.map((row) => row.lastUsedMs ?? "null").join(",")}}`,
    ]),
  ];
  await together(connection, [...statements, { text: "commit" }]);
}

function apart<R>(rows: readonly R[], isRead: (row: R) => boolean): [fresh: R[], read: R[]] {
  return [rows.filter((row) => !isRead(row)), rows.filter(isRead)];
}

function some<R>(
  name: string,
  text: string,
  rows: readonly R[],
  arraysOf: (rows: readonly R[]) => string[],
): Statement | null {
  if (rows.length === 0) return null;
  const values: Cell[] = arraysOf(rows);
  return { name, text, values: text.includes("expect_rows") ? [...values, rows.length] : values };
}

function insertInto<R>({ name, columns, unnest }: Table<R>): string {
  return `insert into ${name} (${columns.join(", ")}) select * from ${unnest}`;
}

/** The key is not set, not even to itself: so that no index is touched, and nobody who refers to it waits. */
function update<R>({ name, columns, unnest }: Table<R>, key: readonly string[]): string {
  const set = columns.filter((column) => !key.includes(column)).map((column) => `${column} = n.${column}`);
  const where = key.map((column) => `t.${column} = n.${column}`);
  return expecting(
    name,
    `update ${name} t set ${set.join(", ")} from ${unnest} as n(${columns.join(", ")}) where ${where.join(" and ")}`,
  );
}

/** The last parameter is how many rows it must be: that they were read under the lock is not taken for granted. */
function expecting(name: string, writing: string): string {
  const count = Math.max(...[...writing.matchAll(/\$(\d+)/g)].map(([, n]) => Number(n))) + 1;
  return `with written as (${writing} returning 1)
  select expect_rows(count(*), $${count}::bigint, '${name}') from written`;
}
