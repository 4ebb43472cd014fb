/**
 * Pairs of hold and settlement per second through the ledger: batcher, kernel, SQLite in its
 * thread, every commit synced to disk. The floor, in turns in the same run, is a raw loop of the
 * same writes in batches of the same sizes.
 *
 *   npm run bench -- ledger [--callers 1,32,512] [--accounts 1,10000] [--rows 0,1000000] \
 *     [--caps 0,4] [--seconds 1] [--rounds 3]
 *
 * A caller takes a hold and, when that is on disk, settles it; then again. `rows` are the journal
 * entries that are there before. A latency is that of a pair, so of two commits. With caps, the
 * plan has four and each key one; they are measured in turns with the same accounts without, on
 * files without rows.
 */

import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ledger } from "../src/ledger/ledger.ts";
import type { Operation } from "../src/ledger/operations.ts";
import type { Plans } from "../src/ledger/plan.ts";
import { openToWrite } from "../src/store/sqlite/open-to-write.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { cappedPlans, makeLedgerFile, nextAccount, plans } from "./ledger-file.ts";
import { numbersOf, optionsOf } from "./options.ts";
import { holdAndSettle } from "./pair.ts";
import { type Batch, rawLoop } from "./raw-ledger.ts";
import { medianOf } from "./servers.ts";

