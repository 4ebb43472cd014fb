/** What is read on PostgreSQL outside the ledger's commits: keys, snapshots for balances, and lists by the page. */

import { invariant } from "../../errors.ts";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../../ledger/rows.ts";
import { overdueMax } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import {
  type AccountsQuery,
  type FoundKey,
  type HoldsQuery,
  type HoldTotals,
  type JournalQuery,
  ListTooSlowError,
  pageRowsMax,
  type UsageQuery,
} from "../store.ts";
import { accountOf, accountTable, holdTable, journalTable, keyTable, usageTable } from "../tables.ts";
import type { ConnectionPool } from "./connection.ts";
import { isStatementTimeout } from "./errors.ts";
import { limits } from "./limits.ts";
import { arrayLiteral, type Cell } from "./rows.ts";
import { clockMs } from "./snapshot.ts";

const findKey = `
  select ${keyTable.list("k")}, a.plan from api_key k join account a on a.id = k.account where k.hash = $1`;

/** One statement, so that account and holds are of one state; the clock is read after that is fixed. */
const readSnapshot = `
  with clock as materialized (select ${clockMs} as now_ms)
  select clock.now_ms, ${accountTable.list("a")}, ${holdTable.list("h")}
  from clock join account a on a.id = $2
  left join lateral (
    select * from hold where hold.account = a.id and hold.expires_ms <= clock.now_ms
    order by hold.expires_ms, hold.id limit ${overdueMax}
  ) h on true
  order by h.expires_ms, h.id`;

const insertKey = `
  insert into api_key (${keyTable.list()})
  select ${keyTable.columns.map((_, index) => `$${index + 1}`).join(", ")}
  where exists (select from account where id = $1)`;

/** Waits for the commit under way on the account: a hold that is decided after the answer sees the key revoked. */
const revokeKey = `
  with locked as (
    select a.id from account a where a.id = (select account from api_key where id = $1) for no key update
  )
  update api_key k set revoked_ms = coalesce(k.revoked_ms, $2::bigint)
  where k.id = $1 and exists (select from locked) returning ${keyTable.list("k")}`;

/** The connections that reads go over, by what they are for. */
export interface ReadPools {
  lookups: ConnectionPool;
  service: ConnectionPool;
  lists: ConnectionPool;
  keyChanges: ConnectionPool;
}

export class PostgresKeys {
  readonly #pools: ReadPools;

  constructor(pools: ReadPools) {
    this.#pools = pools;
  }

  async find(hash: string): Promise<FoundKey | null> {
    const rows = await this.#pools.lookups.find({ name: "find key", text: findKey, values: [hash] });
    const [cells] = rows;
    return cells === undefined ? null : { key: keyTable.rowOf(cells), plan: String(cells.at(-1)) };
  }

  async add(key: KeyRow): Promise<boolean> {
    const values = keyTable.valuesOf(key, arrayLiteral);
    const { rowCount } = await this.#pools.keyChanges.query({ text: insertKey, values });
    return rowCount === 1;
  }

  async revoke(id: string, atMs: EpochMs): Promise<KeyRow | null> {
    const rows = await this.#pools.keyChanges.find({ text: revokeKey, values: [id, atMs] });
    return rows[0] === undefined ? null : keyTable.rowOf(rows[0]);
  }

  async byId(id: string): Promise<KeyRow | null> {
    const text = `select ${keyTable.list()} from api_key where id = $1`;
    const rows = await this.#pools.service.find({ text, values: [id] });
    return rows[0] === undefined ? null : keyTable.rowOf(rows[0]);
  }

  async list(account: string | undefined): Promise<KeyRow[]> {
    const text = `select ${keyTable.list()} from api_key where $1::text is null or account = $1 order by created_ms, id`;
    const rows = await this.#pools.lists.find({ text, values: [account ?? null] });
    return rows.map((cells) => keyTable.rowOf(cells));
  }
}

export class PostgresLists {
  readonly #pools: ReadPools;
  readonly #now: (() => EpochMs) | null;
  readonly #listMs: number;

  constructor(pools: ReadPools, now: (() => EpochMs) | null, listMs: number = limits.listMs) {
    this.#pools = pools;
    this.#now = now;
    this.#listMs = listMs;
  }

