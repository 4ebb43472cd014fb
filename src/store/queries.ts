/**
 * The reads outside the ledger's commits: each statement once, for both stores.
 *
 * Guarantees that lists have at most `pageRowsMax` rows and a fixed order. The stores differ in
 * how they connect (`SqlConnections`) and in a few words of SQL (`SqlDialect`).
 */

import { issuerOfFrontEnd } from "../actors.ts";
import { messageOf } from "../errors.ts";
import { planAt } from "../ledger/entitlement.ts";
import { newestVersion, planProblem } from "../ledger/plan.ts";
import type { EpochMs } from "../units.ts";
import { accountsSql, contactIn, isPlainList, listedAccountOf } from "./account-lists.ts";
import { accountsBehind, type OfFrontEnd } from "./accounts-of-key.ts";
import { Conditions } from "./conditions.ts";
import { findingOf, findingsSql } from "./findings.ts";
import { journalEntryOf, journalSql, listedPaymentOf, paymentsSql } from "./journal.ts";
import type { KeptPlans } from "./kept-plans.ts";
import { paymentPeriodOf, paymentPeriodsSql } from "./payment-report.ts";
import { accountsOnPlansOf, countAccounts, readMark } from "./plans.ts";
import { hasSpans, type Span, spansSql, spansToRead } from "./receipt-spans.ts";
import { parametersOf, type SqlDialect, type SqlStatement } from "./sql.ts";
import type { FoundKey, Receipt, Store, UsageQuery } from "./store.ts";
import {
  accountStandingTable,
  accountTable,
  chargeTable,
  contactTable,
  holdTable,
  keyTable,
} from "./tables.ts";
import { usageHourOf, usageHoursSql } from "./usage-hours.ts";
import { readUsageState, usageStateOf } from "./usage-steps.ts";
import { usageSumsOf, usageSumsSql } from "./usage-sums.ts";

/**
 * The purpose of a statement. Slow purposes have their own connections, so that others do not wait
 * for them: `lookups` of a request, single rows for the `service` and its operators, `lists`, and
 * the `history` of receipts and journal entries.
 */
export type Purpose = "lookups" | "service" | "lists" | "history";

export interface SqlConnections {
  /** Finds rows. Returns none if a value is text that the database cannot contain. */
  find(purpose: Purpose, statement: SqlStatement): Promise<readonly (readonly unknown[])[]>;
  /** Finds rows like `find`. Rejects with a `ListTooSlowError` at the time limit for lists. */
  findPage(purpose: Purpose, statement: SqlStatement): Promise<readonly (readonly unknown[])[]>;
  /** Writes in one transaction, and returns what the first statement after the locks returns. */
  write(...statements: SqlStatement[]): Promise<readonly (readonly unknown[])[]>;
}

type Queries = Pick<
  Store,
  | "plans"
  | "accountsOnPlans"
  | "findKey"
  | "findKeys"
  | "keyById"
  | "frontEnds"
  | "keys"
  | "keysAfter"
  | "accountMark"
  | "accounts"
  | "find"
  | "contact"
  | "journal"
  | "payments"
  | "paymentPeriods"
  | "usage"
  | "usageSums"
  | "usageHours"
  | "holds"
  | "holdTotals"
  | "overdueHolds"
  | "dueAccounts"
>;

/** The cells that `accountIn` reads, of an account with the alias `a`. */
export const accountCells = `${accountStandingTable.list("a")}, a.base_until_ms, (${readMark})`;

const keyOfAccount = `select ${keyTable.list("k")}, ${accountCells}
  from api_key as k left join account as a on a.id = k.account`;

/** Finds keys by their present or old secret. `matches` compares a hash, such as `= ?`. */
export function keysByHash(matches: string): string {
  return `${keyOfAccount} where k.hash ${matches} or k.old_hash ${matches}`;
}

/** The plans and the ledger time by which an account is read. */
interface LookupContext {
  plans: KeptPlans;
  atMs: EpochMs;
}

/** Returns the key of a row of `keysByHash`. */
export async function foundKeyOf(cells: readonly unknown[], context: LookupContext): Promise<FoundKey> {
  return { key: keyTable.rowOf(cells), ...(await accountIn(cells, keyTable.columns.length, context)) };
}

/**
 * Returns the account whose `accountCells` are the last ones, from this number on, on the plan
 * that it has at this time.
 */
