/**
 * Locks and reads the rows of a commit on PostgreSQL, before the kernel decides.
 *
 * Guarantees that accounts are locked in the order of their ids, and that all reads use one time
 * of the clock, read after the accounts are locked. The result names the accounts with a row that
 * another session has locked; these must not be decided.
 */

import { invariant } from "../../errors.ts";
import { windowBefore } from "../../ledger/key-budget.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { PlanCatalog } from "../../ledger/plan.ts";
import type { ChargeRow, HoldRow, JournalRow, KeyRow, PastBudget, PastWindows } from "../../ledger/rows.ts";
import { endsOverdue, opOf, rowKey, type Snapshot } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import { accountFacts, accountOf, checked } from "../account-rows.ts";
import { pastBudgetOf, pastWindowsOf, readCharged, readPastWindows } from "../past-windows.ts";
import { readEpoch } from "../plans.ts";
import { paymentOf, payments, refunds } from "../queries.ts";
import { accountTable, chargeTable, holdTable, journalTable, keyTable } from "../tables.ts";
import { reading, type TimeParameter, trustedMs } from "./clock.ts";
import type { Connection } from "./connection.ts";
import type { Statement } from "./exchange.ts";
import { arrayLiteral, type Cell } from "./rows.ts";

const readAccounts = `
  select ${accountTable.list()} from account where id = any($1::text[]) order by id for no key update`;

const readFreeAccounts = `${readAccounts} skip locked`;

/**
 * The facts of accounts. A statement after the lock, because a join in the locking statement would
 * see the journal from before it had waited.
 */
const readFacts = `
  select a.id, ${accountFacts.columns} from account a ${accountFacts.postgresJoins} where a.id = any($1::text[])`;

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
 * statement that locks holds uses the same time, because a clock can be set back between two
 * reads.
 */
const readHolds = `
  with reading as materialized (${reading}),
  clock as materialized (
    select reading.ms as clock_ms, set_config('inkwell.now_ms', (${trustedMs})::text, true)::bigint as now_ms,
      (${readEpoch}) as epoch
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
  select clock.now_ms, clock.clock_ms, clock.epoch,
    (select array_agg(distinct account) from overdue where place > $5::bigint), f.place,
    ${holdTable.list("h")}
  from clock left join (found f join hold h on h.account = f.account and h.id = f.id) on true
  order by f.place`;

const readJournal = `
  select ${journalTable.list("j")} from unnest($1::text[], $2::text[]) as n(account, op)
  join journal j on j.op = n.op and j.account = n.account`;

const namedCharges = `unnest($1::text[], $2::text[]) as n(account, id)
  join charge u on u.id = n.id and u.account = n.account`;

const readCharges = `select ${chargeTable.list("u")} from ${namedCharges} order by u.late`;

const readKeysOfCharges = `
  select ${keyTable.list("k")} from ${namedCharges} join api_key k on k.account = u.account and k.id = u.key`;

const forKeys = "for no key update of k skip locked";

const readPayments = payments("any($1::text[])");
const readRefunds = refunds("any($1::text[])");

/** Locks the holds that `readHolds` finds at the same time. */
const lockHolds = `
  with found as (
    select n.account, n.id from unnest($1::text[], $2::text[]) as n(account, id)
    union
    select o.account, o.id from (${overdueOf("$3", "$4", clockOfCommit)}) o
  )
  select h.account, h.id from found f join hold h on h.account = f.account and h.id = f.id
  for no key update of h skip locked`;

/** Finds the named keys, and the keys of the named holds. */
const readKeys = `
  with named as (
    select n.account, n.key from unnest($1::text[], $2::text[]) as n(account, key)
    union
    select h.account, h.key from unnest($3::text[], $4::text[]) as n(account, id)
    join hold h on h.account = n.account and h.id = n.id
  )
  select ${keyTable.list("k")} from named join api_key k on k.account = named.account and k.id = named.key`;

const lockKeys = `${readKeys} ${forKeys}`;
const lockKeysOfCharges = `${readKeysOfCharges} ${forKeys}`;

/** Cells in the result of `readHolds`. */
const clockAt = 1;
const epochAt = 2;
const unfinishedAt = 3;
const placeAt = 4;
const holdFrom = 5;

type Rows = Cell[][];

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

interface ReadOptions {
  time: TimeParameter;
  skips: Skips;
  overdueMax: number;
  /** Returns the plans of this epoch or of a newer one. */
  plansAt(epoch: number): Promise<PlanCatalog>;
}

