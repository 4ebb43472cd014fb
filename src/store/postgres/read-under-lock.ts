/**
 * Locks and reads the rows of a commit on PostgreSQL, before the kernel decides.
 *
 * Guarantees that accounts are locked in the order of their ids, and that all reads use one time
 * of the clock, read after the accounts are locked. The result names the accounts with a row that
 * another session has locked; these must not be decided.
 */

import { invariant } from "../../errors.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { HoldRow, JournalRow, KeyRow, UsageRow } from "../../ledger/rows.ts";
import { endsOverdue, lateOp, opOf, rowKey, type Snapshot } from "../../ledger/unit-of-work.ts";
import type { EpochMs } from "../../units.ts";
import { accountOf, accountTable, holdTable, journalTable, keyTable, usageTable } from "../tables.ts";
import { reading, type TimeParameter, trustedMs } from "./clock.ts";
import type { Connection, PostgresResult, Statement } from "./connection.ts";
import { arrayLiteral, type Cell } from "./rows.ts";

const readAccounts = `
  select ${accountTable.list()} from account where id = any($1::text[]) order by id for no key update`;

const readFreeAccounts = `${readAccounts} skip locked`;

/** Finds accounts that exist, locked or not. */
const findAccounts = "select id from account where id = any($1::text[])";

/** The soonest overdue holds of each of these accounts, one more than a commit ends. */
function overdueOf(accounts: string, max: string, nowMs: string): string {
  return `
    select a.account, h.id, h.key, h.expires_ms from unnest(${accounts}::text[]) as a(account)
    cross join lateral (
      select id, key, expires_ms from hold
      where hold.account = a.account and hold.expires_ms <= ${nowMs}
      order by hold.expires_ms, hold.id limit ${max}::bigint + 1
    ) h`;
}

const clockOfCommit = "current_setting('inkwell.now_ms')::bigint";

/**
 * Reads the named holds, and the soonest overdue holds with their place in that order. The result
 * always has a row, for the clock and for the accounts that have more overdue holds. The
 * statements that lock holds and read keys use the same time, because a clock can be set back
 * between two reads.
 */
const readHolds = `
  with reading as materialized (${reading}),
  clock as materialized (
    select reading.ms as clock_ms, set_config('inkwell.now_ms', (${trustedMs})::text, true)::bigint as now_ms
    from reading
  ),
  overdue as (
    select o.account, o.id, row_number() over (order by o.expires_ms, o.account, o.id) as place
    from clock cross join lateral (${overdueOf("$4", "$5", "clock.now_ms")}) o
  ),
  found as (
    select account, id, min(place) as place from (
      select account, id, place from overdue where place <= $5::bigint
      union all
      select n.account, n.id, null from unnest($2::text[], $3::text[]) as n(account, id)
    ) named
    group by account, id
  )
  select clock.now_ms, clock.clock_ms, (select array_agg(distinct account) from overdue where place > $5::bigint), f.place,
    ${holdTable.list("h")}
  from clock left join (found f join hold h on h.account = f.account and h.id = f.id) on true
  order by f.place`;

const readJournal = `
  select ${journalTable.list("j")} from unnest($1::text[], $2::text[]) as n(account, op)
  join journal j on j.op = n.op and j.account = n.account`;

const readUsage = `
  select ${usageTable.list("u")} from unnest($1::text[], $2::text[]) as n(account, id)
  join usage u on u.id = n.id and u.account = n.account`;

/** Locks the holds that `readHolds` finds at the same time. */
const lockHolds = `
  with found as (
    select n.account, n.id from unnest($1::text[], $2::text[]) as n(account, id)
    union
    select o.account, o.id from (${overdueOf("$3", "$4", clockOfCommit)}) o
  )
  select h.account, h.id from found f join hold h on h.account = f.account and h.id = f.id
  for no key update of h skip locked`;

const lockUsage = `
  select u.account, u.id from unnest($1::text[], $2::text[]) as n(account, id)
  join usage u on u.id = n.id and u.account = n.account
  for no key update of u skip locked`;

