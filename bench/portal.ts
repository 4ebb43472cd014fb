/**
 * Time of each route of the portal's API in a large SQLite ledger: an account with half of all
 * charges, and one of its keys that was used on the first day only. All requests come one after
 * another, from one page. The first request of a route is not in its median.
 *
 *   npm run bench -- portal [--charges 10000000] [--days 365] [--rounds 5] [--file FILE]
 *
 * `--file` keeps the ledger for further runs. Making one takes minutes.
 */
import { existsSync, linkSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { hashKey, mintKey } from "../src/accounts/keys.ts";
import { newKeyOf } from "../src/ledger/key-facts.ts";
import { timesAt } from "../src/ledger/snapshot.ts";
import { SqliteCommits } from "../src/store/sqlite/commits.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { chargeTable } from "../src/store/tables.ts";
import { dayMs } from "../src/units.ts";
import { startConsoleService } from "../test/fixtures/browser.ts";
import { keyOf } from "../test/fixtures/ledger-rows.ts";
import { accountId, makeLedgerFile, plans, usage } from "./ledger-file.ts";
import { optionsOf } from "./options.ts";
import { pageHeader, signIn } from "./sign-in.ts";

/** The large account, which has half of all charges. */
export const account = accountId(7);
/** Its keys. The last one has few charges, which are the oldest. */
export const keys = Array.from({ length: 20 }, (_, n) => ({ id: `key_large_${n}`, secret: mintKey() }));
const rare = { key: "key_large_19", charges: 100, model: "rare" };

/** Of the ledger. */
const configuration = `plans:
  bench: { base: { credits: 9000000, every: P1D }, overage: { credits: 0, every: P1D } }
`;

export async function run(args: readonly string[]): Promise<void> {
  const options = optionsOf(args, { charges: "10000000", days: "365", rounds: "5", file: "" });
  const [charges, days, rounds] = [options.charges, options.days, options.rounds].map(Number) as [
    number,
    number,
    number,
  ];
  const fill = (folder: string) => fillLarge(folder, { accounts: 1000, charges, days, file: options.file });
  await using service = await startConsoleService({ pages: "portal", fill });
  const table: Record<string, string | number>[] = [];
  for (const [rights, secret] of [
    ["account", keys[0]?.secret ?? ""],
    ["own", keys.at(-1)?.secret ?? ""],
  ] as const) {
    const cookie = await signIn(`${service.portalUrl}/api/session`, { key: secret });
    for (const path of pathsOf(rights, days)) {
      const tookMs: number[] = [];
      let rows = 0;
      for (let round = 0; round <= rounds; round += 1) {
        const beganMs = performance.now();
        const response = await fetch(service.portalUrl + path, {
          headers: { cookie, ...pageHeader },
        });
        const body = await response.text();
        tookMs.push(performance.now() - beganMs);
        rows = path.includes("format=csv") ? body.split("\n").length : rowsIn(body);
        if (response.status !== 200) console.error(`${path}: ${response.status} ${body.slice(0, 300)}`);
      }
      const [first = 0, ...others] = tookMs;
      const median = others.toSorted((a, b) => a - b)[Math.floor(others.length / 2)] ?? first;
      const times = { "first ms": first.toFixed(1), "median ms": median.toFixed(1) };
      table.push({ rights, path: `GET ${path}`, rows, ...times });
    }
  }
  console.log(`An account with half of ${charges} charges of ${days} days`);
  console.table(table);
}

function rowsIn(body: string): number {
  const { data } = JSON.parse(body);
  return Array.isArray(data) ? data.length : 0;
}

function pathsOf(rights: "own" | "account", days: number): string[] {
  const dayAt = (ago: number) =>
    new Date((Math.floor(Date.now() / dayMs) - ago) * dayMs).toISOString().slice(0, 10);
  const periods = [30, days].map((from) => `from=${dayAt(from)}&to=${dayAt(-1)}`);
  const [month, all] = periods;
  const both = [
    "/api/session",
    "/api/account",
    "/api/models",
    "/api/keys?limit=500",
    "/api/requests?limit=50",
    `/api/requests?limit=50&from=${dayAt(2)}&to=${dayAt(1)}`,
    `/api/requests?limit=50&from=${dayAt(days / 2 + 1)}&to=${dayAt(days / 2)}`,
    "/api/requests?limit=50&model=rare",
    `/api/requests?limit=50&model=rare&from=${dayAt(30)}`,
    ...["day", "model", "key"].flatMap((by) => [
      `/api/usage?by=${by}&${month}`,
      `/api/usage?by=${by}&${all}`,
    ]),
    `/api/usage?by=model&order=cost&limit=7&${month}`,
    `/api/usage?by=day&model=rare&${all}`,
    `/api/usage?by=day&format=csv&${all}`,
    "/api/usage/hours?by=model",
    "/api/usage/hours?hours=168",
  ];
  if (rights === "own") return both;
  return [
    ...both,
    `/api/requests?limit=50&key=${rare.key}`,
    `/api/requests?limit=50&key=${keys[1]?.id}&model=small`,
    `/api/usage?by=day&key=${rare.key}&${all}`,
    `/api/usage/hours?key=${keys[1]?.id}`,
  ];
}

interface LargeLedger {
  accounts: number;
  charges: number;
  days: number;
  /** Keeps the ledger for further runs. Empty: nothing is kept. */
  file: string;
}

/** Makes configuration and ledger of a service in its folder. */
export async function fillLarge(folder: string, { file, ...size }: LargeLedger): Promise<void> {
  const path = join(folder, "data", "inkwell.db");
  mkdirSync(join(folder, "data"));
  writeFileSync(join(folder, "inkwell.yaml"), configuration);
  if (file !== "" && existsSync(file)) linkSync(file, path);
  else {
    await makeFile(path, size);
    if (file !== "") linkSync(path, file);
  }
  setSecrets(path);
}

/** A file that was kept has the secrets of another run. */
function setSecrets(path: string): void {
  const db = new DatabaseSync(path);
  const update = db.prepare("update api_key set hash = ? where id = ?");
  for (const { id, secret } of keys) update.run(hashKey(secret), id);
  db.close();
}

async function makeFile(path: string, { accounts, charges, days }: Omit<LargeLedger, "file">): Promise<void> {
  makeLedgerFile(path, accounts, 0);
  const db = new DatabaseSync(path);
  const cost = usage.promptTokens + usage.completionTokens;
  const startMs = Date.now() - days * dayMs;
  const commits = new SqliteCommits(db, () => timesAt(startMs));
  for (const [n, { id, secret }] of keys.entries()) {
    const portal = n === 0 ? "account" : "own";
    const row = newKeyOf({ ...keyOf(id, account), hash: hashKey(secret), portal });
    commits.commit([
      { kind: "issue", account, key: id, row, caps: [], keysMax: null, creator: null, by: "bench" },
    ]);
  }
  // The rare key and the rare model have the first charges of the account.
  db.exec(`
    pragma synchronous = off; pragma foreign_keys = off; pragma wal_autocheckpoint = 100000;
    begin;
    insert into charge (${chargeTable.list()})
    with recursive n(n) as (select 0 union all select n + 1 from n where n < ${charges - 1})
    select case n % 2 when 0 then '${account}' else printf('account-%05d', n * 7919 % ${accounts}) end,
      printf('charge-%09d', n), 2 + n,
      ${startMs} + cast(n * 1.0 / ${charges} * ${days * dayMs} as integer),
      case when n % 2 = 1 then printf('key_%016d', n * 7919 % ${accounts})
        when n < ${2 * rare.charges} then '${rare.key}' else 'key_large_' || (n / 2 % 19) end, 1,
      case when n < ${2 * rare.charges} then '${rare.model}' when n % 3 = 0 then 'small' else 'large' end,
      'stop', null, 0, null, 0, ${usage.promptTokens}, 0, ${usage.completionTokens}, 0, 1, 1, 1, ${cost}, ${cost}, 0, 0,
      json_array(json_array(1, 'base', ${cost})), 0
    from n;
    commit;
    pragma wal_checkpoint(truncate)`);
  db.close();
  const store = await openSqliteStore({ path, plans });
  while (await store.sumUsage("UTC"));
  await store.close();
}
