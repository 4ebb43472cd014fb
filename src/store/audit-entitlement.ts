/**
 * The rules of the audit about entitlement: why an account may spend what it may spend. Grants,
 * windows, plans, payments and budgets are compared by journal number, because clocks can err.
 *
 * The SQL is standard and uses only functions that SQLite and PostgreSQL share. Every query is one
 * pass over a table, with lookups by key. Only a window that a plan change carried or resumed is
 * added up entry by entry.
 */
import { unsorted } from "./audit-journal.ts";

/**
 * If a clock is set back by less than this, entries that are dated in the windows of their account
 * can be ahead of it. Budgets of keys follow the clock.
 */
const clockSlackMs = 60_000;

/** The grants of base and overage, each beside the one before. */
const chain = `
  select g.*, lag(seq) over w as before, lag(cause) over w as cause_before, lag(plan) over w as plan_before,
    lag(anchor_ms) over w as anchor_before_ms, lag(starts_ms) over w as starts_before_ms,
    lag(ends_ms) over w as ends_before_ms, lag(since) over w as since_before,
    lag(amount) over w as amount_before, lag(spent) over w as spent_before
  from credit_grant g where bucket <> 'additional'
  window w as (partition by account, bucket order by seq)`;

/** Each bucket of the plan versions on a row of its own. */
const bucketVersions = `
  select plan, version, created_ms, 'base' as bucket, base_credits as credits, base_every as every from plan_version
  union all
  select plan, version, created_ms, 'overage', overage_credits, overage_every from plan_version`;

/** A condition: the period has no months, so that all its windows have the same length. */
const isFixedPeriod =
  "(upper(v.every) like 'PT%' or upper(v.every) not like '%M%' and upper(v.every) not like '%Y%')";

/** The window buckets of the accounts, each on a row of its own. */
const accountBuckets = ["base", "overage"]
  .map(
    (bucket) => `
    select id as account, plan, '${bucket}' as bucket, ${bucket}_cap as cap,
      ${bucket}_plan as window_plan, ${bucket}_version as window_version, ${bucket}_every as every, ${bucket}_anchor_ms as anchor_ms,
      ${bucket}_starts_ms as starts_ms, ${bucket}_ends_ms as ends_ms, ${bucket}_grant as seq, ${bucket}_since as since
    from account`,
  )
  .join(" union all ");

/** A recursive table: the windows that changes of the plan closed before their end. */
const keptWindows = `
  kept(account, seq, n, item) as (
    select id, seq, 0, kept -> 0 from account where kept is not null
    union all
    select k.account, k.seq, k.n + 1, a.kept -> (k.n + 1)
    from kept k join account a on a.id = k.account where (a.kept -> (k.n + 1)) is not null
  )`;

/** Entries `j`, each with its charge `c`. */
const entriesWithCharges = `
    journal j join charge c on c.account = j.account and c.seq = j.seq
      and c.id = substr(j.op, 1, length(j.op) - case when j.op like '%/late' then 5 else 4 end)`;

/**
 * An expression: the charges of window `w` of the bucket, from what was taken since `w.since`. A
 * hold spends first what it took first.
 */
function chargedIn(bucket: string): string {
  return `(
    select coalesce(sum(case when c.late or t.seq >= w.since then c.${bucket} else (
      select case when c.${bucket} > coalesce(o.taken, 0) then c.${bucket} - coalesce(o.taken, 0) else 0 end from (
        select sum(0 - y.${bucket}_delta) as taken from journal y
        where y.account = c.account and y.seq >= t.seq and y.seq < w.since and (y.op = c.id or y.kind = 'extend' and y.note = c.id)
      ) o
    ) end), 0)
    from ${entriesWithCharges}
    join journal t on t.op = c.id and t.account = c.account
    where j.account = w.account and j.seq > w.since and j.seq < w.until and j.kind in ('settle', 'expire')
  )`;
}

/** An expression: what was taken since `w.since` and had not ended before `w.until`. */
function heldIn(bucket: string): string {
  return `(
    select coalesce(sum(0 - j.${bucket}_delta), 0) from journal j
    where j.account = w.account and j.seq >= w.since and j.seq < w.until and j.kind in ('hold', 'extend') and not exists (
      select 1 from journal e
      where e.op = case j.kind when 'hold' then j.op else j.note end || '/end' and e.account = j.account and e.seq < w.until
    )
  )`;
}

