/**
 * Ledger files for benchmarks: accounts with a key each, and a history of the requested length,
 * written at once. They are sound: `inkwell audit` finds nothing.
 */
import type { Plan, Plans } from "../src/ledger/plan.ts";
import { openToWrite } from "../src/store/sqlite/open-to-write.ts";
import { accountTable } from "../src/store/tables.ts";

/** Enough credits for every benchmark. */
const plan: Plan = {
  id: "bench",
  base: { credits: 9_000_000, every: "P1D", align: "opening" },
  overage: { credits: 0, every: "P1D", align: "opening" },
  limits: {},
  models: ["*"],
  timezone: "UTC",
};

export const plans: Plans = new Map([[plan.id, plan]]);
export const price = { prompt: 1, completion: 1 };
/** Usage of every request in these files, which determines its cost in micro-credits. */
export const used = { promptTokens: 10, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 };

export function accountId(n: number): string {
  return `account-${String(n).padStart(5, "0")}`;
}

export function keyId(n: number): string {
  return `key_${String(n).padStart(16, "0")}`;
}

/**
 * Returns the account of a turn. Each account has one turn before any has a second one, and
 * neighbours never follow each other: otherwise the accounts of one commit would share pages.
 */
export function nextAccount(turn: number, accounts: number): number {
  return (turn * 7919) % accounts;
}

/**
 * `journalRows` counts holds and settlements, spread evenly over the accounts, without the `open`
 * of each account.
 */
export function makeLedgerFile(path: string, accounts: number, journalRows: number): void {
  const nowMs = Date.now();
  const startsMs = nowMs - 3_600_000;
  const endsMs = startsMs + 86_400_000;
  const cap = plan.base.credits * 1_000_000;
  const held = used.promptTokens + 100;
  const cost = used.promptTokens + used.completionTokens;
  // Whole rounds over the accounts, so that all have equal histories.
  const rounds = Math.ceil(journalRows / 2 / accounts);
  const db = openToWrite({ path, busyMs: 5000 }, { nowMs, plans });
  db.exec(`
    pragma synchronous = off;
    begin;
    create temp table a as with recursive n(n) as (select 0 union all select n + 1 from n where n < ${accounts - 1})
      select n, printf('account-%05d', n) as id, printf('key_%016d', n) as key from n;
    create temp table r as with recursive n(n) as (select 0 union all select n + 1 from n where n < ${rounds - 1})
      select n from n where n < ${rounds};
    insert into account (${accountTable.list()}) select id, 1 + 2 * ${rounds}, ${cap} - ${cost} * ${rounds}, 0, 0, 0, null,
      0, 0, 0, 0, 0, 0, null, 'bench', null, 'active', null, ${startsMs},
      ${cap}, 'bench', 1, 'P1D', ${startsMs}, ${startsMs}, ${endsMs}, 1, 1,
      0, 'bench', 1, 'P1D', ${startsMs}, ${startsMs}, ${endsMs}, 1, 1 from a;
    insert into api_key (account, id, hash, last_four, models, created_ms, requests_tat_ms, tokens_tat_ms, holds, held, used, budget_since)
      select id, key, printf('%064d', n), 'abcd', '["*"]', ${startsMs}, 0, 0, 0, 0, 0, 0 from a;
    insert into journal select id, 1, ${startsMs}, 'open', 'open', 'bench', ${cap}, 0, 0, ${cap}, 0, 0 from a;
    insert into credit_grant (account, seq, bucket, cause, at_ms, amount, plan, version, anchor_ms, starts_ms, ends_ms,
        since, spent, held)
      select id, 1, bucket, 'open', ${startsMs}, amount, 'bench', 1, ${startsMs}, ${startsMs}, ${endsMs}, 1, 0, 0
      from a cross join (select 'base' as bucket, ${cap} as amount union all select 'overage', 0);
    create temp view past as select a.id, a.key, r.n,
      ${startsMs} + (r.n * ${accounts} + a.n) / 200 as at_ms,
      printf('%08x-%04x-7%03x-8000-%012x', ${startsMs} / 65536, ${startsMs} % 65536, r.n % 4096, r.n * ${accounts} + a.n) as op,
      ${cap} - ${cost} * r.n as base from r cross join a;
    insert into journal select id, 2 + 2 * n + part, at_ms, kind, op || suffix, note,
      delta, 0, 0, base - ${held} + part * ${held - cost}, 0, 0
    from past cross join (
      select 0 as part, 'hold' as kind, '' as suffix, null as note, ${-held} as delta
      union all select 1, 'settle', '/end', 'stop', ${held - cost}
    );
    insert into charge select id, op, 3 + 2 * n, at_ms, key, 'bench', 'stop', 0, 0,
      ${used.promptTokens}, 0, ${used.completionTokens}, 0, 1, 1, 1, ${cost}, ${cost}, 0, 0, 0, 1, 1, 0, 0 from past;
    commit;
    pragma wal_checkpoint(truncate);
  `);
  db.close();
}