/** Begins a transaction, and locks and reads the rows. */
export async function readUnderLock(
  connection: Connection,
  operations: readonly Operation[],
  { time, skips, overdueMax, plansAt }: ReadOptions,
): Promise<ReadUnderLock> {
  const { ids, named, settled, ops, keys: keysNamed, payments: paid, refunded } = namedBy(operations);
  const ending = [
    arrayLiteral([...new Set(operations.filter(endsOverdue).map(({ account }) => account))]),
    overdueMax,
  ];
  const accountIds = arrayLiteral(ids);
  const locking = (name: string, text: string, values: readonly Cell[]) =>
    skips === "rows" ? { name, text, values } : null;
  const keysNamedBy = (keys: Pairs, holds = new Pairs()) => {
    const values = [...keys.arrays(), ...holds.arrays()];
    return {
      keys: { name: "keys", text: readKeys, values },
      freeKeys: locking("free keys", lockKeys, values),
    };
  };
  const rows = await together(connection, {
    begin: { name: "begin", text: "begin" },
    accounts:
      skips !== "nothing"
        ? { name: "free accounts", text: readFreeAccounts, values: [accountIds] }
        : { name: "accounts", text: readAccounts, values: [accountIds] },
    facts: { name: "facts", text: readFacts, values: [accountIds] },
    found: skips === "nothing" ? null : { name: "find accounts", text: findAccounts, values: [accountIds] },
    holds: { name: "holds", text: readHolds, values: [time, ...named.arrays(), ...ending] },
    freeHolds: locking("free holds", lockHolds, [...named.arrays(), ...ending]),
    journal: ops.size === 0 ? null : { name: "journal", text: readJournal, values: ops.arrays() },
    payments:
      paid.size === 0 ? null : { name: "payments", text: readPayments, values: [arrayLiteral([...paid])] },
    refunds:
      refunded.size === 0
        ? null
        : { name: "refunds", text: readRefunds, values: [arrayLiteral([...refunded])] },
    ...keysNamedBy(keysNamed, named),
  });
  const [first] = rows.holds ?? [];
  const now = first?.[0];
  const clockMs = first?.[clockAt];
  const epoch = first?.[epochAt];
  invariant(
    typeof now === "number" && typeof clockMs === "number" && typeof epoch === "number",
    "the clock and the epoch of the plans are read with the holds",
  );
  const facts = new Map((rows.facts ?? []).map(([id, ...cells]) => [id, cells]));
  const accounts = (rows.accounts ?? []).map((cells) => checked(accountOf(cells), facts.get(cells[0]) ?? []));
  // If no hold is found, the only row has the clock alone.
  const withHold = (rows.holds ?? []).filter((cells) => cells[holdFrom] !== null);
  const holds = withHold.map((cells) => holdTable.rowOf(cells, holdFrom));
  const overdue = holds.filter((_, index) => withHold[index]?.[placeAt] !== null);
  const unfinished = first?.[unfinishedAt];
  const journal = (rows.journal ?? []).map((cells) => journalTable.rowOf(cells));
  for (const { account, id } of holds) settled.delete(account, id);
  // An open hold has no charges.
  const ended =
    settled.size === 0
      ? {}
      : await together(connection, {
          charges: { name: "charges", text: readCharges, values: settled.arrays() },
          keys: { name: "keys of charges", text: readKeysOfCharges, values: settled.arrays() },
          freeKeys: locking("free keys of charges", lockKeysOfCharges, settled.arrays()),
        });
  const due = overdue.length === 0 ? {} : await together(connection, keysNamedBy(keysOf(overdue)));
  const charges = Map.groupBy(
    (ended.charges ?? []).map((cells) => chargeTable.rowOf(cells)),
    (row: ChargeRow) => rowKey(row.account, row.id),
  );
  const read = [rows, ended, due];
  const keys = read.flatMap(({ keys = [] }) => keys).map((cells) => keyTable.rowOf(cells));
  const freeKeys = read.flatMap(({ freeKeys = [] }) => freeKeys);
  const reversed = operations.filter(({ kind }) => kind === "reverse").map(({ account }) => account);
  const past = new Map<string, PastWindows>();
  for (const account of new Set(reversed)) {
    const ahead = await readKeysAhead(connection, account, now);
    keys.push(...ahead.map(({ key }) => key));
    past.set(account, await readPast(connection, { account, nowMs: now, ahead }));
  }
  const snapshot = {
    nowMs: now,
    plans: await plansAt(epoch),
    accounts: new Map(accounts.map(({ row }) => [row.id, row])),
    problems: new Map(
      accounts.flatMap(({ row, problem }) => (problem === null ? [] : [[row.id, problem] as const])),
    ),
    holds: new Map(holds.map((row: HoldRow) => [rowKey(row.account, row.id), row])),
    overdue: overdue.map(({ account, id }) => rowKey(account, id)),
    unfinished: new Set(Array.isArray(unfinished) ? unfinished.map(String) : []),
    journal: new Map(journal.map((row: JournalRow) => [rowKey(row.account, row.op), row])),
    charges,
    payments: new Map((rows.payments ?? []).map((cells) => [String(cells[0]), paymentOf(cells)])),
    refunds: new Map((rows.refunds ?? []).map(([id, account]) => [String(id), String(account)])),
    keys: new Map(keys.map((row: KeyRow) => [row.id, row])),
    past,
  };
  if (skips === "nothing") return { snapshot, locked: new Set(), clockMs };
  const isThere = new Set((rows.found ?? []).map(([id]) => String(id)));
  const lockedRows =
    skips === "accounts" ? [] : [...notAmong(rows.freeHolds, holds), ...notAmong(freeKeys, keys)];
  const locked = new Set([
    ...[...isThere].filter((id) => !snapshot.accounts.has(id)),
    ...lockedRows.map(({ account }) => account),
    // A new account or payment has no row to lock. To write it may wait for another session, so it
    // is committed alone.
    ...(ids.length === 1 ? [] : openedBy(operations).filter((id) => !isThere.has(id))),
    ...(ids.length === 1 || skips === "accounts" ? [] : paidTo(operations)),
  ]);
  return { snapshot, locked, clockMs };
}