export interface Measured {
  pairsPerSecond: number;
  /** Processor time of all threads. */
  cpuMicrosPerPair: number;
  p50Ms: number;
  p99Ms: number;
  operationsPerCommit: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    callers: "1,32,512",
    accounts: "1,10000",
    rows: "0,1000000",
    caps: "0",
    seconds: "1",
    rounds: "3",
  });
  const ms = Number(values.seconds) * 1000;
  const folder = mkdtempSync(join(tmpdir(), "inkwell-bench-"));
  const table: Record<string, string>[] = [];
  try {
    for (const rows of numbersOf(values.rows)) {
      for (const accounts of numbersOf(values.accounts)) {
        const files = numbersOf(values.caps).map((caps) => {
          const path = join(folder, `${rows}-${accounts}-${caps}.db`);
          const plansOf = caps === 0 ? plans : cappedPlans;
          return { caps, ...ledgerAndFloor(path, accounts, { rows, plansOf }) };
        });
        for (const callers of numbersOf(values.callers)) {
          const measured = files.map((file) => ({ file, ledger: [] as Measured[], floor: [] as Measured[] }));
          for (let round = 0; round < Number(values.rounds); round += 1) {
            for (const { file, ledger, floor } of measured) {
              const batches: Batch[] = [];
              ledger.push(await throughLedger(file, { accounts, callers, ms }, batches));
              floor.push(throughRawLoop(file, { accounts, ms }, batches));
            }
          }
          for (const { file, ledger, floor } of measured) {
            table.push(lineOf({ rows, accounts, caps: file.caps, callers }, ledger, floor));
          }
        }
        for (const { path } of files) {
          rmSync(path);
          rmSync(floorOf(path));
        }
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  console.log(`Pairs of hold and settlement, median of ${values.rounds} rounds of ${values.seconds} s`);
  console.table(table);
}

interface LedgerFile {
  path: string;
  plansOf: Plans;
}

const floorOf = (path: string) => `${path}.floor`;

/** Makes a ledger's file, and beside it the same for the floor. */
export function ledgerAndFloor(
  path: string,
  accounts: number,
  { rows = 0, plansOf = plans } = {},
): LedgerFile {
  makeLedgerFile(path, accounts, rows, plansOf);
  copyFileSync(path, floorOf(path));
  return { path, plansOf };
}

/** Fills `batches` with what the commits were made of. */
export async function throughLedger(
  { path, plansOf }: LedgerFile,
  { accounts, callers, ms }: { accounts: number; callers: number; ms: number },
  batches: Batch[],
): Promise<Measured> {
  const store = await openSqliteStore({ path, plans: plansOf });
  const counted = {
    commit(operations: readonly Operation[]) {
      const holds = operations.filter(({ kind }) => kind === "hold").length;
      batches.push({ holds, settlements: operations.length - holds });
      return store.commit(operations);
    },
  };
  const ledger = new Ledger(counted);
  let turn = 0;
  const pair = () => holdAndSettle(ledger, nextAccount(turn++, accounts));
  const callFor = async (ms: number, latenciesMs: number[]) => {
    const untilMs = performance.now() + ms;
    const caller = async () => {
      for (let beganMs = performance.now(); beganMs < untilMs; ) {
        await pair();
        const endedMs = performance.now();
        latenciesMs.push(endedMs - beganMs);
        beganMs = endedMs;
      }
    };
    await Promise.all(Array.from({ length: callers }, caller));
  };

  await callFor(ms / 4, []);
  batches.length = 0;
  const latenciesMs: number[] = [];
  const cpu = process.cpuUsage();
  const beganMs = performance.now();
  await callFor(ms, latenciesMs);
  const tookMs = performance.now() - beganMs;
  const { user, system } = process.cpuUsage(cpu);
  await ledger.idle();
  await store.close();
  latenciesMs.sort((a, b) => a - b);
  const operations = batches.reduce((sum, { holds, settlements }) => sum + holds + settlements, 0);
  return {
    pairsPerSecond: (latenciesMs.length / tookMs) * 1000,
    cpuMicrosPerPair: (user + system) / latenciesMs.length,
    p50Ms: latenciesMs[Math.floor(latenciesMs.length * 0.5)] ?? Number.NaN,
    p99Ms: latenciesMs[Math.floor(latenciesMs.length * 0.99)] ?? Number.NaN,
    operationsPerCommit: operations / batches.length,
  };
}

export function throughRawLoop(
  { path }: LedgerFile,
  { accounts, ms }: { accounts: number; ms: number },
  batches: readonly Batch[],
): Measured {
  const db = openToWrite({ path: floorOf(path), busyMs: 5000 }, { nowMs: Date.now(), plans });
  rawLoop(db, accounts, batches, ms / 4);
  const cpu = process.cpuUsage();
  const { pairs, ms: tookMs } = rawLoop(db, accounts, batches, ms);
  const { user, system } = process.cpuUsage(cpu);
  db.close();
  return {
    pairsPerSecond: (pairs / tookMs) * 1000,
    cpuMicrosPerPair: (user + system) / pairs,
    p50Ms: Number.NaN,
    p99Ms: Number.NaN,
    operationsPerCommit: Number.NaN,
  };
}

function lineOf(
  setting: { rows: number; accounts: number; caps: number; callers: number },
  ledger: readonly Measured[],
  floor: readonly Measured[],
): Record<string, string> {
  const median = (of: keyof Measured, from = ledger) => medianOf(from.map((each) => each[of]));
  const speeds = ledger.map(({ pairsPerSecond }) => pairsPerSecond);
  const spread = (Math.max(...speeds) - Math.min(...speeds)) / median("pairsPerSecond");
  return {
    "journal rows": `${setting.rows}`,
    accounts: `${setting.accounts}`,
    caps: `${setting.caps}`,
    callers: `${setting.callers}`,
    "pairs/s": median("pairsPerSecond").toFixed(0),
    "raw pairs/s": median("pairsPerSecond", floor).toFixed(0),
    ratio: (median("pairsPerSecond") / median("pairsPerSecond", floor)).toFixed(2),
    "p50 ms": median("p50Ms").toFixed(2),
    "p99 ms": median("p99Ms").toFixed(2),
    "ops/commit": median("operationsPerCommit").toFixed(0),
    "CPU µs/pair": median("cpuMicrosPerPair").toFixed(0),
    "raw CPU µs/pair": median("cpuMicrosPerPair", floor).toFixed(0),
    spread: `${(spread * 100).toFixed(0)} %`,
  };
}
