/**
 * Ledger files for benchmarks: accounts with a key each, and a history of the requested length,
 * written at once. They are sound: `inkwell audit` finds nothing.
 */
import { newKeyOf } from "../src/ledger/key-facts.ts";
import type { Plan, Plans } from "../src/ledger/plan.ts";
import { timesAt } from "../src/ledger/snapshot.ts";
import { SqliteCommits } from "../src/store/sqlite/commits.ts";
import { openToWrite } from "../src/store/sqlite/open-to-write.ts";
import { chargeTable } from "../src/store/tables.ts";
import { keyOf } from "../test/fixtures/ledger-rows.ts";

/** Enough credits for every benchmark. */
const plan: Plan = {
  id: "bench",
  base: { credits: 9_000_000, every: "P1D", align: "opening" },
  overage: { credits: 0, every: "P1D", align: "opening" },
  caps: [],
  limits: {},
  models: ["*"],
  timezone: "UTC",
};

export const plans: Plans = new Map([[plan.id, plan]]);

const capRules = [
  { name: "PT5H", every: "PT5H", align: "opening", models: ["*"] },
  { name: "P1W", every: "P1W", align: "calendar", models: ["*"] },
  { name: "P1M", every: "P1M", align: "calendar", models: ["*"] },
  { name: "dear", every: "P1D", align: "calendar", models: ["be*"] },
] as const;

/** The same plan with four caps, which count everything and are never reached. */
export const cappedPlans: Plans = new Map([
  [plan.id, { ...plan, caps: capRules.map((rule) => ({ ...rule, credits: 8_000_000 })) }],
]);
const keyCaps = [{ every: "P1M", amountMicro: 8_000_000_000_000, byOperator: false }] as const;
export const price = { prompt: 1, completion: 1 };
/** Usage of every request in these files, which determines its cost in micro-credits. */
export const usage = { promptTokens: 10, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 };

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
 * `charges` are spread evenly over the accounts. The ledger opens the accounts, and the history is
 * written with one statement. With `cappedPlans`, each key has a cap too, and there is no history:
 * its charges would not be counted.
 */
export function makeLedgerFile(path: string, accounts: number, charges: number, plansOf = plans): void {
  const isCapped = plansOf === cappedPlans;
  if (isCapped && charges > 0) throw new Error("a file with caps has no history");
  const startMs = Date.now() - 3_600_000;
  const db = openToWrite({ path, busyMs: 5000 }, { nowMs: startMs, plans: plansOf });
  db.exec("pragma synchronous = off");
  const commits = new SqliteCommits(db, () => timesAt(startMs));
  const by = "bench";
  for (let n = 0; n < accounts; n += 1) {
    const [account, key] = [accountId(n), keyId(n)];
    const row = newKeyOf({ ...keyOf(key, account), hash: String(n).padStart(64, "0") });
    const caps = isCapped ? keyCaps : [];
    const issue = { kind: "issue", account, key, row, caps, keysMax: null, creator: null } as const;
    commits.commit([
      { kind: "open", account, plan: plan.id, by },
      { ...issue, by },
    ]);
  }
  // Whole rounds over the accounts, so that all have equal histories.
  const rounds = Math.ceil(charges / accounts);
  const cost = usage.promptTokens + usage.completionTokens;
  db.exec(`
    begin;
    create temp table r as with recursive n(n) as (select 1 union all select n + 1 from n where n < ${rounds})
      select n from n where n <= ${rounds};
    insert into charge (${chargeTable.list()})
      select a.id, printf('%08x-%04x-7%03x-8000-%012x', ${startMs} / 65536, ${startMs} % 65536, r.n % 4096,
          r.n * ${accounts} + a.rowid),
        a.seq + r.n, ${startMs} + (r.n * ${accounts} + a.rowid) / 200, k.id, 1, 'bench', 'stop', null, 0, null, 0,
        ${usage.promptTokens}, 0, ${usage.completionTokens}, 0, 1, 1, 1, ${cost}, ${cost}, 0, 0,
        json_array(json_array(a.base_seq, 'base', ${cost})), 0
      from r cross join (select row_number() over (order by id) as rowid, id, seq, base_seq from account) a
      join api_key k on k.account = a.id;
    update account set seq = seq + ${rounds}, base_spent = base_spent + ${cost * rounds},
      at_ms = (select c.at_ms from charge c where c.account = account.id and c.seq = account.seq + ${rounds})
      where ${rounds} > 0;
    commit;
    pragma wal_checkpoint(truncate);
  `);
  db.close();
}
