/**
 * Locks and reads the rows of a commit on PostgreSQL, before the kernel decides.
 *
 * Guarantees that accounts are locked in the order of their ids, and that all reads use one time
 * of the clock, read after the accounts are locked. The result names the accounts with a row that
 * another session has locked; these must not be decided.
 */

import { invariant } from "../../errors.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { PlanCatalog } from "../../ledger/plan.ts";
import type { AdditionalGrant, ChargeRow, HoldRow, KeyRow } from "../../ledger/rows.ts";
import { readsOf, rowKey, type Snapshot } from "../../ledger/snapshot.ts";
import { accountRowIn } from "../account-rows.ts";
import { paymentOf, selectPayments } from "../journal.ts";
import { accountTable, chargeTable, holdTable, journalTable, keyTable, laterGrantTable } from "../tables.ts";
import { type CommitClock, readClockAndMark } from "./clock.ts";
import type { Connection } from "./connection-pool.ts";
import type { Statement } from "./exchange.ts";
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

/**
 * The hold with the account and the id of these rows, found by its id alone. `offset 0` keeps it
 * that lookup: if the table was empty when its statistics were made, PostgreSQL believes that to
 * read a whole index costs as little, with all holds that have ended.
 */
function holdOf(rows: string): string {
  return `cross join lateral (select * from hold where hold.id = ${rows}.id offset 0) h
    where h.account = ${rows}.account`;
}

/**
 * Reads the named holds, and the soonest overdue holds with their place in that order. The result
 * always has a row, for the clock and for the accounts that have more overdue holds.
 */
const readHolds = `
  with ${readClockAndMark},
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
  select clock.clock_ms, clock.mark,
    (select array_agg(distinct account) from overdue where place > $5::bigint), h.place,
    ${holdTable.list("h")}
  from clock left join (select h.*, f.place from found f ${holdOf("f")}) h on true
  order by h.place`;

const readJournal = `select ${journalTable.list()} from journal where op = any($1::text[])`;

const namedCharges = `unnest($1::text[], $2::text[]) as n(account, id)
  join charge u on u.id = n.id and u.account = n.account`;

const readCharges = `select ${chargeTable.list("u")} from ${namedCharges} order by u.late`;

const readKeysOfCharges = `
  with named as (select u.account, u.key from ${namedCharges}) ${keysOfNamed()}`;

/** The memos of each request. */
const readMemos = `
  select g.account, g.request_id, sum(g.amount)::bigint from unnest($1::text[], $2::text[]) as n(account, id)
  join credit_grant g on g.request_id = n.id and g.account = n.account group by 1, 2`;

const readLater = `select ${laterGrantTable.list()} from later_grant where account = $1`;

const readKeysOf = `select ${keyTable.list()} from api_key where account = any($1::text[])`;

const readPayments = `${selectPayments} where p.payment = any($1::text[])`;

/**
 * The keys that rows of `named` (account, key) have. The lock of its account protects a key. The
 * key of a front end has requests of many accounts, so it is locked too. Accounts are locked
 * before, so commits of other accounts wait only until this one ends.
 */
function keysOfNamed(): string {
  return `, shared as (
      select k.* from api_key k
      where k.acts_for_name is not null and k.id in (select key from named) order by k.id for no key update
    )
    select ${keyTable.list("k")} from shared k
    union all
    select ${keyTable.list("k")} from named
    join api_key k on k.account = named.account and k.id = named.key and k.acts_for_name is null`;
}

/** Finds the named keys, and the keys of the named holds. */
const readKeys = `
  with named as (
    select n.account, n.key from unnest($1::text[], $2::text[]) as n(account, key)
    union
    select h.account, h.key from unnest($3::text[], $4::text[]) as n(account, id)
    ${holdOf("n")}
  )
  ${keysOfNamed()}`;

/** Cells in the result of `readHolds`. */
const clockAt = 0;
const markAt = 1;
const moreOverdueAt = 2;
const placeAt = 3;
const holdFrom = 4;

type Rows = Cell[][];

interface ReadUnderLock {
  /** Without later grants. */
  snapshot: Omit<Snapshot, "later">;
  /** Accounts with a row that another session has locked. They must not be decided. */
  locked: ReadonlySet<string>;
}

interface ReadOptions {
  clock: CommitClock;
  /** Skips accounts that another session has locked, in place of waiting for them. */
  skipsLocked: boolean;
  overdueMax: number;
  /** Returns the plans with this mark, or those that have become current since. */
  plansAt(mark: number): Promise<PlanCatalog>;
}