export async function accountIn(
  cells: readonly unknown[],
  from: number,
  { plans, atMs }: LookupContext,
): Promise<Omit<FoundKey, "key">> {
  const without = (problem: string): Omit<FoundKey, "key"> => {
    return { account: { state: "closed", endsMs: null }, plan: null, problem };
  };
  if (cells[from] === null) return without("it has no row");
  let standing: ReturnType<typeof accountStandingTable.rowOf>;
  try {
    standing = accountStandingTable.rowOf(cells, from);
  } catch (error) {
    return without(messageOf(error));
  }
  const { state, endsMs } = standing;
  const untilMs = cells.at(-2);
  const base = untilMs === null ? null : { untilMs: Number(untilMs) };
  const name = planAt({ ...standing, base }, atMs);
  const mark = Number(cells.at(-1));
  const catalog = plans.known(mark) ?? (await plans.at(mark));
  const plan = newestVersion(catalog, name) ?? null;
  return { account: { state, endsMs }, plan, problem: planProblem(catalog, name, null) };
}

export function queriesOn(
  { find, findPage }: SqlConnections,
  dialect: SqlDialect,
  plans: KeptPlans,
): Queries {
  const p = dialect.parameter;
  const findKey = keysByHash(`= ${p(1)}`);
  const conditions = () => new Conditions(p);
  const found = (cells: readonly unknown[]) => foundKeyOf(cells, { plans, atMs: dialect.ledgerMs() });

  /** Fills in the account, or the front end, of a query that has only a key. */
  async function ofKey<Query extends { account?: string | undefined; key?: string | undefined }>(
    query: Query,
  ): Promise<Query & OfFrontEnd> {
    if (query.account !== undefined || query.key === undefined) return query;
    const text = `select account, acts_for_name from api_key where id = ${p(1)}`;
    const [cells] = await find("service", { name: "account of key", text, values: [query.key] });
    const [account, frontEnd] = cells ?? [""];
    if (typeof frontEnd === "string") return { ...query, frontEnd: issuerOfFrontEnd(frontEnd) };
    return { ...query, account: String(account) };
  }

  async function receipts(query: UsageQuery & OfFrontEnd, span?: Span): Promise<Receipt[]> {
    const { sql, values } = usageConditions(conditions(), { ...query, span });
    const text = `select ${chargeTable.list("u")}, ${memosOfReceipt} from charge as u${sql}`;
    const rows = await findPage("history", { text, values });
    return rows.map((cells) => ({ ...chargeTable.rowOf(cells), memoMicro: Number(cells.at(-1)) }));
  }

  return {
    /** The lookup that every request begins with. */
    async findKey(hash) {
      const [cells] = await find("lookups", { name: "find key", text: findKey, values: [hash] });
      return cells === undefined ? null : await found(cells);
    },

    async findKeys(hashes) {
      if (hashes.length === 0) return [];
      const text = `${keyOfAccount} where k.hash in (${parametersOf(hashes, p)})`;
      const rows = await find("lookups", { text, values: hashes });
      return await Promise.all(rows.map(found));
    },

    async accountMark(account, atMs) {
      const text = `select (select sum(metered_tokens) from hold where account = a.id),
        ${accountTable.list("a")} from account as a where a.id = ${p(1)}`;
      const [cells] = await find("service", { text, values: [account] });
      return cells === undefined ? null : [Math.floor(atMs / 60_000), ...cells].join(" ");
    },

    /** Not retried like the lookups of requests, so that nobody waits for it. */
    async plans() {
      const [cells] = await find("service", { text: readMark, values: [] });
      return await plans.at(Number(cells?.[0]));
    },

    async accountsOnPlans() {
      return accountsOnPlansOf(await find("lists", { text: countAccounts, values: [] }));
    },

    async keyById(id) {
      const text = `select ${keyTable.list()} from api_key where id = ${p(1)}`;
      const [cells] = await find("service", { text, values: [id] });
      return cells === undefined ? null : keyTable.rowOf(cells);
    },

    async frontEnds() {
      const text = "select distinct acts_for_name from api_key where acts_for_name is not null order by 1";
      const rows = await find("service", { text, values: [] });
      return rows.map(([name]) => String(name));
    },

    async keys(account) {
      const text = `select ${keyTable.list()} from api_key where account = ${p(1)} order by created_ms, id`;
      return (await find("lists", { text, values: [account] })).map((cells) => keyTable.rowOf(cells));
    },

    async keysAfter(key, limit, account) {
      const after = conditions()
        .and("account = ?", account)
        .and("(created_ms, id) > (?, ?)", key?.createdMs, key?.id);
      const { sql, values } = after.page("created_ms, id", limit);
      const text = `select ${keyTable.list()} from api_key${sql}`;
      return (await findPage("lists", { text, values })).map((cells) => keyTable.rowOf(cells));
    },

    async accounts(query) {
      const purpose = isPlainList(query) ? "service" : "lists";
      const statement = accountsSql(query, dialect);
      return (await findPage(purpose, statement)).map(listedAccountOf);
    },

    async find(query) {
      return (await findPage("lists", findingsSql(query, dialect))).map(findingOf);
    },

    async contact(account) {
      const text = `select ${contactTable.list("c")} from account as a
        left join account_contact as c on c.account = a.id where a.id = ${p(1)}`;
      const [cells] = await find("service", { text, values: [account] });
      return cells === undefined ? null : contactIn(cells);
    },

    async journal(account, query) {
      return (await findPage("history", journalSql(account, query, p))).map(journalEntryOf);
    },

    async payments(account, query) {
      return (await findPage("history", paymentsSql(account, query, dialect))).map(listedPaymentOf);
    },

    async paymentPeriods(query) {
      return (await findPage("history", paymentPeriodsSql(query, dialect))).map(paymentPeriodOf);
    },

    async usage(asked) {
      const query = await ofKey(asked);
      if (!hasSpans(query)) return await receipts(query);
      const found = await findPage("history", spansSql(query, p));
      const spans = found.map(([first, last]) => ({ first: Number(first), last: Number(last) }));
      const rows: Receipt[] = [];
      for (const span of spansToRead(spans, query)) {
        rows.push(...(await receipts({ ...query, limit: query.limit - rows.length }, span)));
        if (rows.length === query.limit) break;
      }
      return rows;
    },

    async usageSums(query) {
      // Read first: a day that is final at this time is as final in the sums.
      const [cells] = await find("service", { text: readUsageState, values: [] });
      const state = usageStateOf(cells);
      const statement = usageSumsSql(await ofKey(query), { state, nowMs: dialect.ledgerMs() }, p);
      return usageSumsOf(state, await findPage("history", statement));
    },

    async usageHours(query) {
      return (await findPage("history", usageHoursSql(await ofKey(query), p))).map(usageHourOf);
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
      const micro = "cast(e.value ->> 2 as double precision)";
      const text = `
        select (select count(*) from hold), coalesce(sum(${micro}), 0)
        from hold h cross join ${dialect.items("h.takings")}`;
      const [cells] = await find("service", { text, values: [] });
      return { holds: Number(cells?.[0]), heldMicro: Number(cells?.[1]) };
    },

    async overdueHolds(atMs, { after, limit }) {
      const { sql, values } = conditions()
        .and("expires_ms <= ?", atMs)
        .and("(expires_ms, account, id) > (?, ?, ?)", after?.expiresMs, after?.account, after?.id)
        .page("expires_ms, account, id", limit);
      const text = `select ${holdTable.list()} from hold${sql}`;
      return (await findPage("service", { text, values })).map((cells) => holdTable.rowOf(cells));
    },

    async dueAccounts(atMs, { after, limit }) {
      // Each part reads an index of its own.
      const due = `id in (select id from account where next_plan is not null and base_until_ms <= ?
        union all select id from account where ends_ms <= ? and state <> 'closed')`;
      const { sql, values } = conditions().and(due, atMs, atMs).and("id > ?", after).page("id", limit);
      const rows = await findPage("service", { text: `select id from account${sql}`, values });
      return rows.map(([id]) => String(id));
    },
  };
}

