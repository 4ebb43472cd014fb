/**
 * The rules of the audit about the journal, holds and charges: every credit that moved has one
 * entry, and the entries, holds and charges of a request agree.
 *
 * The SQL is standard and uses only functions that SQLite and PostgreSQL share. Every query is one
 * pass over a table or an index, with lookups by key.
 */

const exactMax = 9_007_199_254_740_991;

/**
 * An expression that no index matches. To sort a few rows is faster than to read all of them in
 * index order. As text it can be joined by an automatic index of SQLite.
 */
export const unsorted = "cast(account || '' as text) as account";

/** The credits that the extensions of each hold took. */
const extensions = `
  select ${unsorted}, note, sum(base_delta) as base, sum(overage_delta) as overage, sum(additional_delta) as additional
  from journal where kind = 'extend' group by 1, 2`;

/** A table: the amounts that open holds took, by journal number. */
const openTakings = `
  select h.account, h.id as hold, h.key, t.seq, t.kind, 0 - t.base_delta as base, 0 - t.overage_delta as overage,
    0 - t.additional_delta as additional
  from hold h join journal t on t.op = h.id and t.account = h.account
  union all
  select h.account, h.id, h.key, x.seq, x.kind, 0 - x.base_delta, 0 - x.overage_delta, 0 - x.additional_delta
  from journal x cross join hold h where x.kind = 'extend' and h.account = x.account and h.id = x.note`;

/**
 * Common table expressions: `taking` has the amounts of the rows of the open holds, by the journal
 * number at which they were taken.
 */
const holdTakings = `
  earlier(account, hold, n, item) as (
    select account, id, 0, earlier -> 0 from hold where earlier is not null
    union all
    select e.account, e.hold, e.n + 1, h.earlier -> (e.n + 1)
    from earlier e join hold h on h.account = e.account and h.id = e.hold where (h.earlier -> (e.n + 1)) is not null
  ),
  taking as (
    select account, id as hold, taken_seq as seq, base, overage from hold
    union all
    select account, hold, cast(item ->> 'seq' as bigint), cast(item ->> 'base' as bigint), cast(item ->> 'overage' as bigint)
    from earlier
  )`;

/** An expression: the cost of the last checkpoint of a hold. */
const usedByHold =
  "(prompt_tokens - cached_tokens) * price_prompt + cached_tokens * price_cached_prompt + completion_tokens * price_completion";

/** An expression: what the hold of charge `c` took, with entry `t` and extensions `x`. */
function takenOf(bucket: string): string {
  return `0 - t.${bucket}_delta - coalesce(x.${bucket}, 0)`;
}

/**
 * An expression: what the hold of charge `c` took from windows of the bucket that were closed when
 * it ended. Only a grant in between can close them.
 */
function lapsedOf(bucket: string): string {
  const since = `
    select g.since from credit_grant g where g.account = c.account and g.seq = c.${bucket}_grant and g.bucket = '${bucket}'`;
  return `case when c.${bucket}_grant <= t.seq then 0 else (
    select coalesce(sum(0 - y.${bucket}_delta), 0) from journal y
    where y.account = c.account and y.seq >= t.seq and y.seq < (${since})
      and (y.op = c.id or y.kind = 'extend' and y.note = c.id)
  ) end`;
}

/** A condition: the amounts of a charge and its entry do not follow from what its hold took. */
function isWrongIn(bucket: string): string {
  return `m.${bucket}_back <> m.${bucket}_taken - m.${bucket}_lapsed - (m.${bucket} - m.${bucket}_past)
    or m.${bucket}_past <> case when m.${bucket}_lapsed < m.${bucket} then m.${bucket}_lapsed else m.${bucket} end`;
}

