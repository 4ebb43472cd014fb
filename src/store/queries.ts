/**
 * The reads outside the ledger's commits, and the writes of keys: each statement once, for both
 * stores.
 *
 * Guarantees that lists have at most `pageRowsMax` rows and a fixed order. The stores differ in
 * how they connect (`SqlConnections`) and in a few words of SQL (`SqlDialect`).
 */
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { pageRowsMax, type Store, type UsageQuery } from "./store.ts";
import {
  accountOf,
  accountTable,
  holdTable,
  journalTable,
  keyTable,
  usageTable,
  type Value,
} from "./tables.ts";

export interface SqlStatement {
  text: string;
  values: readonly Value[];
  /** Prepared under this name, once on each connection. */
  name?: string;
}

/**
 * The purpose of a statement. Slow purposes have their own connections, so that others do not wait
 * for them: `lookups` of a request, single rows for the `service` and its operators, `lists`, the
 * `history` of receipts and journal entries, and `keyChanges`.
 */
export type Purpose = "lookups" | "service" | "lists" | "history" | "keyChanges";

export interface SqlConnections {
  /** Finds rows. Returns none if a value is text that the database cannot contain. */
  find(purpose: Purpose, statement: SqlStatement): Promise<readonly (readonly unknown[])[]>;
  /** Finds rows like `find`, and throws a `ListTooSlowError` at the time limit for lists. */
  findPage(purpose: Purpose, statement: SqlStatement): Promise<readonly (readonly unknown[])[]>;
  /** Writes rows, and returns what the statement returns. */
  write(statement: SqlStatement): Promise<readonly (readonly unknown[])[]>;
}

export interface SqlDialect {
  /** The parameter with this number, from 1. */
  parameter(n: number): string;
  /** The time of the first parameter, which is `?`, a value of `timeOf`. */
  time: string;
  /** The parameter for this time, or for the present time of the commits' clock. */
  timeOf(atMs: EpochMs | null): Value;
  /** A cell with a list of texts. */
  listOf(texts: readonly string[]): string;
  /** The receipts as `u`, and the alias of the table that has an index on account and number. */
  receipts: { from: string; inOrder: string };
  /** Revokes key 2 at time 1, in order with the commits of its account. */
  revokeKey: string;
}

type Queries = Pick<
  Store,
  | "findKey"
  | "addKey"
  | "keyById"
  | "keys"
  | "revokeKey"
  | "accounts"
  | "journal"
  | "usage"
  | "holds"
  | "holdTotals"
  | "overdueHolds"
>;

