/**
 * Finds the parts of an account's journal that have the receipts of a key, a model or a period.
 *
 * The sums of charges (usage-steps.ts) have the first and the last journal number of each day, key
 * and model. A list with such a filter reads the spans that can contain its receipts, and not all
 * receipts of the account.
 */

import { dayMs } from "../units.ts";
import { Conditions } from "./conditions.ts";
import type { UsageQuery } from "./store.ts";
import { dayMax } from "./usage-days.ts";
import { hidden } from "./usage-measures.ts";

/** Journal numbers, both included. */
export interface Span {
  first: number;
  last: number;
}

/** Spans that are as near are read as one. */
const gapMax = 200;

/** Days that are read before and after the filter's in UTC: days of the sums are in any zone. */
const daysAround = 1;

/** Reports whether a list has one account and a filter that spans know. */
export function hasSpans({ account, id, key, model, fromMs, toMs, after }: UsageQuery): boolean {
  if (id !== undefined || account === undefined) return false;
  if (after !== undefined && after.account !== account) return false;
  return [key, model, fromMs, toMs].some((filter) => filter !== undefined);
}

/** One statement, so that each receipt of its moment is in a span or has not been summed. */
export function spansSql(query: UsageQuery, parameter: (n: number) => string) {
  const { account, key, model, fromMs, toMs } = query;
  const dayAt = (ms: number | undefined, later: number) =>
    ms === undefined ? undefined : Math.floor(ms / dayMs) + later;
  const part = (from: string, select: string, accountOf: string, before?: Conditions) => {
    const conditions = new Conditions(parameter);
    if (before !== undefined) conditions.values.push(...before.values);
    conditions.and(`${accountOf} = ?`, account).and("key = ?", key).and("model = ?", model);
    if (before !== undefined) conditions.always("rowid > (select through from usage_summed)");
    return { conditions, text: `select ${select} from ${from}` };
  };
  const summed = part("usage_sum", "min(first_seq), max(last_seq)", "account");
  summed.conditions
    .always(`${hidden("unit")} = 'day'`)
    .and("period >= ?", dayAt(fromMs, -daysAround))
    .and("period <= ?", dayAt(toMs, daysAround) ?? dayMax);
  const unsummed = part("charge c", "seq, seq", hidden("account"), summed.conditions);
  unsummed.conditions.and("at_ms >= ?", fromMs).and("at_ms < ?", toMs);
  return {
    text: `${summed.text}${summed.conditions.sql} group by period
      union all ${unsummed.text}${unsummed.conditions.sql}`,
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
