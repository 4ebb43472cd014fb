/**
 * Processor time that the ledger adds to a token: answers with a hold and a settlement on disk,
 * against the same answers without a ledger, in the same run, in turns. Everything else about a
 * token is simulated: it takes `--token-us` microseconds, in a turn of the event loop. Answers
 * have half to one and a half times as many tokens as asked for, so that they do not end together.
 * All threads share one core.
 *
 *   npm run bench -- metering [--clients 1,32] [--tokens 64] [--token-us 5] [--seconds 1] \
 *     [--rounds 3]
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import timers from "node:timers/promises";
import { Ledger } from "../src/ledger/ledger.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { makeLedgerFile, plans } from "./ledger-file.ts";
import { numbersOf, optionsOf } from "./options.ts";
import { holdAndSettle } from "./pair.ts";
import { cores, medianOf } from "./servers.ts";

interface Measured {
  answersPerSecond: number;
  /** All threads together. */
  cpuMicros: number;
  p50Ms: number;
  commits: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    clients: "1,32",
    tokens: "64",
    "token-us": "5",
    seconds: "1",
    rounds: "3",
  });
  execFileSync("taskset", ["--all-tasks", "--cpu-list", "--pid", cores.server, `${process.pid}`]);
  const tokens = Number(values.tokens);
  const ms = Number(values.seconds) * 1000;
  const counts = numbersOf(values.clients);
  const folder = mkdtempSync(join(tmpdir(), "inkwell-bench-"));
  const path = join(folder, "inkwell.db");
  makeLedgerFile(path, Math.max(...counts), 0);
  const store = await openSqliteStore({ path, plans });
  let commits = 0;
  const ledger = new Ledger(store, { onCommit: () => (commits += 1) });

  const steps = stepsPerMicro() * Number(values["token-us"]);
  let turn = 0;
  const generate = async () => {
    turn += 1;
    const ofAnswer = tokens / 2 + ((turn * 7919) % (tokens + 1));
    for (let n = 0; n < ofAnswer; n += 1) {
      await timers.setImmediate();
      work(steps);
    }
  };
  const metered = (client: number) => holdAndSettle(ledger, client, { generate });
  const measure = async (answer: (client: number) => Promise<void>, clients: number): Promise<Measured> => {
    const latenciesMs: number[] = [];
    commits = 0;
    const cpu = process.cpuUsage();
    const beganMs = performance.now();
    const client = async (_: unknown, n: number) => {
      for (let lastMs = performance.now(); lastMs < beganMs + ms; ) {
        await answer(n);
        const nowMs = performance.now();
        latenciesMs.push(nowMs - lastMs);
        lastMs = nowMs;
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    const { user, system } = process.cpuUsage(cpu);
    return {
      answersPerSecond: (latenciesMs.length / (performance.now() - beganMs)) * 1000,
      cpuMicros: (user + system) / latenciesMs.length,
      p50Ms: medianOf(latenciesMs),
      commits: commits / latenciesMs.length,
    };
  };

  const table: Record<string, string>[] = [];
  for (const clients of counts) {
    const withLedger: Measured[] = [];
    const floor: Measured[] = [];
    // The first round compiles the code and is not counted.
    for (let round = 0; round <= Number(values.rounds); round += 1) {
      withLedger.push(await measure(metered, clients));
      floor.push(await measure(generate, clients));
    }
    const median = (of: keyof Measured, from = withLedger) => medianOf(from.slice(1).map((each) => each[of]));
    const addedMicros = median("cpuMicros") - median("cpuMicros", floor);
    table.push({
      clients: `${clients}`,
      "answers/s": median("answersPerSecond").toFixed(0),
      "of floor": (median("answersPerSecond") / median("answersPerSecond", floor)).toFixed(2),
      "p50 ms": median("p50Ms").toFixed(2),
      "floor p50": median("p50Ms", floor).toFixed(2),
      "CPU µs/answer": median("cpuMicros").toFixed(0),
      "floor CPU": median("cpuMicros", floor).toFixed(0),
      "ledger µs/token": (addedMicros / tokens).toFixed(2),
      "operations/commit": (2 / median("commits")).toFixed(1),
    });
  }
  await ledger.idle();
  await store.close();
  rmSync(folder, { recursive: true });
  console.log(
    `Answers of ${tokens} tokens on one core, median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

let sum = 0;

function work(steps: number): void {
  for (let n = 0; n < steps; n += 1) sum = (sum * 31 + n) >>> 0;
}

/** The best of many tries, because other processes interrupt some. */
function stepsPerMicro(): number {
  const steps = 10_000;
  let bestMs = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 200; tries += 1) {
    const beganMs = performance.now();
    work(steps);
    bestMs = Math.min(bestMs, performance.now() - beganMs);
  }
  return steps / (bestMs * 1000);
}
