/**
 * The list of accounts: searched, filtered and in one of several orders, for both stores.
 *
 * Searches by prefix, and the orders by id, time and plan, read an index. Credits change with each
 * request, so they have no index: their order and filter read all accounts
 * (docs/decisions/0048-lists-of-accounts.md). A window that has ended counts as full by the
 * newest version of its plan; a job commits scheduled plans.
 */
import { lowBalancePercent } from "../ledger/balance.ts";
import { microPerCredit } from "../units.ts";
import { accountRowIn } from "./account-rows.ts";
import { Conditions } from "./conditions.ts";
import { type AccountInOrder, type Contact, noContact } from "./contacts.ts";
import { beginsWith, hasWords } from "./findings.ts";
import { hasNotCome, inLowerCase, type SqlDialect, type SqlStatement } from "./sql.ts";
import type { AccountOrder, AccountsQuery } from "./store.ts";
import { accountTable, contactTable } from "./tables.ts";

const now = "(select now_ms from clock)";
const hasClosed = `(a.state = 'closed' or coalesce(a.ends_ms <= ${now}, false))`;

/** The value of a window: of the row, or of a new window of the plan if it has ended. */
function ofWindow(bucket: "base" | "overage", inWindow: string): string {
  const granted = `coalesce((select v.${bucket}_credits from plan_version v
    where v.plan = a.plan order by v.version desc limit 1), 0) * ${microPerCredit}`;
  return `case when ${hasClosed} then 0 when a.${bucket}_until_ms <= ${now} then ${granted} else ${inWindow} end`;
}

function leftIn(bucket: "base" | "overage"): string {
  const left = `a.${bucket}_amount - a.${bucket}_spent`;
  return ofWindow(bucket, `case when ${left} > 0 then ${left} else 0 end`);
}

/** What is left of the additional grants that have not ended, in the row and beside it. */
function additional({ items }: SqlDialect): string {
  const isOpen = (until: string) => `(${until} is null or cast(${until} as bigint) > ${now})`;
  return `(coalesce((
      select sum(cast(e.value ->> 1 as bigint) - cast(e.value ->> 2 as bigint))
      from ${items("a.additional")} where ${isOpen("(e.value ->> 5)")}
    ), 0) + case when a.later_count = 0 then 0 else coalesce((
      select sum(g.amount - g.spent) from later_grant g where g.account = a.id and ${isOpen("g.until_ms")}
    ), 0) end)`;
}

function remaining(dialect: SqlDialect): string {
  return `(${leftIn("base")} + ${leftIn("overage")} + ${additional(dialect)})`;
}

const granted = `(${ofWindow("base", "a.base_amount")} + ${ofWindow("overage", "a.overage_amount")})`;

function lowBalanceSql(dialect: SqlDialect): string {
  const left = remaining(dialect);
  return `(not ${hasClosed} and (${left} < ${microPerCredit}
    or ${left} * ${100 / lowBalancePercent} < ${granted}))`;
}

function orderOf(order: AccountOrder, dialect: SqlDialect): string {
  switch (order) {
    case "id":
      return "a.id";
    case "created":
      return "a.created_ms";
    case "plan":
      return "a.plan";
    case "additional":
      return additional(dialect);
    case "remaining":
      return remaining(dialect);
  }
}

/** Whether a list has no filter but the place where it continues, and the order of the ids. */
export function isPlainList({ after: _after, limit: _limit, ...rest }: AccountsQuery): boolean {
  return Object.values(rest).every((value) => value === undefined);
}

export function accountsSql(query: AccountsQuery, dialect: SqlDialect): SqlStatement {
  const { order = "id", descending = false, after, limit } = query;
  const conditions = new Conditions(dialect.parameter);
  const clock = conditions.bind("cast(? as bigint)", dialect.ledgerMs());
  const value = orderOf(order, dialect);
  const [beyond, direction] = descending ? ["<", "desc"] : [">", "asc"];
  if (order === "id") conditions.and(`a.id ${beyond} ?`, after);
  else conditions.and(`(${value}, a.id) ${beyond} (?, ?)`, query.afterValue, after);
  conditions.and("c.external_id = ?", query.externalId).and("a.plan = ?", query.plan);
  if (query.state !== undefined) {
    conditions.and(`case when ${hasClosed} then 'closed' else a.state end = ?`, query.state);
  }
  if (query.hasLowBalance === true) conditions.always(lowBalanceSql(dialect));
  if (query.hasNotCome === true)
    conditions.always(
      `not ${hasClosed} and exists (select 1 from invitation i where i.account = a.id and ${hasNotCome})`,
    );
  if (query.search !== undefined) search(conditions, query.search);
  const inOrder = order === "id" ? `a.id ${direction}` : `${value} ${direction}, a.id ${direction}`;
  const { sql, values } = conditions.page(inOrder, limit);
  const text = `with clock as (select ${clock} as now_ms)
    select ${accountTable.list("a")}, ${contactTable.list("c")}, ${value}
    from account as a left join account_contact as c on c.account = a.id${sql}`;
  return { text, values };
}

/** Ids have no capital letters. */
function search(conditions: Conditions, text: string): void {
  conditions.always(`a.id in (
    select id from account where ${beginsWith(conditions, "id", inLowerCase(text))}
    union all select account from account_contact where ${hasWords(conditions, text)})`);
}

/** Returns the row of `accountsSql`. */
export function listedAccountOf(cells: readonly unknown[]): AccountInOrder {
  const contact = contactIn(cells.slice(accountTable.columns.length));
  const value = cells.at(-1);
  const { row, problem } = accountRowIn(cells.slice(0, accountTable.columns.length));
  return { ...row, problem, contact, orderValue: typeof value === "string" ? value : Number(value) };
}

/** Without a row, all cells are null. */
export function contactIn(cells: readonly unknown[]): Contact {
  if (cells[0] === null) return noContact;
  const { account: _account, ...contact } = contactTable.rowOf(cells);
  return contact;
}