/** Finds the keys of new holds, and the keys of the named or overdue holds and receipts. */
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
    select o.account, o.key from (${overdueOf("$5", "$6", clockOfCommit)}) o
  )
  select ${keyTable.list("k")} from named join api_key k on k.account = named.account and k.id = named.key`;

const lockKeys = `${readKeys} for no key update of k skip locked`;

/** Cells in the result of `readHolds`. */
const clockAt = 1;
const unfinishedAt = 2;
const placeAt = 3;
const holdFrom = 4;

type Rows = PostgresResult["rows"];

/**
 * The locked rows that a commit skips: none, rows of accounts, or all rows that it may write. To
 * lock all rows costs half of a node's speed, and rows other than accounts are rarely locked.
 */
export type Skips = "nothing" | "accounts" | "rows";

interface ReadUnderLock {
  snapshot: Snapshot;
  /** Accounts with a row that another session has locked. They must not be decided. */
  locked: ReadonlySet<string>;
  /** The clock of the server, which the node may not believe. */
  clockMs: EpochMs;
}

/** Begins a transaction, and locks and reads the rows. */
export async function readUnderLock(
  connection: Connection,
  operations: readonly Operation[],
  { time, skips, overdueMax }: { time: TimeParameter; skips: Skips; overdueMax: number },
): Promise<ReadUnderLock> {
  const { ids, named, settled, ops, keysOfHolds } = namedBy(operations);
  const ending = [
    arrayLiteral([...new Set(operations.filter(endsOverdue).map(({ account }) => account))]),
    overdueMax,
  ];
  const accountIds = arrayLiteral(ids);
  const keysValues = [...keysOfHolds.arrays(), ...named.arrays(), ...ending];
  const locking = (name: string, text: string, values: readonly Cell[]) =>
    skips === "rows" ? { name, text, values } : null;
  const rows = await together(connection, {
    begin: { text: "begin" },
    accounts:
      skips !== "nothing"
        ? { name: "free accounts", text: readFreeAccounts, values: [accountIds] }
        : { name: "accounts", text: readAccounts, values: [accountIds] },
    found: skips === "nothing" ? null : { name: "find accounts", text: findAccounts, values: [accountIds] },
    holds: { name: "holds", text: readHolds, values: [time, ...named.arrays(), ...ending] },
    freeHolds: locking("free holds", lockHolds, [...named.arrays(), ...ending]),
    journal: ops.size === 0 ? null : { name: "journal", text: readJournal, values: ops.arrays() },
    usage: settled.size === 0 ? null : { name: "usage", text: readUsage, values: settled.arrays() },
    freeUsage: settled.size === 0 ? null : locking("free usage", lockUsage, settled.arrays()),
    keys: { name: "keys", text: readKeys, values: keysValues },
    freeKeys: locking("free keys", lockKeys, keysValues),
  });
  const [first] = rows.holds ?? [];
  const now = first?.[0];
  const clockMs = first?.[clockAt];
  invariant(typeof now === "number" && typeof clockMs === "number", "the clock is read with the holds");
  const accounts = (rows.accounts ?? []).map(accountOf);
  // If no hold is found, the only row has the clock alone.
  const withHold = (rows.holds ?? []).filter((cells) => cells[holdFrom] !== null);
  const holds = withHold.map((cells) => holdTable.rowOf(cells, holdFrom));
  const overdue = holds.filter((_, index) => withHold[index]?.[placeAt] !== null);
  const unfinished = first?.[unfinishedAt];
  const journal = (rows.journal ?? []).map((cells) => journalTable.rowOf(cells));
  const usage = (rows.usage ?? []).map((cells) => usageTable.rowOf(cells));
  const keys = (rows.keys ?? []).map((cells) => keyTable.rowOf(cells));
  const snapshot = {
    nowMs: now,
    accounts: new Map(accounts.map((row) => [row.id, row])),
    holds: new Map(holds.map((row: HoldRow) => [rowKey(row.account, row.id), row])),
    overdue: overdue.map(({ account, id }) => rowKey(account, id)),
    unfinished: new Set(Array.isArray(unfinished) ? unfinished.map(String) : []),
    journal: new Map(journal.map((row: JournalRow) => [rowKey(row.account, row.op), row])),
    usage: new Map(usage.map((row: UsageRow) => [rowKey(row.account, row.id), row])),
    keys: new Map(keys.map((row: KeyRow) => [row.id, row])),
  };
  if (skips === "nothing") return { snapshot, locked: new Set(), clockMs };
  const isThere = new Set((rows.found ?? []).map(([id]) => String(id)));
  const lockedRows =
    skips === "accounts"
      ? []
      : [
          ...notAmong(rows.freeHolds, holds),
          ...notAmong(rows.freeUsage, usage),
          ...notAmong(rows.freeKeys, keys),
        ];
  const locked = new Set([
    ...[...isThere].filter((id) => !snapshot.accounts.has(id)),
    ...lockedRows.map(({ account }) => account),
    // A new account has no row to lock. To open it may wait for another session, so it is
    // committed alone.
    ...(ids.length === 1 ? [] : openedBy(operations).filter((id) => !isThere.has(id))),
  ]);
  return { snapshot, locked, clockMs };
}

/** Returns the rows that the locking statement skipped. Its result begins with account and id. */
function notAmong<R extends { account: string; id: string }>(
  free: Rows | undefined,
  read: readonly R[],
): R[] {
  const known = new Set((free ?? []).map(([account, id]) => rowKey(String(account), String(id))));
  return read.filter(({ account, id }) => !known.has(rowKey(account, id)));
}

function openedBy(operations: readonly Operation[]): string[] {
  return operations.filter(({ kind }) => kind === "open").map(({ account }) => account);
}

function namedBy(operations: readonly Operation[]) {
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
  const ids = [...new Set(operations.map((operation) => operation.account))];
  return { ids, named, settled, ops, keysOfHolds };
}

/** Two columns of parameters, with each pair once. */
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
    return [arrayLiteral(pairs.map(([account]) => account)), arrayLiteral(pairs.map(([, id]) => id))];
  }
}

/**
 * Sends all statements at once. The server runs them in the order of their fields, and the first
 * error is the cause of the others. Returns the rows of each statement in the field of its name.
 */
export async function together<Name extends string>(
  connection: Connection,
  statements: Readonly<Record<Name, Statement | null>>,
): Promise<Partial<Record<Name, Rows>>> {
  const sent: Promise<void>[] = [];
  const rows: Partial<Record<Name, Rows>> = {};
  for (const name in statements) {
    const statement = statements[name];
    if (statement === null) continue;
    sent.push(
      connection.query(statement).then((result) => {
        rows[name] = result.rows;
      }),
    );
  }
  const failed = (await Promise.allSettled(sent)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
  return rows;
}