/**
 * Grants that carry amounts, compared with the entries since their windows began. A window that a
 * change of the plan closed as it began has no grant, and began with nothing.
 */
function carriedIn(bucket: string): string {
  return `
    select w.account, '${bucket}' as bucket, w.seq, w.since, w.spent, coalesce(s.spent, 0) + w.charged as spent_since,
      w.held, w.held_since, j.kind as began_with
    from (
      select w.*, ${chargedIn(bucket)} as charged, ${heldIn(bucket)} as held_since from opened w where w.bucket = '${bucket}'
    ) w
    left join credit_grant s on s.account = w.account and s.seq = w.since and s.bucket = '${bucket}' and s.since = s.seq
    left join journal j on j.account = w.account and j.seq = w.since
    where s.seq is null and (j.seq is null or j.kind <> 'plan')
      or w.spent <> coalesce(s.spent, 0) + w.charged or w.held <> w.held_since`;
}

/** The newest entry of some kinds, for each account. */
function newestEntry(kinds: string): string {
  return `
    select j.account, j.kind, j.note from journal j
    join (select ${unsorted}, max(seq) as seq from journal where kind in (${kinds}) group by 1) n
      on n.account = j.account and n.seq = j.seq`;
}

export const entitlementRules: Readonly<Record<string, string>> = {
  // Entries that only remember or cancel a change of the plan have no grant.
  "every change of a window and every purchase has its grant": `
    select j.account, j.seq, j.kind, j.op, j.base_delta, b.amount as base, j.overage_delta, o.amount as overage,
      j.additional_delta, x.amount as additional
    from journal j
    left join credit_grant b on b.account = j.account and b.seq = j.seq and b.bucket = 'base'
    left join credit_grant o on o.account = j.account and o.seq = j.seq and o.bucket = 'overage'
    left join credit_grant x on x.account = j.account and x.seq = j.seq and x.bucket = 'additional'
    where j.kind in ('open', 'refresh', 'plan', 'close', 'reverse', 'topup', 'refund', 'adjust')
      and case when j.kind in ('topup', 'refund', 'adjust') then x.seq is null
        else j.kind <> 'plan' and b.seq is null and o.seq is null
          or j.base_delta <> 0 and b.seq is null or j.overage_delta <> 0 and o.seq is null end`,

  // If the clock was set back, a change of the plan is dated in the window that it ends, and its
  // entry in the new one.
  "every grant has the journal entry that made it, and its credits": `
    select g.account, g.seq, g.bucket, g.cause, g.ref, g.amount, g.spent, g.held, g.at_ms, j.kind, j.op, j.note,
      j.at_ms as journal_at_ms, j.base_after, j.overage_after, j.additional_delta
    from credit_grant g left join journal j on j.account = g.account and j.seq = g.seq
    where j.seq is null or j.at_ms <> g.at_ms and g.cause <> 'plan' or not case g.cause
        when 'open' then j.kind = 'open'
        when 'window' then j.kind in ('refresh', 'plan', 'reverse')
        when 'plan' then j.kind in ('plan', 'reverse')
        when 'close' then j.kind = 'close'
        when 'reversal' then j.kind = 'reverse'
        when 'refund' then j.kind = 'refund' and j.op = 'refund:' || g.ref
          and substr(j.note, 1, length(g.payment) + 1) = g.payment || ' '
        when 'adjustment' then j.kind = 'adjust' and j.op = 'adjust:' || g.ref
        else j.kind = 'topup' and j.op = 'payment:' || g.ref end
      or (g.cause in ('payment', 'refund', 'adjustment')) <> (g.bucket = 'additional')
      or case g.bucket when 'base' then j.base_after <> g.amount - g.spent - g.held
        when 'overage' then j.overage_after <> g.amount - g.spent - g.held
        else j.additional_delta <> g.amount end`,

  // A version is not compared with later ones, because a wrong clock can have dated them.
  "every grant gives the credits of its plan version": `
    select g.account, g.seq, g.bucket, g.cause, g.amount, g.plan, g.version, v.credits, v.created_ms, g.starts_ms, g.at_ms
    from credit_grant g left join (${bucketVersions}) v
      on v.plan = g.plan and v.version = g.version and v.bucket = g.bucket
    where g.bucket <> 'additional' and case g.cause
      when 'close' then g.amount <> 0
      else v.plan is null or g.amount <> v.credits * 1000000
        or g.cause = 'window' and v.version > 1 and v.created_ms >= g.starts_ms
        or g.cause = 'plan' and v.version > 1 and v.created_ms > g.at_ms + ${clockSlackMs} end`,

  // A change of the plan resumes an earlier window, or one that another change closed as it began.
  "windows do not overlap, and only whole windows are missing between them": `
    select c.account, c.bucket, c.seq, c.cause, c.plan, c.anchor_ms, c.starts_ms, c.ends_ms, c.at_ms,
      c.before, c.cause_before, c.plan_before, c.starts_before_ms, c.ends_before_ms
    from (${chain}) c
    join journal j on j.account = c.account and j.seq = c.seq
    left join (${bucketVersions}) v on v.plan = c.plan and v.version = c.version and v.bucket = c.bucket
    where c.starts_ms >= c.ends_ms
      or (c.before is null) <> (c.cause = 'open')
      or c.cause_before = 'close'
      or c.at_ms < c.starts_ms - case c.cause when 'plan' then ${clockSlackMs} else 0 end
      or c.at_ms >= c.ends_ms and c.cause <> 'close'
      or c.cause in ('open', 'window', 'plan') and (c.starts_ms < c.anchor_ms
        or ${isFixedPeriod} and (c.starts_ms - c.anchor_ms) % (c.ends_ms - c.starts_ms) <> 0)
      or c.cause = 'open' and c.starts_ms <> c.anchor_ms
      or c.cause = 'window' and case j.kind when 'refresh'
        then c.starts_ms < c.ends_before_ms or c.plan <> c.plan_before
          or c.anchor_ms <> c.anchor_before_ms and c.anchor_ms < c.ends_before_ms
        -- The entry also took back the window before.
        when 'reverse' then 1 = 0
        else c.starts_ms < c.starts_before_ms or c.plan <> j.note end
      or c.cause = 'plan' and j.kind = 'plan' and c.plan <> j.note
      or c.cause = 'close' and (c.starts_ms <> c.starts_before_ms or c.ends_ms <> c.ends_before_ms)
      or c.cause in ('plan', 'reversal') and c.starts_ms <> c.anchor_ms
        and not (c.since = c.seq and (j.kind = 'reverse' or c.starts_ms >= c.ends_before_ms))
        and (c.starts_ms <> c.starts_before_ms or c.ends_ms <> c.ends_before_ms) and not exists (
          select 1 from credit_grant q
          where q.account = c.account and q.bucket = c.bucket and q.seq < c.seq
            and q.starts_ms = c.starts_ms and q.ends_ms = c.ends_ms
        )
        and not exists (select 1 from journal k where k.account = c.account and k.seq = c.since and k.kind = 'plan')`,

  "a new window starts with nothing spent or held": `
    select account, bucket, seq, cause, since, spent, held from credit_grant
    where bucket <> 'additional' and (spent < 0 or held < 0 or since > seq
      or since < seq and cause in ('open', 'window')
      or since = seq and cause <> 'close' and (spent <> 0 or held <> 0))`,

  "the next grant of a window carries what was spent and held": `
    select * from (
      select w.account, w.bucket, w.seq, w.since, w.before, w.spent, w.spent_before + (
          select coalesce(sum(case w.bucket when 'base' then c.base - c.base_past else c.overage - c.overage_past end), 0)
          from ${entriesWithCharges}
          where j.account = w.account and j.seq > w.before and j.seq < w.seq and j.kind in ('settle', 'expire')
        ) as spent_since, w.spent + w.held as used, w.amount_before - (
          select case w.bucket when 'base' then j.base_after else j.overage_after end from journal j
          where j.account = w.account and j.seq = w.seq - 1
        ) as used_before
      from (${chain}) w where w.since < w.seq and w.since = w.since_before
    ) w
    where w.spent <> w.spent_since or w.used_before is null or w.used <> w.used_before`,

  // Windows that a change of the plan closed.
  "windows that resume or can resume have counted what was spent and held": `
    with recursive ${keptWindows},
    opened(account, bucket, seq, until, since, spent, held) as (
      select account, bucket, seq, seq, since, spent, held from (${chain}) g
      where since < seq and (since_before is null or since <> since_before)
      union all
      select account, item ->> 'bucket', null, seq + 1, cast(item ->> 'since' as bigint),
        cast(item ->> 'spent' as bigint), cast(item ->> 'held' as bigint)
      from kept
    )
    ${carriedIn("base")}
    union all
    ${carriedIn("overage")}`,

  "every window that can resume is complete": `
    with recursive ${keptWindows}
    select account, n, cast(item as text) as kept from kept
    where coalesce(item ->> 'bucket', '') not in ('base', 'overage') or item ->> 'plan' is null
      or item ->> 'every' is null or item ->> 'version' is null or item ->> 'anchorMs' is null
      or item ->> 'startsMs' is null or item ->> 'endsMs' is null or item ->> 'since' is null
      or item ->> 'spent' is null or item ->> 'held' is null`,

  // The current grants of the account are newer than all others, so most charges need no look-up.
  "every charge names the grants that were current": `
    select c.account, c.id as hold, c.seq, c.base_grant, c.overage_grant
    from charge c left join account a on a.id = c.account
    where case when c.base_grant = a.base_grant and c.overage_grant = a.overage_grant
      then c.seq <= a.base_grant or c.seq <= a.overage_grant
      else c.base_grant <> coalesce((
          select max(g.seq) from credit_grant g where g.account = c.account and g.bucket = 'base' and g.seq < c.seq
        ), 0)
        or c.overage_grant <> coalesce((
          select max(g.seq) from credit_grant g where g.account = c.account and g.bucket = 'overage' and g.seq < c.seq
        ), 0) end`,

  "what is spent in a window is what it carried and its charges": `
    select a.id as account, a.base_cap - a.base - a.base_held as base, b.spent as base_carried, c.base as base_charged,
      a.overage_cap - a.overage - a.overage_held as overage, o.spent as overage_carried, c.overage as overage_charged
    from account a
    left join credit_grant b on b.account = a.id and b.seq = a.base_grant and b.bucket = 'base'
    left join credit_grant o on o.account = a.id and o.seq = a.overage_grant and o.bucket = 'overage'
    left join (
      select cast(c.account || '' as text) as account,
        sum(case when c.base_grant = n.base_grant then c.base - c.base_past else 0 end) as base,
        sum(case when c.overage_grant = n.overage_grant then c.overage - c.overage_past else 0 end) as overage
      from charge c join account n on n.id = c.account
      where c.base_grant = n.base_grant or c.overage_grant = n.overage_grant
      group by 1
    ) c on c.account = a.id
    where b.seq is null or o.seq is null
      or a.base_cap - a.base - a.base_held <> b.spent + coalesce(c.base, 0)
      or a.overage_cap - a.overage - a.overage_held <> o.spent + coalesce(c.overage, 0)`,

  "every account is what its newest grants say": `
    select b.account, b.bucket, b.plan, b.window_plan, b.window_version, b.every, b.seq, b.since, b.cap, b.anchor_ms, b.starts_ms, b.ends_ms,
      n.seq as grant_seq, g.plan as grant_plan, g.since as grant_since, g.amount as grant_amount,
      g.anchor_ms as grant_anchor_ms, g.starts_ms as grant_starts_ms, g.ends_ms as grant_ends_ms
    from (${accountBuckets}) b
    left join (
      select account, bucket, max(seq) as seq from credit_grant where bucket <> 'additional' group by account, bucket
    ) n on n.account = b.account and n.bucket = b.bucket
    left join credit_grant g on g.account = b.account and g.seq = n.seq and g.bucket = b.bucket
    where g.seq is null or b.seq <> g.seq or b.since <> g.since or b.cap <> g.amount or b.plan <> g.plan
      or b.anchor_ms <> g.anchor_ms or b.starts_ms <> g.starts_ms or b.ends_ms <> g.ends_ms or b.starts_ms >= b.ends_ms
      or g.cause in ('open', 'window') and b.window_plan <> g.plan
      or not exists (
        select 1 from (${bucketVersions}) v
        where v.plan = b.window_plan and v.version = b.window_version and v.bucket = b.bucket and v.every = b.every
      )`,

  "the state of every account is what its journal says": `
    select a.id as account, a.state, s.kind as state_entry, a.plan, a.next_plan, p.note as plan_entry, a.ends_ms,
      e.note as end_entry
    from account a
    left join (${newestEntry("'suspend', 'resume', 'close'")}) s on s.account = a.id
    left join (${newestEntry("'plan', 'reverse', 'close'")}) p on p.account = a.id and p.kind <> 'close'
    left join (${newestEntry("'end'")}) e on e.account = a.id
    where a.state <> case s.kind when 'suspend' then 'suspended' when 'close' then 'closed' else 'active' end
      or case when p.note like '% at refresh' then p.note <> coalesce(a.next_plan, a.plan) || ' at refresh'
        else a.next_plan is not null end
      or a.state <> 'closed' and (a.ends_ms is null) <> (coalesce(e.note, 'no end') = 'no end')`,

  "closed accounts have no credits in windows": `
    select id as account, base, base_held, base_cap, overage, overage_held, overage_cap, next_plan, kept from account
    where state = 'closed' and (base_cap <> 0 or overage_cap <> 0 or next_plan is not null or kept is not null)`,

  "every payment, refund and adjustment counts once": `
    select cause, ref, min(account) as account, count(*) as times from credit_grant
    where bucket = 'additional' and cause = 'payment' group by cause, ref having count(*) > 1
    union all
    select cause, ref, account, count(*) from credit_grant
    where cause in ('adjustment', 'refund') group by cause, ref, account having count(*) > 1`,

  "refunds do not exceed their payment": `
    select r.payment, r.account, r.refunded, p.account as paid_by, p.amount from (
      select payment, account, 0 - sum(amount) as refunded, max(amount) as least from credit_grant
      where cause = 'refund' group by payment, account
    ) r left join credit_grant p on p.cause = 'payment' and p.ref = r.payment
    where p.ref is null or p.account <> r.account or r.refunded > p.amount or r.least > 0`,

  // Exact if no charge is close to the start of the window, and to the line otherwise.
  "key budgets equal their charges": `
    select k.account, k.id as key, k.budget_since, k.budget_spent, coalesce(c.paid, 0) as charged
    from api_key k left join (
      select l.account, l.key, sum(l.base + l.overage + l.additional) as paid
      from charge l join api_key b on b.id = l.key and b.account = l.account
      where b.budget is not null and l.seq >= b.budget_since
      group by l.account, l.key
    ) c on c.account = k.account and c.key = k.id
    where k.budget is not null and k.budget_spent <> coalesce(c.paid, 0)`,

  "plan versions are numbered without gaps and ordered in time": `
    select v.plan, v.version, v.created_ms, b.created_ms as before_ms
    from plan_version v left join plan_version b on b.plan = v.plan and b.version = v.version - 1
    where v.version <> 1 and (b.version is null or b.created_ms > v.created_ms)`,

  // Not every invalid period is found, but every text of other letters or without a number.
  "the periods of plan versions can be read": `
    select plan, version, bucket, every from (${bucketVersions}) v
    where upper(every) not like 'P%' or length(every) < 3
      or rtrim(substr(upper(every), 2), '0123456789YMWDTHS.') <> ''
      or rtrim(substr(upper(every), 2), 'YMWDTHS') = ''`,

  "applied plans sections are numbered without gaps": `
    select f.epoch, f.applied_ms from plan_file f left join plan_file b on b.epoch = f.epoch - 1
    where f.epoch <> 1 and b.epoch is null`,

  "every plan of an account has a version": `
    select a.id as account, a.plan, a.next_plan from account a
    left join plan_version v on v.plan = a.plan and v.version = 1
    left join plan_version n on n.plan = a.next_plan and n.version = 1
    where v.plan is null or a.next_plan is not null and n.plan is null`,
};