export const journalRules: Readonly<Record<string, string>> = {
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
      or kind = 'void' and (base_delta < 0 or overage_delta < 0 or additional_delta < 0)
      or kind in ('open', 'refresh', 'plan', 'close', 'reverse') and additional_delta <> 0
      or kind = 'open' and (base_delta < 0 or overage_delta < 0)
      or kind = 'close' and (base_delta > 0 or overage_delta > 0)
      or kind in ('topup', 'refund', 'adjust', 'suspend', 'resume', 'end', 'key') and (base_delta <> 0 or overage_delta <> 0)
      or kind in ('suspend', 'resume', 'end', 'key') and additional_delta <> 0
      or kind = 'topup' and additional_delta <= 0
      or kind = 'refund' and additional_delta > 0`,

  "every operation stands once": `
    select account, op, count(*) as times from journal group by op, account having count(*) > 1`,

  "every hold is open or has ended, and not both": `
    select j.account, j.op as hold, h.id as open, c.id as ended
    from journal j
    left join hold h on h.account = j.account and h.id = j.op
    left join charge c on c.id = j.op and c.account = j.account and not c.late
    where j.kind = 'hold' and (h.id is null) = (c.id is null)`,

  "every open hold was taken as a hold": `
    select h.account, h.id as hold, h.taken_seq from hold h
    left join journal j on j.op = h.id and j.account = h.account and j.kind = 'hold'
    where j.op is null`,

  // Credits of a closed window are not given back. The entries of a request are found by their
  // operations, because these are neighbours in the index.
  "every charge is what its journal entries took": `
    select * from (
      select c.account, c.id as hold, c.seq, c.ending, c.at_ms, e.seq as journal_seq, e.kind, e.at_ms as journal_at_ms,
        c.base, c.base_past, c.overage, c.overage_past, c.additional, t.kind as taken_kind,
        ${takenOf("base")} as base_taken, e.base_delta as base_back, ${lapsedOf("base")} as base_lapsed,
        ${takenOf("overage")} as overage_taken, e.overage_delta as overage_back, ${lapsedOf("overage")} as overage_lapsed,
        ${takenOf("additional")} as additional_taken, e.additional_delta as additional_back
      from charge c
      left join journal t on t.op = c.id and t.account = c.account
      left join journal e on e.op = c.id || '/end' and e.account = c.account
      left join (${extensions}) x on x.account = c.account and x.note = c.id
      where not c.late
    ) m
    where m.taken_kind is null or m.taken_kind <> 'hold'
      or m.kind is null or m.kind not in ('settle', 'void', 'expire') or (m.kind = 'expire') <> (m.ending = 'expired')
      or m.seq <> m.journal_seq or m.at_ms <> m.journal_at_ms
      or m.additional_back <> m.additional_taken - m.additional
      or ${isWrongIn("base")} or ${isWrongIn("overage")}`,

  "every late charge is what its journal entry took": `
    select c.account, c.id as hold, c.seq, c.at_ms, c.base, c.base_past, c.overage, c.overage_past, c.additional,
      e.seq as journal_seq, e.kind, e.at_ms as journal_at_ms, e.base_delta, e.overage_delta, e.additional_delta
    from charge c left join journal e on e.op = c.id || '/late' and e.account = c.account
    where c.late and (e.seq is null or e.seq <> c.seq or e.kind <> 'settle' or e.at_ms <> c.at_ms
      or c.base <> 0 - e.base_delta or c.overage <> 0 - e.overage_delta
      or c.additional <> 0 - e.additional_delta or c.base_past <> 0 or c.overage_past <> 0)`,

  "a late charge follows one expired charge, and both add up to a usage": `
    select l.account, l.id as hold, l.ending, c.ending as first_ending, c.seq as first_seq, l.seq,
      c.prompt_tokens + l.prompt_tokens as prompt_tokens, c.cached_tokens + l.cached_tokens as cached_tokens,
      c.completion_tokens + l.completion_tokens as completion_tokens,
      c.reasoning_tokens + l.reasoning_tokens as reasoning_tokens
    from charge l left join charge c on c.id = l.id and c.account = l.account and not c.late
    where l.late and (c.id is null or c.ending <> 'expired' or l.ending = 'expired' or c.seq >= l.seq
      or c.key <> l.key or c.model <> l.model or c.price_prompt <> l.price_prompt
      or c.price_cached_prompt <> l.price_cached_prompt or c.price_completion <> l.price_completion
      or c.cached_tokens + l.cached_tokens not between 0 and c.prompt_tokens + l.prompt_tokens
      or c.reasoning_tokens + l.reasoning_tokens not between 0 and c.completion_tokens + l.completion_tokens)`,

  "no request has two charges of one kind": `
    select account, id as hold, count(*) as times from charge group by id, account, late having count(*) > 1`,

  "every cost is tokens times prices, and is paid or recorded as shortfall": `
    select account, id as hold, cost, base, overage, additional, shortfall, prompt_tokens, cached_tokens,
      completion_tokens, price_prompt, price_cached_prompt, price_completion
    from charge
    where cost <> base + overage + additional + shortfall
      or cost <> (prompt_tokens - cached_tokens) * price_prompt + cached_tokens * price_cached_prompt
        + completion_tokens * price_completion
      or base < 0 or overage < 0 or additional < 0 or shortfall < 0
      or base_past not between 0 and base or overage_past not between 0 and overage`,

  // The rows of holds group what they took by the grants between.
  "every open hold holds what its journal entries took": `
    with recursive ${holdTakings},
    taken as (${openTakings}),
    part as (
      select account, hold, seq, base, overage,
        coalesce(lead(seq) over (partition by account, hold order by seq), ${exactMax}) as until
      from taking
    ),
    total as (
      select account, hold, sum(base) as base, sum(overage) as overage, sum(additional) as additional
      from taken group by account, hold
    )
    select p.account, p.hold, p.seq, p.base, p.overage, sum(t.base) as base_taken, sum(t.overage) as overage_taken
    from part p
    left join taken t on t.account = p.account and t.hold = p.hold and t.seq >= p.seq and t.seq < p.until
    group by p.account, p.hold, p.seq, p.base, p.overage
    having p.base <> coalesce(sum(t.base), 0) or p.overage <> coalesce(sum(t.overage), 0)
    union all
    select h.account, h.id, null, p.base, p.overage, w.base, w.overage
    from hold h
    join total w on w.account = h.account and w.hold = h.id
    join (select account, hold, sum(base) as base, sum(overage) as overage from taking group by account, hold) p
      on p.account = h.account and p.hold = h.id
    where p.base <> w.base or p.overage <> w.overage or h.additional <> w.additional`,

  "what accounts hold is what their open holds hold": `
    with recursive ${holdTakings}
    select a.id as account, a.holds, a.base_held, a.overage_held, a.additional_held, a.used,
      h.holds as open, t.base, t.overage, h.additional, h.used as used_by_holds
    from account a
    left join (
      select account, count(*) as holds, sum(additional) as additional, sum(${usedByHold}) as used from hold group by account
    ) h on h.account = a.id
    left join (
      select t.account, sum(case when t.seq >= o.base_since then t.base else 0 end) as base,
        sum(case when t.seq >= o.overage_since then t.overage else 0 end) as overage
      from taking t join account o on o.id = t.account group by t.account
    ) t on t.account = a.id
    where a.holds <> coalesce(h.holds, 0) or a.base_held <> coalesce(t.base, 0)
      or a.overage_held <> coalesce(t.overage, 0) or a.additional_held <> coalesce(h.additional, 0)
      or a.used <> coalesce(h.used, 0)`,

  "what keys hold is what their open holds hold": `
    with taken as (${openTakings})
    select k.account, k.id as key, k.holds, coalesce(h.open, 0) as open, k.held, coalesce(t.amount, 0) as amount,
      k.used, coalesce(h.used, 0) as used_by_holds
    from api_key k
    left join (
      select account, key, count(*) as open, sum(${usedByHold}) as used from hold group by account, key
    ) h on h.account = k.account and h.key = k.id
    left join (
      select account, key, sum(base + overage + additional) as amount from taken group by account, key
    ) t on t.account = k.account and t.key = k.id
    where k.holds <> coalesce(h.open, 0) or k.held <> coalesce(t.amount, 0) or k.used <> coalesce(h.used, 0)`,

  "what was bought is left, spent or held": `
    select a.id as account, j.bought, a.additional as remaining, u.spent, h.held
    from account a
    left join (
      select ${unsorted}, sum(additional_delta) as bought from journal
      where kind in ('topup', 'refund', 'adjust') group by 1
    ) j on j.account = a.id
    left join (select ${unsorted}, sum(additional) as spent from charge where additional <> 0 group by 1) u on u.account = a.id
    left join (select account, sum(additional) as held from hold group by account) h on h.account = a.id
    where coalesce(j.bought, 0) <> a.additional + coalesce(u.spent, 0) + coalesce(h.held, 0)`,

  "no bucket is above its cap, and additional is not below zero": `
    select id as account, base, base_held, base_cap, overage, overage_held, overage_cap, additional, additional_held
    from account
    where additional < 0 or base_held < 0 or overage_held < 0 or additional_held < 0
      or base + base_held > base_cap or overage + overage_held > overage_cap
      or base_cap not between 0 and ${exactMax} or overage_cap not between 0 and ${exactMax}
      or additional + additional_held > ${exactMax}`,

  // Charges and grants have journal entries, by other rules.
  "everything belongs to an account that exists": `
    select t.what, t.account, t.id from (
      select 'hold' as what, account, id from hold
      union all select 'api_key' as what, account, id from api_key
      union all select 'journal' as what, account, null as id from journal group by account
    ) t left join account a on a.id = t.account
    where a.id is null`,
};
