/**
 * The statements of journals and of an account's payments.
 *
 * Guarantees that a page reads rows in proportion to its length: by the primary key, or by a seek
 * for each kind in an index. Entries of the two most frequent kinds are in no index by kind, so
 * that a request writes none. So a page of settlements reads more if nearly all holds were voided.
 */
import { invariant } from "../errors.ts";
import type { JournalKind, JournalRow } from "../ledger/rows.ts";
import { pageSize } from "./conditions.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import type { JournalQuery, ListedPayment, PaymentsQuery } from "./store.ts";
import type { Value } from "./table.ts";
import { journalTable } from "./tables.ts";

type Parameter = SqlDialect["parameter"];

const notIndexed: readonly JournalKind[] = ["hold", "settle"];
/** The condition of the index `journal_by_kind`. It has literals, as in the index. */
const isIndexed = `kind not in (${notIndexed.map((kind) => `'${kind}'`).join(", ")})`;

export function journalSql(account: string, query: JournalQuery, p: Parameter): SqlStatement {
  const { kinds, newestFirst = false, afterSeq, limit } = query;
  invariant(kinds === undefined || kinds.length > 0, "a journal is asked for some kinds");
  const values: Value[] = [account, pageSize(limit)];
  const bound = (value: Value) => p(values.push(value));
  const after = afterSeq === undefined ? "" : ` and seq ${newestFirst ? "<" : ">"} ${bound(afterSeq)}`;
  const order = ` order by seq ${newestFirst ? "desc" : "asc"} limit ${p(2)}`;
  const columns = journalTable.list();
  const pageOf = (condition: string) =>
    `select ${columns} from journal where account = ${p(1)}${condition}${after}${order}`;
  if (kinds === undefined) return { text: pageOf(""), values };
  if (kinds.some((kind) => notIndexed.includes(kind))) {
    return { text: pageOf(` and kind in (${kinds.map(bound).join(", ")})`), values };
  }
  const seeks = kinds.map((kind) => pageOf(` and kind = ${bound(kind)} and ${isIndexed}`));
  const [only] = seeks;
  if (only !== undefined && seeks.length === 1) return { text: only, values };
  const parts = seeks.map((seek, n) => `select ${columns} from (${seek}) k${n}`);
  return { text: `${parts.join(" union all ")}${order}`, values };
}

export function journalEntryOf(cells: readonly unknown[]): JournalRow {
  return journalTable.rowOf(cells);
}

export function paymentsSql(account: string, { afterSeq, limit }: PaymentsQuery, p: Parameter): SqlStatement {
  const after = afterSeq === undefined ? "" : ` and p.seq < ${p(3)}`;
  const text = `select p.ref, p.account, p.amount, coalesce((
      select 0 - sum(r.amount) from credit_grant r where r.payment = p.ref and r.cause = 'refund'
    ), 0), p.seq, p.at_ms
    from credit_grant p where p.account = ${p(1)} and p.cause = 'payment'${after}
    order by p.seq desc limit ${p(2)}`;
  return { text, values: [account, pageSize(limit), ...(afterSeq === undefined ? [] : [afterSeq])] };
}

/** Returns the payment of a row of `paymentsSql`. */
export function listedPaymentOf(cells: readonly unknown[]): ListedPayment {
  const [id, account, amount, refunded, seq, atMs] = cells;
  return {
    id: String(id),
    account: String(account),
    amount: Number(amount),
    refunded: Number(refunded),
    seq: Number(seq),
    atMs: Number(atMs),
  };
}
