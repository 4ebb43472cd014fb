/**
 * One search over accounts, people, keys, payments and requests: by the beginnings of their ids,
 * and of the words of their names. Each kind reads a few rows of an index of ids, and the words of
 * its own table; receipts are found by their ids alone (docs/decisions/0110-one-search.md).
 */
import { numberIn } from "./account-rows.ts";
import { Conditions, pageSize } from "./conditions.ts";
import { inLowerCase, type SqlDialect, type SqlStatement } from "./sql.ts";
import { type Finding, type FindingsQuery, findingColumns } from "./store.ts";
import { tableOf } from "./table.ts";
import { wordsIn } from "./words.ts";

/** Greater than every text that begins with the prefix it follows. */
const lastCharacter = "\u{10FFFF}";

/** A condition: the column begins with the text. */
export function beginsWith(conditions: Conditions, column: string, text: string): string {
  return conditions.bind(`${column} >= ? and ${column} < ?`, text, text + lastCharacter);
}

/**
 * A condition: each word of the text begins a word of the row. A text without words finds nothing.
 */
export function hasWords(conditions: Conditions, text: string): string {
  const found = wordsIn(text).map((word) => conditions.bind("words like ?", `% ${word}%`));
  return found.length === 0 ? "1 = 0" : found.join(" and ");
}

/** Returns an id as it is stored: the prefix may be missing. */
export function withPrefix(prefix: string, text: string): string {
  return text.startsWith(prefix) ? text : prefix + text;
}

export function findingsSql({ text, limit }: FindingsQuery, { parameter }: SqlDialect): SqlStatement {
  const conditions = new Conditions(parameter);
  const rows = pageSize(limit);
  const id = inLowerCase(text);
  const words = hasWords(conditions, text);
  const some = (table: string, column: string, condition: string, order = column) =>
    `select * from (
      select ${column} as id from ${table} where ${condition} order by ${order} limit ${rows}) as some_rows`;
  const begin = (column: string, beginning: string) => beginsWith(conditions, column, beginning);
  /** What begins with the text comes before what has its words. */
  const first = (...sources: string[]) => {
    const placed = sources.map((source, place) => `select id, ${place} as place from (${source}) as source`);
    return `(select id, min(place) as place from (${placed.join(" union all ")}) as placed
      group by id order by place, id limit ${rows}) as f`;
  };
  const accounts = first(some("account", "id", begin("id", id)), some("account_contact", "account", words));
  const people = first(
    some("person", "id", begin("id", withPrefix("person_", id))),
    some("person", "id", words),
  );
  const keys = first(
    some("api_key", "id", begin("id", text)),
    some("api_key", "id", begin("id", withPrefix("key_", id))),
    some("api_key", "id", words),
  );
  const isPayment = `payment is not null and ${begin("lower(payment)", id)}`;
  const payments = first(some("credit_grant", "payment", isPayment, "lower(payment)"));
  const isRequest = `${begin("id", id.replace(/^chatcmpl-/, ""))} and not late`;
  const requests = first(some("charge", "id", isRequest));
  const ownerOf = (account: string) => `left join account_contact as c on c.account = ${account}`;
  const none = "cast(null as text)";
  const noAmount = "cast(null as bigint)";
  const parts = [
    `'account', a.id, a.id, c.owner, c.email, c.external_id, ${noAmount}, a.created_ms, f.place
      from ${accounts} join account as a on a.id = f.id ${ownerOf("a.id")}`,
    `'person', p.id, p.account, p.name, p.email, ${none}, ${noAmount}, p.created_ms, f.place
      from ${people} join person as p on p.id = f.id`,
    `'key', k.id, k.account, k.name, ${none}, k.last_four, ${noAmount}, k.created_ms, f.place
      from ${keys} join api_key as k on k.id = f.id`,
    `'payment', g.payment, g.account, c.owner, ${none}, ${none}, g.amount, g.from_ms, f.place
      from ${payments} join credit_grant as g on g.payment = f.id ${ownerOf("g.account")}`,
    `'request', u.id, u.account, c.owner, ${none}, u.model, u.cost, u.at_ms, f.place
      from ${requests} join charge as u on u.id = f.id and not u.late ${ownerOf("u.account")}`,
  ];
  const all = parts.map((part, order) => `select ${order}, ${part}`).join(" union all ");
  return { text: `${all} order by 1, 10, 3`, values: conditions.values };
}

const findingTable = tableOf("finding", findingColumns);

/** Returns the row of `findingsSql`. */
export function findingOf(cells: readonly unknown[]): Finding {
  return findingTable.rowOf(cells.map(numberIn), 1);
}
