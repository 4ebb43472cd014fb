/**
 * The invariants of a ledger, as SQL. Each query selects the rows at fault, so it finds nothing in
 * a sound ledger.
 *
 * The SQL is standard and uses only functions that SQLite and PostgreSQL share. Every query is one
 * pass over a table or an index, with lookups by key. The audit does not use the kernel: it adds
 * up the rows.
 */
import type { EpochMs } from "../units.ts";

/** A row at fault, by column. Amounts beyond 2^53 are text. */
export type FaultyRow = Record<string, string | number | null>;

/** Converts a cell of a faulty row. */
export function faultyCell(cell: unknown): string | number | null {
  if (cell === null || typeof cell === "number") return cell;
  if (typeof cell === "bigint" && Number.isSafeInteger(Number(cell))) return Number(cell);
  return cell instanceof Uint8Array ? Buffer.from(cell).toString("hex") : String(cell);
}

export interface Broken {
  /** The name of the invariant: a sentence that should be true. */
  invariant: string;
  /** The first rows at fault, at most `faultyRowsMax`. */
  rows: FaultyRow[];
}

export interface AuditReport {
  /** The start of the audit. The state that it checks is not older. */
  checkedMs: EpochMs;
  /** The number of journal entries at that time. */
  journalRows: number;
  /** Empty if the ledger is sound. */
  broken: Broken[];
}

/** Rows shown for each broken invariant. */
export const faultyRowsMax = 20;

/**
 * Returns one query for each invariant. Each query must see one state of the database, but not all
 * the same state.
 */
export function auditQueries(): { invariant: string; sql: string }[] {
  return Object.entries(invariants).map(([invariant, sql]) => ({
    invariant,
    sql: `${sql} limit ${faultyRowsMax}`,
  }));
}

const exactMax = 9_007_199_254_740_991;

/**
 * An expression that no index matches. To sort a few rows is faster than to read all of them in
 * index order.
 */
const unsorted = "account || '' as account";

/** The credits that the extensions of each hold took. */
const extensions = `
  select ${unsorted}, note, sum(base_delta) as base, sum(overage_delta) as overage, sum(additional_delta) as additional
  from journal where kind = 'extend' group by 1, 2`;

