/**
 * The statements of journals and of an account's payments.
 *
 * A journal lists all facts of an account: its journal entries, and its charges as entries of the
 * kind `charge`. Guarantees that a page reads rows in proportion to its length, by the primary
 * keys of both tables. A page of rare kinds reads more.
 */
import { invariant } from "../errors.ts";
import { pageSize } from "./conditions.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import type { JournalQuery, ListedEntry, ListedPayment, PaymentsQuery } from "./store.ts";
import type { Value } from "./table.ts";
import { journalTable } from "./tables.ts";

type Parameter = SqlDialect["parameter"];

/** The columns of `journalTable`, of a charge. */
const chargeAsEntry = `account, seq, at_ms, 'charge' as kind, cast(null as text) as op, coalesce(by, 'service') as by,
  cast(null as text) as bucket, 0 - base - overage - additional as amount, cast(null as bigint) as grant_seq,
  id as subject, cast(null as text) as before, cast(null as text) as after, cast(null as text) as outcome`;

export function journalSql(account: string, query: JournalQuery, p: Parameter): SqlStatement {
  const { kinds, newestFirst = false, afterSeq, limit } = query;
  invariant(kinds === undefined || kinds.length > 0, "a journal is asked for some kinds");
  const values: Value[] = [account, pageSize(limit)];
  const bound = (value: Value) => p(values.push(value));
  const after = afterSeq === undefined ? "" : ` and seq ${newestFirst ? "<" : ">"} ${bound(afterSeq)}`;
  const order = ` order by seq ${newestFirst ? "desc" : "asc"} limit ${p(2)}`;
  const columns = journalTable.list();
  const page = (from: string, condition = "") =>
    `select ${from} where account = ${p(1)}${condition}${after}${order}`;
  const entries = kinds?.filter((kind) => kind !== "charge");
  const parts: string[] = [];
  if (entries === undefined) parts.push(page(`${columns} from journal`));
  else if (entries.length > 0)
    parts.push(page(`${columns} from journal`, ` and kind in (${entries.map(bound).join(", ")})`));
  if (kinds === undefined || kinds.includes("charge")) parts.push(page(`${chargeAsEntry} from charge`));
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return { text: only, values };
  const both = parts.map((part, n) => `select ${columns} from (${part}) k${n}`);
  return { text: `${both.join(" union all ")}${order}`, values };
}

export function journalEntryOf(cells: readonly unknown[]): ListedEntry {
  const kindAt = journalTable.columns.findIndex(({ field }) => field === "kind");
  if (cells[kindAt] !== "charge") return journalTable.rowOf(cells);
  const entry = journalTable.rowOf(cells.with(kindAt, "open"));
  return { ...entry, kind: "charge" };
}

const paymentColumns = `p.payment, p.account, p.amount, coalesce((
    select 0 - sum(r.amount) from journal r
    where r.account = p.account and r.grant_seq = p.seq and r.kind = 'refund'
  ), 0), p.seq, p.from_ms`;

/** Payments `p`, with what was refunded of each. */
export const selectPayments = `select ${paymentColumns} from credit_grant p`;

/** An expression: what is left of payment `p`. Nothing is left of a closed grant. */
function leftOfPayment(items: SqlDialect["items"]): string {
  const cell = (n: number) => `cast(e.value ->> ${n} as bigint)`;
  return `coalesce((
      select ${cell(1)} - ${cell(2)} from account a cross join ${items("a.additional")}
      where a.id = p.account and ${cell(0)} = p.seq
    ), (
      select g.amount - g.spent from later_grant g where g.account = p.account and g.seq = p.seq
    ), 0)`;
}

export function paymentsSql(
  account: string,
  { afterSeq, limit }: PaymentsQuery,
  { parameter: p, items }: SqlDialect,
): SqlStatement {
  const after = afterSeq === undefined ? "" : ` and p.seq < ${p(3)}`;
  const text = `
    select ${paymentColumns}, ${leftOfPayment(items)} from credit_grant p
    where p.account = ${p(1)} and p.payment is not null${after}
    order by p.seq desc limit ${p(2)}`;
  return { text, values: [account, pageSize(limit), ...(afterSeq === undefined ? [] : [afterSeq])] };
}

/** Returns the payment of a row of `selectPayments`. */
export function paymentOf([id, account, ...numbers]: readonly unknown[]): Omit<ListedPayment, "spentMicro"> {
  const [amount = 0, refunded = 0, seq = 0, atMs = 0] = numbers.map(Number);
  return {
    id: String(id),
    account: String(account),
    amountMicro: amount,
    refundedMicro: refunded,
    seq,
    atMs,
  };
}

/** Returns the payment of a row of `paymentsSql`. */
export function listedPaymentOf(cells: readonly unknown[]): ListedPayment {
  const payment = paymentOf(cells);
  return { ...payment, spentMicro: payment.amountMicro - payment.refundedMicro - Number(cells.at(-1)) };
}