  async snapshot(account: string): Promise<AccountSnapshot | null> {
    const values = [this.#now?.() ?? null, account];
    const rows = await this.#pools.lookups.find({ name: "snapshot", text: readSnapshot, values });
    const [first] = rows;
    if (first === undefined) return null;
    const [nowMs] = first;
    invariant(typeof nowMs === "number", "the clock is told with the account");
    const holdsFrom = 1 + accountTable.columns.length;
    const overdue = rows.filter((cells) => cells[holdsFrom] !== null);
    return {
      account: accountOf(first.slice(1, holdsFrom)),
      overdue: overdue.map((cells) => holdTable.rowOf(cells, holdsFrom)),
      nowMs,
    };
  }

  async accounts({ after, limit }: AccountsQuery): Promise<AccountRow[]> {
    const text = `select ${accountTable.list()} from account where id > $1 order by id limit $2`;
    return (await this.#page("service", text, [after ?? ""], limit)).map(accountOf);
  }

  async journal(account: string, { afterSeq, limit }: JournalQuery): Promise<JournalRow[]> {
    const text = `select ${journalTable.list()} from journal where account = $1 and seq > $2 order by seq limit $3`;
    const rows = await this.#page("lists", text, [account, afterSeq ?? 0], limit);
    return rows.map((cells) => journalTable.rowOf(cells));
  }

  async usage(query: UsageQuery): Promise<UsageRow[]> {
    const filter = new Filter();
    filter.where("account = ?", query.account);
    filter.where("id = ?", query.id);
    filter.where("key = ?", query.key);
    // A key has one account, whose receipts are found by an index.
    filter.where("account = (select account from api_key where id = ?)", query.key);
    filter.where("model = ?", query.model);
    filter.where("at_ms >= ?", query.fromMs);
    filter.where("at_ms < ?", query.toMs);
    const { after } = query;
    // Beside an account that is given, a comparison of both would read the index from that account's first receipt on.
    if (after !== undefined && after.account === query.account) filter.where("seq > ?", after.seq);
    else if (after !== undefined) filter.where("(account, seq) > (?, ?)", after.account, after.seq);
    const text = `select ${usageTable.list()} from usage${filter.sql} order by account, seq limit $${filter.values.length + 1}`;
    return (await this.#page("lists", text, filter.values, query.limit)).map((cells) =>
      usageTable.rowOf(cells),
    );
  }

  async holds({ account, after, limit }: HoldsQuery): Promise<HoldRow[]> {
    const filter = new Filter();
    filter.where("account = ?", account);
    if (after !== undefined) filter.where("(account, id) > (?, ?)", after.account, after.id);
    const text = `select ${holdTable.list()} from hold${filter.sql} order by account, id limit $${filter.values.length + 1}`;
    return (await this.#page("lists", text, filter.values, limit)).map((cells) => holdTable.rowOf(cells));
  }

  async holdTotals(): Promise<HoldTotals> {
    const text =
      "select count(*), coalesce(sum(base + overage + additional + base_past + overage_past), 0) from hold";
    const [row] = await this.#pools.service.find({ text });
    return { holds: Number(row?.[0]), micro: Number(row?.[1]) };
  }

  async overdueHolds(atMs: EpochMs | null, limit: number): Promise<HoldRow[]> {
    // Looked up once, and so by the index.
    const text = `select ${holdTable.list()} from hold where expires_ms <= (select ${clockMs})
      order by expires_ms, account, id limit $2`;
    return (await this.#page("service", text, [atMs ?? this.#now?.() ?? null], limit)).map((cells) =>
      holdTable.rowOf(cells),
    );
  }

  /** `limit` is the last of the parameters. */
  async #page(
    pool: "service" | "lists",
    text: string,
    values: readonly Cell[],
    limit: number,
  ): Promise<Cell[][]> {
    invariant(
      Number.isInteger(limit) && limit >= 1 && limit <= pageRowsMax,
      `a page has 1 to ${pageRowsMax} rows`,
    );
    try {
      return await this.#pools[pool].find({ text, values: [...values, limit] });
    } catch (error) {
      if (isStatementTimeout(error)) throw new ListTooSlowError(this.#listMs, error);
      throw error;
    }
  }
}

/** The conditions of one query, joined by "and". */
class Filter {
  readonly values: Cell[] = [];
  readonly #conditions: string[] = [];

  /** Each `?` is one of the operands; nothing is asked where the first of them is not given. */
  where(condition: string, ...operands: (string | number | undefined)[]): void {
    if (operands[0] === undefined) return;
    let from = this.values.length;
    this.#conditions.push(
      condition.replaceAll("?", () => {
        from += 1;
        return `$${from}`;
      }),
    );
    this.values.push(...operands.map((operand) => operand ?? null));
  }

  get sql(): string {
    return this.#conditions.length === 0 ? "" : ` where ${this.#conditions.join(" and ")}`;
  }
}