export function queriesOn({ find, findPage, write }: SqlConnections, dialect: SqlDialect): Queries {
  const p = dialect.parameter;
  const findKey = `select ${keyTable.list("k")}, a.plan from api_key as k join account as a on a.id = k.account
    where k.hash = ${p(1)}`;
  const conditions = () => new Conditions(p);

  return {
    /** The lookup that every request begins with. */
    async findKey(hash) {
      const [cells] = await find("lookups", { name: "find key", text: findKey, values: [hash] });
      return cells === undefined ? null : { key: keyTable.rowOf(cells), plan: String(cells.at(-1)) };
    },

    async addKey(key) {
      const text = `insert into api_key (${keyTable.list()})
        select ${keyTable.columns.map((_, index) => p(index + 1)).join(", ")}
        where exists (select 1 from account where id = ${p(1)}) returning id`;
      const added = await write({ text, values: keyTable.valuesOf(key, dialect.listOf) });
      return added.length === 1;
    },

    async keyById(id) {
      const text = `select ${keyTable.list()} from api_key where id = ${p(1)}`;
      const [cells] = await find("service", { text, values: [id] });
      return cells === undefined ? null : keyTable.rowOf(cells);
    },

    async keys(account) {
      const { sql, values } = conditions().and("account = ?", account);
      const text = `select ${keyTable.list()} from api_key${sql} order by created_ms, id`;
      return (await find("lists", { text, values })).map((cells) => keyTable.rowOf(cells));
    },

    async revokeKey(id, atMs) {
      const [cells] = await find("keyChanges", { text: dialect.revokeKey, values: [atMs, id] });
      return cells === undefined ? null : keyTable.rowOf(cells);
    },

    async accounts({ after, limit }) {
      const { sql, values } = conditions()
        .and("id > ?", after ?? "")
        .page("id", limit);
      const text = `select ${accountTable.list()} from account${sql}`;
      return (await findPage("service", { text, values })).map(accountOf);
    },

    async journal(account, { afterSeq, limit }) {
      const { sql, values } = conditions()
        .and("account = ?", account)
        .and("seq > ?", afterSeq ?? 0)
        .page("seq", limit);
      const text = `select ${journalTable.list()} from journal${sql}`;
      return (await findPage("history", { text, values })).map((cells) => journalTable.rowOf(cells));
    },

    async usage(query) {
      // A receipt's id leads to its row in the table itself.
      const { from, inOrder } =
        query.id === undefined ? dialect.receipts : { from: "usage as u", inOrder: "u" };
      const { sql, values } = usageConditions(conditions(), inOrder, query);
      const text = `select ${usageTable.list("u")} from ${from}${sql}`;
      return (await findPage("history", { text, values })).map((cells) => usageTable.rowOf(cells));
    },

    async holds({ account, after, limit }) {
      const { sql, values } = conditions()
        .and("account = ?", account)
        .and("(account, id) > (?, ?)", after?.account, after?.id)
        .page("account, id", limit);
      const text = `select ${holdTable.list()} from hold${sql}`;
      return (await findPage("lists", { text, values })).map((cells) => holdTable.rowOf(cells));
    },

    async holdTotals() {
      // Floating point: a sum of integers would fail beyond 63 bits.
      const micro = "cast(base + overage + additional + base_past + overage_past as double precision)";
      const text = `select count(*), coalesce(sum(${micro}), 0) from hold`;
      const [cells] = await find("service", { text, values: [] });
      return { holds: Number(cells?.[0]), micro: Number(cells?.[1]) };
    },

    async overdueHolds(atMs, limit) {
      const { sql, values } = conditions()
        .and(`expires_ms <= ${dialect.time}`, dialect.timeOf(atMs))
        .page("expires_ms, account, id", limit);
      const text = `select ${holdTable.list()} from hold${sql}`;
      return (await findPage("service", { text, values })).map((cells) => holdTable.rowOf(cells));
    },
  };
}

function usageConditions(conditions: Conditions, inOrder: string, query: UsageQuery): Conditions {
  const { account, id, key, model, fromMs, toMs, after } = query;
  conditions
    .and(`${inOrder}.account = ?`, account)
    .and("u.id = ?", id)
    .and("u.key = ?", key)
    // A key has one account, whose receipts are found by an index.
    .and(`${inOrder}.account = (select account from api_key where id = ?)`, key)
    .and("u.model = ?", model)
    .and("u.at_ms >= ?", fromMs)
    .and("u.at_ms < ?", toMs);
  // With a given account, a comparison of both columns would read the index from the account's
  // first receipt on.
  if (after?.account === account) conditions.and(`${inOrder}.seq > ?`, after?.seq);
  else conditions.and(`(${inOrder}.account, ${inOrder}.seq) > (?, ?)`, after?.account, after?.seq);
  return conditions.page(`${inOrder}.account, ${inOrder}.seq`, query.limit);
}

/** The conditions of one statement, joined by "and", and what follows them. */
class Conditions {
  readonly values: Value[] = [];
  readonly #parameter: SqlDialect["parameter"];
  #sql = "";

  constructor(parameter: SqlDialect["parameter"]) {
    this.#parameter = parameter;
  }

  get sql(): string {
    return this.#sql;
  }

  /** Each `?` is one of the operands. A condition without a first operand is left out. */
  and(condition: string, ...operands: (Value | undefined)[]): this {
    if (operands[0] === undefined) return this;
    let n = this.values.length;
    const numbered = condition.replaceAll("?", () => {
      n += 1;
      return this.#parameter(n);
    });
    this.#sql += `${this.#sql === "" ? " where" : " and"} ${numbered}`;
    this.values.push(...operands.map((operand) => operand ?? null));
    return this;
  }

  page(order: string, limit: number): this {
    invariant(
      Number.isInteger(limit) && limit >= 1 && limit <= pageRowsMax,
      `a page has 1 to ${pageRowsMax} rows`,
    );
    this.values.push(limit);
    this.#sql += ` order by ${order} limit ${this.#parameter(this.values.length)}`;
    return this;
  }
}