/** An expression: the memos that name the request of charge `u`. */
const memosOfReceipt = `case when u.late then 0 else coalesce((
    select sum(g.amount) from credit_grant g where g.request_id = u.id and g.account = u.account
  ), 0) end`;

function usageConditions(
  conditions: Conditions,
  query: UsageQuery & OfFrontEnd & { span: Span | undefined },
): Conditions {
  const { account, id, key, model, fromMs, toMs, newestFirst = false, after, span, frontEnd } = query;
  conditions
    .and(`u.account = ?`, account)
    .and("u.id = ?", id)
    .and("u.key = ?", key)
    .and(`u.account in ${accountsBehind("?")}`, frontEnd)
    .and("u.model = ?", model)
    .and(`u.at_ms >= ?`, fromMs)
    .and(`u.at_ms < ?`, toMs)
    .and(`u.seq >= ?`, span?.first)
    .and(`u.seq <= ?`, span?.last);
  const [beyond, direction] = newestFirst ? ["<", "desc"] : [">", "asc"];
  // With a given account, a comparison of both columns would read the index from the account's
  // first receipt on.
  if (after?.account === account) conditions.and(`u.seq ${beyond} ?`, after?.seq);
  else conditions.and(`(u.account, u.seq) ${beyond} (?, ?)`, after?.account, after?.seq);
  return conditions.page(`u.account ${direction}, u.seq ${direction}`, query.limit);
}