/** Begins a transaction, and locks and reads the rows. */
export async function readUnderLock(
  connection: Connection,
  operations: readonly Operation[],
  { clock, skipsLocked, overdueMax, plansAt }: ReadOptions,
): Promise<ReadUnderLock> {
  const { parameter, asked } = clock.ask();
  const reads = readsOf(operations);
  const ids = [...reads.accounts];
  const named = new Pairs(reads.holds.values());
  const ended = new Pairs(reads.ended.values());
  const ending = [arrayLiteral([...reads.overdueOf]), overdueMax];
  const accountIds = arrayLiteral(ids);
  const keysNamedBy = (keys: Pairs, holds = new Pairs()) => ({
    keys: { name: "keys", text: readKeys, values: [...keys.arrays(), ...holds.arrays()] },
  });
  const unlessEmpty = (names: ReadonlySet<string>, name: string, text: string) =>
    names.size === 0 ? null : { name, text, values: [arrayLiteral([...names])] };
  const rows = await together(connection, {
    begin: { name: "begin", text: "begin" },
    accounts: skipsLocked
      ? { name: "free accounts", text: readFreeAccounts, values: [accountIds] }
      : { name: "accounts", text: readAccounts, values: [accountIds] },
    found: !skipsLocked ? null : { name: "find accounts", text: findAccounts, values: [accountIds] },
    holds: { name: "holds", text: readHolds, values: [parameter, ...named.arrays(), ...ending] },
    journal: unlessEmpty(reads.ops, "journal", readJournal),
    payments: unlessEmpty(reads.payments, "payments", readPayments),
    keysOf: unlessEmpty(reads.keysOf, "keys of accounts", readKeysOf),
    charges: ended.size === 0 ? null : { name: "charges", text: readCharges, values: ended.arrays() },
    memos: operations.some(({ kind }) => kind === "promote")
      ? { name: "memos", text: readMemos, values: ended.arrays() }
      : null,
    ...keysNamedBy(new Pairs(reads.keys.values()), named),
  });
  const [first] = rows.holds ?? [];
  const clockMs = first?.[clockAt];
  const mark = first?.[markAt];
  invariant(
    typeof clockMs === "number" && typeof mark === "number",
    "the clock and the mark of the plans are read with the holds",
  );
  const accounts = (rows.accounts ?? []).map(accountRowIn);
  // If no hold is found, the only row has the clock alone.
  const withHold = (rows.holds ?? []).filter((cells) => cells[holdFrom] !== null);
  const holds = withHold.map((cells) => holdTable.rowOf(cells, holdFrom));
  const overdue = holds.filter((_, index) => withHold[index]?.[placeAt] !== null);
  const moreOverdue = first?.[moreOverdueAt];
  const journal = (rows.journal ?? []).map((cells) => journalTable.rowOf(cells));
  const charges = Map.groupBy(
    (rows.charges ?? []).map((cells) => chargeTable.rowOf(cells)),
    (row: ChargeRow) => rowKey(row.account, row.id),
  );
  const memos = new Map(
    (rows.memos ?? []).map(([account, id, sum]) => [rowKey(String(account), String(id)), Number(sum)]),
  );
  const keysOfCharges =
    charges.size === 0
      ? {}
      : await together(connection, {
          keys: { name: "keys of charges", text: readKeysOfCharges, values: ended.arrays() },
        });
  const keysDue = new Pairs(overdue.map(({ account, key }) => ({ account, id: key })));
  const due = keysDue.size === 0 ? {} : await together(connection, keysNamedBy(keysDue));
  const read = [rows, keysOfCharges, due];
  // Those that are locked come last, and count.
  const keysRead = [...(rows.keysOf ?? []), ...read.flatMap(({ keys = [] }) => keys)];
  const keys = keysRead.map((cells) => keyTable.rowOf(cells));
  const snapshot: Omit<Snapshot, "later"> = {
    times: clock.answered(asked, clockMs),
    plans: await plansAt(mark),
    accounts: new Map(accounts.map(({ row }) => [row.id, row])),
    problems: new Map(
      accounts.flatMap(({ row, problem }) => (problem === null ? [] : [[row.id, problem] as const])),
    ),
    holds: new Map(holds.map((row: HoldRow) => [rowKey(row.account, row.id), row])),
    overdue: overdue.map(({ account, id }) => rowKey(account, id)),
    moreOverdue: new Set(Array.isArray(moreOverdue) ? moreOverdue.map(String) : []),
    journal: new Map(journal.flatMap((row) => (row.op === null ? [] : [[row.op, row] as const]))),
    ended: new Map(
      [...charges].map(([name, rows]) => [name, { charges: rows, memosMicro: memos.get(name) ?? 0 }]),
    ),
    payments: new Map((rows.payments ?? []).map(paymentOf).map((payment) => [payment.id, payment])),
    keys: new Map(keys.map((row: KeyRow) => [row.id, row])),
  };
  const there = (rows.found ?? []).map(([id]) => String(id));
  return { snapshot, locked: new Set(there.filter((id) => !snapshot.accounts.has(id))) };
}

/** Reads the additional grants that are not in the row of an account, under its lock. */
export async function readLaterGrants(connection: Connection, account: string): Promise<AdditionalGrant[]> {
  const { rows } = await connection.query({ text: readLater, values: [account] });
  return rows.map((cells) => laterGrantTable.rowOf(cells));
}

/** Two columns of parameters, with each pair once. */
class Pairs {
  readonly #pairs = new Map<string, [string, string]>();

  constructor(pairs: Iterable<{ account: string; id: string }> = []) {
    for (const { account, id } of pairs) this.#pairs.set(rowKey(account, id), [account, id]);
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
 * Sends all statements at once. The server runs them in the order of their fields, up to the first
 * error. Returns the rows of each statement in the field of its name.
 */
export async function together<Name extends string>(
  connection: Connection,
  statements: Readonly<Record<Name, Statement | null>>,
): Promise<Partial<Record<Name, Rows>>> {
  const names: Name[] = [];
  const sent: Statement[] = [];
  for (const name in statements) {
    const statement = statements[name];
    if (statement === null) continue;
    names.push(name);
    sent.push(statement);
  }
  const rows: Partial<Record<Name, Rows>> = {};
  for (const [n, found] of (await connection.exchange(sent)).entries()) {
    const name = names[n];
    if (name !== undefined) rows[name] = found;
  }
  return rows;
}
