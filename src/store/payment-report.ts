/**
 * The changes of payments in a period, computed from their grants, charges and refunds alone.
 *
 * Guarantees that the credits left at the end are those left at the beginning and added in the
 * period, less those spent and refunded in it. Every charge counts at its own time. Held credits
 * count as left.
 */

import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";
import { numberIn } from "./account-rows.ts";
import type { SqlDialect, SqlStatement } from "./sql.ts";
import { tableOf } from "./table.ts";

export interface PaymentPeriodQuery {
  fromMs: EpochMs;
  /** The first moment after the period. */
  toMs: EpochMs;
  /** Payments after this one, in the order of their ids. */
  after?: string | undefined;
  limit: number;
}

/** A payment that was made before the end of the period. */
const periodColumns = {
  id: "text",
  account: "text",
  atMs: "ms",
  amountMicro: "micro",
  /** Before the period. */
  spentBeforeMicro: "micro",
  refundedBeforeMicro: "micro",
  /** In the period. */
  spentMicro: "micro",
  refundedMicro: "micro",
} as const satisfies Columns;
export interface PaymentPeriod extends RowOf<typeof periodColumns> {}
const periodTable = tableOf("payment in a period", periodColumns);

/** Charges of the accounts of a page are read once. */
export function paymentPeriodsSql(
  { fromMs, toMs, after = "", limit }: PaymentPeriodQuery,
  { parameter: p, items }: SqlDialect,
): SqlStatement {
  const amountIf = (amount: string, condition: string) =>
    `coalesce(sum(case when ${condition} then ${amount} else 0 end), 0)`;
  const [before, within] = [`at_ms < ${p(1)}`, `at_ms >= ${p(1)}`];
  const text = `
    with page as (
      select account, seq, payment, amount, from_ms from credit_grant
      where payment is not null and payment > ${p(3)} and from_ms < ${p(2)}
      order by payment limit ${p(4)}
    ),
    paid as (
      select c.account, c.at_ms, cast(e.value ->> 0 as bigint) as seq, cast(e.value ->> 2 as bigint) as amount
      from charge c cross join ${items("c.paid")}
      where c.account in (select account from page) and c.additional > 0 and c.at_ms < ${p(2)}
    ),
    spent as (
      select account, seq, ${amountIf("amount", before)} as before, ${amountIf("amount", within)} as within
      from paid group by account, seq
    ),
    refunded as (
      select account, grant_seq, ${amountIf("0 - amount", before)} as before, ${amountIf("0 - amount", within)} as within
      from journal
      where account in (select account from page) and kind = 'refund' and at_ms < ${p(2)}
      group by account, grant_seq
    )
    select g.payment, g.account, g.from_ms, g.amount, coalesce(s.before, 0), coalesce(r.before, 0),
      coalesce(s.within, 0), coalesce(r.within, 0)
    from page g
    left join spent s on s.account = g.account and s.seq = g.seq
    left join refunded r on r.account = g.account and r.grant_seq = g.seq
    order by g.payment`;
  return { text, values: [fromMs, toMs, after, limit] };
}

/** Returns the payment of a row of `paymentPeriodsSql`. */
export function paymentPeriodOf(cells: readonly unknown[]): PaymentPeriod {
  return periodTable.rowOf(cells.map(numberIn));
}
