/**
 * The facts for taking back windows that a wrong clock opened. They are the last window of an
 * account that started at or before the present time, and the credits spent and held since its
 * start.
 *
 * Read only for that purpose, so it may walk over the journal entries since that window.
 */
import { takingsOf } from "../ledger/pricing.ts";
import type { HoldRow, PastBudget, PastWindow, PastWindows, WindowBucket } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";

/** Charges have no index by account, so they are found by the journal entries that ended holds. */
const chargeOfEntry = `
  join charge c on c.account = e.account and c.seq = e.seq and e.kind in ('settle', 'void', 'expire')
    and c.id = substr(e.op, 1, length(e.op) - case when e.op like '%/late' then 5 else 4 end)`;

/** The parameters are the account and the present time. */
export function readPastWindows(p: (n: number) => string): string {
  return `${pastWindow("base", p)} union all ${pastWindow("overage", p)}`;
}

/**
 * A charge counts without the credits that its hold took before the window. Credits are spent in
 * the order in which they were taken.
 */
function pastWindow(bucket: WindowBucket, p: (n: number) => string): string {
  const before = `coalesce((
    select 0 - sum(t.${bucket}_delta) from journal t
    where t.account = c.account and t.kind in ('hold', 'extend') and t.seq < g.since
      and (t.op = c.id or t.op > c.id || '/' and t.op < c.id || '0')
  ), 0)`;
  const counted = `case when c.late_line = 1 then c.${bucket}
    when c.${bucket} > ${before} then c.${bucket} - ${before} else 0 end`;
  const charges = `select c.account, c.id, c.seq, c.${bucket}, case when c.late then 1 else 0 end as late_line
    from journal e ${chargeOfEntry} where e.account = ${p(1)}`;
  return `
    select '${bucket}' as bucket, g.plan, g.version, g.amount, g.anchor_ms, g.starts_ms, g.ends_ms, g.since,
      coalesce((select o.spent from credit_grant o where o.account = g.account and o.bucket = g.bucket and o.seq = g.since), 0)
        + coalesce((select sum(${counted}) from (${charges}) c where c.seq > g.since), 0) as spent,
      (select j.note from journal j where j.account = g.account and j.seq > g.seq and j.kind = 'plan'
        and j.op like 'plan/%' order by j.seq limit 1) as scheduled
    from credit_grant g
    where g.account = ${p(1)} and g.bucket = '${bucket}' and g.cause <> 'close' and g.starts_ms <= ${p(2)}
      and g.seq = (
        select max(m.seq) from credit_grant m
        where m.account = ${p(1)} and m.bucket = '${bucket}' and m.cause <> 'close' and m.starts_ms <= ${p(2)}
      )`;
}

/**
 * Reads what was charged to a key since a time, and the number of the first charge. The parameters
 * are the account, the key and the time.
 */
export function readCharged(p: (n: number) => string): string {
  return `
    select coalesce(sum(c.base + c.overage + c.additional), 0), min(c.seq) from journal e ${chargeOfEntry}
    where e.account = ${p(1)} and c.key = ${p(2)} and c.at_ms >= ${p(3)}`;
}

/** `cells` are the result of `readCharged`. */
export function pastBudgetOf(
  key: string,
  { startsMs, endsMs }: { startsMs: EpochMs; endsMs: EpochMs },
  cells: readonly unknown[] | undefined,
): PastBudget {
  const [spent, since] = cells ?? [];
  return { key, startsMs, endsMs, spent: Number(spent), since: typeof since === "number" ? since : null };
}

/** `holds` are all open holds of the account. */
export function pastWindowsOf(
  rows: readonly (readonly unknown[])[],
  holds: readonly HoldRow[],
  budgets: readonly PastBudget[],
): PastWindows {
  const find = (bucket: WindowBucket): PastWindow | null => {
    const row = rows.find((cells) => cells[0] === bucket);
    if (row === undefined) return null;
    const [, plan, version, amount, anchorMs, startsMs, endsMs, since, spent] = row;
    const grant = {
      plan: String(plan),
      version: Number(version),
      amount: Number(amount),
      anchorMs: Number(anchorMs),
      startsMs: Number(startsMs),
      endsMs: Number(endsMs),
      since: Number(since),
    };
    const taken = holds.flatMap(takingsOf).filter(({ seq }) => seq >= grant.since);
    const held = taken.reduce((sum, taking) => sum + taking[bucket], 0);
    return { grant, spent: Number(spent), held };
  };
  const scheduled = rows[0]?.[9];
  return {
    base: find("base"),
    overage: find("overage"),
    budgets,
    scheduled: typeof scheduled === "string" ? scheduled : null,
  };
}
