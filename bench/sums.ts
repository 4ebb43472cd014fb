/**
 * Sums of usage on a large SQLite ledger: the first summing of all charges beside commits, and the
 * time of each report, against one scan that adds up all charges.
 *
 *   npm run bench -- sums [--charges 10000000] [--accounts 1000] [--days 365] [--seconds 5]
 *
 * `--seconds` is the time of the commits before the summing.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { Ledger } from "../src/ledger/ledger.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import type { Store } from "../src/store/store.ts";
import { chargeTable } from "../src/store/tables.ts";
import type { UsageSumsQuery } from "../src/store/usage-sums.ts";
import { dayMs } from "../src/units.ts";
import { accountId, makeLedgerFile, plans, usage } from "./ledger-file.ts";
import { optionsOf } from "./options.ts";
import { holdAndSettle } from "./pair.ts";

export async function run(args: readonly string[]): Promise<void> {
  const options = optionsOf(args, { charges: "10000000", accounts: "1000", days: "365", seconds: "5" });
  const charges = Number(options.charges);
  const accounts = Number(options.accounts);
  const days = Number(options.days);
  const folder = mkdtempSync(join(tmpdir(), "inkwell-sums-"));
  const path = join(folder, "inkwell.db");
  try {
    makeLedgerFile(path, accounts, 0);
    addCharges(path, { charges, accounts, days });
    const floorMs = await timed("scan of all charges", async () => scan(path));
    const store = await openSqliteStore({ path, plans });
    try {
      await measure(store, { floorMs, accounts, idleMs: Number(options.seconds) * 1000 });
    } finally {
      await store.close();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function measure(
  store: Store,
  { floorMs, accounts, idleMs }: { floorMs: number; accounts: number; idleMs: number },
): Promise<void> {
  const ledger = new Ledger(store);
  const busy = Math.min(accounts, 100);
  await commits(ledger, busy, "idle", sleep(idleMs));
  const summing = timed("first summing", async () => {
    while (await store.sumUsage("UTC"));
  });
  await commits(ledger, busy, "beside the first summing", summing);
  const today = Math.floor(Date.now() / dayMs);
  const month = { from: today - 30, to: today };
  const account = accountId(Math.min(7, accounts - 1));
  const reports: [string, Omit<UsageSumsQuery, "order">][] = (
    ["day", "model", "key", "account"] as const
  ).flatMap((by) => [
    [`all days, by ${by}`, { by }],
    [`30 days, by ${by}`, { by, ...month }],
    [`one account, by ${by}`, { by, account }],
  ]);
  for (const [name, query] of reports) {
    const ms = await timed(name, async () => void (await store.usageSums({ order: "name", ...query })));
    console.log(`  ${(ms / floorMs).toFixed(4)} of the scan`);
  }
}

async function timed(name: string, work: () => Promise<void>): Promise<number> {
  const beganMs = performance.now();
  await work();
  const ms = performance.now() - beganMs;
  console.log(`${name}: ${ms.toFixed(1)} ms`);
  return ms;
}

/**
 * Holds and settles on these accounts, one after another until `end`, and prints how long each
 * pair took.
 */
async function commits(ledger: Ledger, accounts: number, name: string, end: Promise<unknown>): Promise<void> {
  let hasEnded = false;
  void end.finally(() => {
    hasEnded = true;
  });
  const tookMs: number[] = [];
  for (let n = 0; !hasEnded; n += 1) {
    const beganMs = performance.now();
    await holdAndSettle(ledger, n % accounts);
    tookMs.push(performance.now() - beganMs);
  }
  await end;
  tookMs.sort((a, b) => a - b);
  const at = (part: number) => (tookMs[Math.floor((tookMs.length - 1) * part)] ?? 0).toFixed(1);
  console.log(
    `hold and settlement, ${name}: ${tookMs.length} pairs, median ${at(0.5)}, p99 ${at(0.99)}, longest ${at(1)} ms`,
  );
}

function scan(path: string): void {
  const db = new DatabaseSync(path, { readOnly: true });
  db.prepare("select count(*), sum(cost), sum(prompt_tokens) from charge").get();
  db.close();
}

/** Charges alone, without holds and journal entries, two models for each account. */
function addCharges(
  path: string,
  { charges, accounts, days }: Record<"charges" | "accounts" | "days", number>,
) {
  const db = new DatabaseSync(path);
  const cost = usage.promptTokens + usage.completionTokens;
  const startMs = (Math.floor(Date.now() / dayMs) - days) * dayMs;
  db.exec(`
    pragma synchronous = off; pragma foreign_keys = off; pragma wal_autocheckpoint = 100000;
    begin;
    insert into charge (${chargeTable.list()})
    with recursive n(n) as (select 0 union all select n + 1 from n where n < ${charges - 1})
    select printf('account-%05d', n * 7919 % ${accounts}), printf('charge-%09d', n), 100 + n,
      ${startMs} + cast(n * 1.0 / ${charges} * ${days * dayMs} as integer), printf('key_%016d', n * 7919 % ${accounts}), 1,
      case n / ${accounts} % 2 when 0 then 'small' else 'large' end, 'stop', null, 0, null, 0,
      ${usage.promptTokens}, 0, ${usage.completionTokens}, 0, 1, 1, 1, ${cost}, ${cost}, 0, 0, json_array(json_array(1, 'base', ${cost})), 0
    from n;
    update account set seq = coalesce((select max(seq) from charge c where c.account = account.id), seq);
    commit;
    pragma wal_checkpoint(truncate)`);
  db.close();
}
