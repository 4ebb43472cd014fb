/**
 * Where the receipts of a key, a model or a period stand in the journal of their account.
 *
 * `receipt_span` has the first and the last journal number of each day, key and model. The steps
 * that sum charges write it. A list with such a filter reads the spans that can contain its
 * receipts, and not all receipts of the account. The audit checks that each receipt is in its
 * span.
 */
import { Conditions } from "./conditions.ts";
import type { UsageQuery } from "./store.ts";
import { dayMs } from "./usage-sums.ts";

/** Journal numbers, both included. */
export interface Span {
  first: number;
  last: number;
}

/** Spans that are as near are read as one. */
const gapMax = 200;

const dayOfReceipt = `c.at_ms / ${dayMs}`;

/** Parameters: charges after 1, up to 2. */
export function addSpans(parameter: (n: number) => string): string {
  const [after, through] = [1, 2].map(parameter);
  return `
    insert into receipt_span (account, key, model, day, first_seq, last_seq)
    select c.account, c.key, c.model, ${dayOfReceipt}, min(c.seq), max(c.seq)
    from charge c where c.rowid > ${after} and c.rowid <= ${through}
    group by 1, 2, 3, 4
    on conflict (account, key, model, day) do update set
      first_seq = case when excluded.first_seq < receipt_span.first_seq
        then excluded.first_seq else receipt_span.first_seq end,
      last_seq = case when excluded.last_seq > receipt_span.last_seq
        then excluded.last_seq else receipt_span.last_seq end`;
}

/** Reports whether a list has one account and a filter that spans know. */
export function hasSpans({ account, id, key, model, fromMs, toMs, after }: UsageQuery): boolean {
  if (id !== undefined || (account === undefined && key === undefined)) return false;
  if (after !== undefined && after.account !== account) return false;
  return [key, model, fromMs, toMs].some((filter) => filter !== undefined);
}

/** One statement, so that each receipt of its moment is in a span or has not been summed. */
export function spansSql(query: UsageQuery, parameter: (n: number) => string) {
  const { account, key, model, fromMs, toMs } = query;
  const dayAt = (ms: number | undefined) => ms && Math.floor(ms / dayMs);
  const part = (from: string, select: string, day: string, before?: Conditions) => {
    const conditions = new Conditions(parameter);
    if (before !== undefined) conditions.values.push(...before.values);
    conditions
      .and("account = ?", account)
      .and("key = ?", key)
      // A key has one account.
      .and("account = (select account from api_key where id = ?)", key)
      .and("model = ?", model)
      .and(`${day} >= ?`, dayAt(fromMs))
      .and(`${day} <= ?`, dayAt(toMs));
    if (before !== undefined) conditions.always("rowid > (select through from usage_summed)");
    return { conditions, text: `select ${select} from ${from}${conditions.sql}` };
  };
  const summed = part("receipt_span", "min(first_seq), max(last_seq)", "day");
  const unsummed = part("charge c", "seq, seq", dayOfReceipt, summed.conditions);
  return {
    text: `${summed.text} group by day union all ${unsummed.text}`,
    values: unsummed.conditions.values,
  };
}

/** Returns spans in the order of the list, without those before its page. */
export function spansToRead(spans: readonly Span[], { after, newestFirst = false }: UsageQuery): Span[] {
  const isLeft = ({ first, last }: Span) =>
    after === undefined || (newestFirst ? first < after.seq : last > after.seq);
  const left = spans.filter(isLeft).toSorted((one, other) => one.first - other.first);
  const joined: Span[] = [];
  for (const { first, last } of left) {
    const before = joined.at(-1);
    if (before === undefined || first > before.last + gapMax) joined.push({ first, last });
    else before.last = Math.max(before.last, last);
  }
  return newestFirst ? joined.toReversed() : joined;
}