const pastWindows = readPastWindows((n) => (n === 1 ? "$1::text" : "$2::bigint"));
const chargedSince = readCharged((n) => ["$1::text", "$2::text", "$3::bigint"][n - 1] ?? "");
const keysAhead = `select ${keyTable.list()} from api_key where account = $1 and budget_starts_ms > $2::bigint`;
const openHolds = `select ${holdTable.list()} from hold where account = $1`;

async function readPast(
  connection: Connection,
  { account, nowMs, ahead }: { account: string; nowMs: EpochMs; ahead: readonly KeyAhead[] },
): Promise<PastWindows> {
  const { rows } = await connection.query({ text: pastWindows, values: [account, nowMs] });
  const holds = await connection.query({ text: openHolds, values: [account] });
  const budgets: PastBudget[] = [];
  for (const { key, window } of ahead) {
    const charged = await connection.query({
      text: chargedSince,
      values: [account, key.id, window.startsMs],
    });
    budgets.push(pastBudgetOf(key.id, window, charged.rows[0]));
  }
  return pastWindowsOf(
    rows,
    holds.rows.map((cells) => holdTable.rowOf(cells)),
    budgets,
  );
}

/** A key whose budget has a window of the future, and the window at the present time. */
interface KeyAhead {
  key: KeyRow;
  window: { startsMs: EpochMs; endsMs: EpochMs };
}

async function readKeysAhead(connection: Connection, account: string, nowMs: EpochMs): Promise<KeyAhead[]> {
  const { rows } = await connection.query({ text: keysAhead, values: [account, nowMs] });
  return rows.flatMap((cells) => {
    const key = keyTable.rowOf(cells);
    const window = windowBefore(key, nowMs);
    return window === null ? [] : [{ key, window }];
  });
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

function paidTo(operations: readonly Operation[]): string[] {
  return operations.filter((operation) => "payment" in operation).map(({ account }) => account);
}

function namedBy(operations: readonly Operation[]) {
  const named = new Pairs();
  const settled = new Pairs();
  const ops = new Pairs();
  const keys = new Pairs();
  const payments = new Set<string>();
  const refunded = new Set<string>();
  for (const operation of operations) {
    const { account } = operation;
    const op = opOf(operation);
    if (op !== null) ops.add(account, op);
    if ("hold" in operation) named.add(account, operation.hold);
    if ("key" in operation) keys.add(account, operation.key);
    if ("payment" in operation) payments.add(operation.payment);
    if ("refund" in operation) refunded.add(operation.refund);
    if (operation.kind === "settle") settled.add(account, operation.hold);
  }
  const ids = [...new Set(operations.map((operation) => operation.account))];
  return { ids, named, settled, ops, keys, payments, refunded };
}

function keysOf(holds: readonly HoldRow[]): Pairs {
  const pairs = new Pairs();
  for (const { account, key } of holds) pairs.add(account, key);
  return pairs;
}

/** Two columns of parameters, with each pair once. */
class Pairs {
  readonly #pairs = new Map<string, [string, string]>();

  add(account: string, id: string): void {
    this.#pairs.set(rowKey(account, id), [account, id]);
  }

  delete(account: string, id: string): void {
    this.#pairs.delete(rowKey(account, id));
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