/** The queries by the names of their invariants. docs/ledger.md lists the names. */
export const invariants: Record<string, string> = {
  "the journal is the balance": `
    select a.id as account, a.base, a.overage, a.additional, j.base as journal_base,
      j.overage as journal_overage, j.additional as journal_additional
    from account a left join (
      select account, sum(base_delta) as base, sum(overage_delta) as overage, sum(additional_delta) as additional
      from journal group by account
    ) j on j.account = a.id
    where j.account is null or a.base <> j.base or a.overage <> j.overage or a.additional <> j.additional`,

  "the journal is numbered without gaps": `
    select a.id as account, a.seq, j.first, j.last, j.entries
    from account a left join (
      select account, min(seq) as first, max(seq) as last, count(*) as entries from journal group by account
    ) j on j.account = a.id
    where j.account is null or j.first <> 1 or j.last <> j.entries or a.seq <> j.last`,

  "each journal entry follows from the one before": `
    select j.account, j.seq, j.op, p.base_after as base_before, j.base_delta, j.base_after,
      p.overage_after as overage_before, j.overage_delta, j.overage_after,
      p.additional_after as additional_before, j.additional_delta, j.additional_after
    from journal j left join journal p on p.account = j.account and p.seq = j.seq - 1
    where j.base_after - j.base_delta <> coalesce(p.base_after, 0)
      or j.overage_after - j.overage_delta <> coalesce(p.overage_after, 0)
      or j.additional_after - j.additional_delta <> coalesce(p.additional_after, 0)`,

  "each kind of journal entry moves only what it may": `
    select account, seq, kind, op, base_delta, overage_delta, additional_delta from journal
    where kind in ('hold', 'extend') and (base_delta > 0 or overage_delta > 0 or additional_delta > 0)
      or kind in ('open', 'refresh', 'plan') and additional_delta <> 0
      or kind in ('open', 'plan') and (base_delta < 0 or overage_delta < 0)
      or kind in ('topup', 'adjust') and (base_delta <> 0 or overage_delta <> 0)
      or kind = 'topup' and additional_delta <= 0`,

  "every operation stands once": `
    select account, op, count(*) as times from journal group by op, account having count(*) > 1`,

  "every hold is open or has ended, and not both": `
    select j.account, j.op as hold, h.id as open, u.id as ended
    from journal j
    left join hold h on h.account = j.account and h.id = j.op
    left join usage u on u.id = j.op and u.account = j.account
    where j.kind = 'hold' and (h.id is null) = (u.id is null)`,

  "every open hold and every receipt was taken as a hold": `
    select t.account, t.id as hold from (
      select account, id from hold union all select account, id from usage
    ) t left join journal j on j.op = t.id and j.account = t.account and j.kind = 'hold'
    where j.op is null`,

  "every receipt has the journal entry that ended it": `
    select u.account, u.id as hold, u.seq, j.op, j.kind
    from usage u left join journal j on j.account = u.account and j.seq = u.seq
    where j.op is null or j.kind not in ('settle', 'void', 'expire') or j.op not in (u.id || '/end', u.id || '/late')`,

  // Credits of a window that ended before the request are not given back. A refresh entry then
  // lies between.
  "every receipt is what its journal entries took": `
    select m.account, m.hold, m.base, m.base_taken, m.overage, m.overage_taken, m.additional, m.additional_taken
    from (
      select u.account, u.id as hold, u.base, u.overage, u.additional, t.seq as taken_seq, e.seq as ended_seq,
        0 - t.base_delta - e.base_delta - coalesce(l.base_delta, 0) - coalesce(x.base, 0) as base_taken,
        0 - t.overage_delta - e.overage_delta - coalesce(l.overage_delta, 0) - coalesce(x.overage, 0) as overage_taken,
        0 - t.additional_delta - e.additional_delta - coalesce(l.additional_delta, 0) - coalesce(x.additional, 0)
          as additional_taken
      from usage u
      join journal t on t.op = u.id and t.account = u.account
      join journal e on e.op = u.id || '/end' and e.account = u.account
      left join journal l on l.op = u.id || '/late' and l.account = u.account
      left join (
        ${extensions}
      ) x on x.account = u.account and x.note = u.id
    ) m
    where m.additional_taken <> m.additional or m.base_taken < m.base or m.overage_taken < m.overage
      or (m.base_taken > m.base or m.overage_taken > m.overage) and not exists (
        select 1 from journal r
        where r.account = m.account and r.kind = 'refresh' and r.seq > m.taken_seq and r.seq < m.ended_seq
      )`,

  "every open hold holds what its journal entries took": `
    select h.account, h.id as hold, h.base + h.base_past as base, h.overage + h.overage_past as overage,
      h.additional, 0 - t.base_delta - coalesce(x.base, 0) as base_taken,
      0 - t.overage_delta - coalesce(x.overage, 0) as overage_taken,
      0 - t.additional_delta - coalesce(x.additional, 0) as additional_taken
    from hold h
    join journal t on t.op = h.id and t.account = h.account
    left join (
      ${extensions}
    ) x on x.account = h.account and x.note = h.id
    where h.base + h.base_past <> 0 - t.base_delta - coalesce(x.base, 0)
      or h.overage + h.overage_past <> 0 - t.overage_delta - coalesce(x.overage, 0)
      or h.additional <> 0 - t.additional_delta - coalesce(x.additional, 0)`,

  "what accounts hold is what their open holds hold": `
    select a.id as account, a.holds, a.held_base, a.held_overage, a.held_additional,
      h.holds as open, h.base, h.overage, h.additional
    from account a left join (
      select h.account, count(*) as holds, sum(h.additional) as additional,
        sum(case when h.base_starts_ms = o.base_starts_ms then h.base else 0 end) as base,
        sum(case when h.overage_starts_ms = o.overage_starts_ms then h.overage else 0 end) as overage
      from hold h join account o on o.id = h.account group by h.account
    ) h on h.account = a.id
    where a.holds <> coalesce(h.holds, 0) or a.held_base <> coalesce(h.base, 0)
      or a.held_overage <> coalesce(h.overage, 0) or a.held_additional <> coalesce(h.additional, 0)`,

  "what keys count as running are their open holds": `
    select k.account, k.id as key, k.holds, coalesce(h.open, 0) as open
    from api_key k left join (
      select account, key, count(*) as open from hold group by account, key
    ) h on h.account = k.account and h.key = k.id
    where k.holds <> coalesce(h.open, 0)`,

  "what was bought is left, spent or held": `
    select a.id as account, j.bought, a.additional as remaining, u.spent, h.held
    from account a
    left join (
      select ${unsorted}, sum(additional_delta) as bought from journal
      where kind in ('topup', 'adjust') group by 1
    ) j on j.account = a.id
    left join (select ${unsorted}, sum(additional) as spent from usage where additional <> 0 group by 1) u on u.account = a.id
    left join (select account, sum(additional) as held from hold group by account) h on h.account = a.id
    where coalesce(j.bought, 0) <> a.additional + coalesce(u.spent, 0) + coalesce(h.held, 0)`,

  "every cost is tokens times prices, and is paid or recorded as shortfall": `
    select account, id as hold, cost, base, overage, additional, shortfall, prompt_tokens, cached_tokens,
      completion_tokens, price_prompt, price_cached_prompt, price_completion
    from usage
    where cost <> base + overage + additional + shortfall
      or cost <> (prompt_tokens - cached_tokens) * price_prompt + cached_tokens * price_cached_prompt
        + completion_tokens * price_completion
      or base < 0 or overage < 0 or additional < 0 or shortfall < 0`,

  "no bucket is below zero or above its cap": `
    select id as account, base, held_base, base_cap, overage, held_overage, overage_cap, additional, held_additional
    from account
    where base < 0 or overage < 0 or additional < 0 or held_base < 0 or held_overage < 0 or held_additional < 0
      or base + held_base > base_cap or overage + held_overage > overage_cap
      or base_cap > ${exactMax} or overage_cap > ${exactMax} or additional + held_additional > ${exactMax}`,

  "every window has a length": `
    select id as account, base_starts_ms, base_ends_ms, overage_starts_ms, overage_ends_ms from account
    where base_starts_ms >= base_ends_ms or overage_starts_ms >= overage_ends_ms`,

  "everything belongs to an account that there is": `
    select t.what, t.account, t.id from (
      select 'hold' as what, account, id from hold
      union all select 'api_key' as what, account, id from api_key
      union all select 'usage' as what, account, id from usage
      union all select 'journal' as what, account, op as id from journal
    ) t left join account a on a.id = t.account
    where a.id is null`,
};
