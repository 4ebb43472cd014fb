/** Workloads of parts of Inkwell: the ledger on SQLite, and the embedded engine. */
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { floorNames, measureEngine } from "../engine.ts";
import { ledgerAndFloor, type Measured, throughLedger, throughRawLoop } from "../ledger.ts";
import { defaultModel } from "../options.ts";
import type { Batch } from "../raw-ledger.ts";
import { compared, notMeasured, type Options, type Pass, type Result } from "./measure.ts";

/** Hold and settlement, against raw statements in batches of the same sizes. */
export async function ledger({ seconds, passes }: Options): Promise<Result[]> {
  const results: Result[] = [];
  const folder = mkdtempSync(join(tmpdir(), "inkwell-bench-"));
  const accounts = 1000;
  const passOf = (of: Measured) => ({ rate: of.pairsPerSecond, cpuMicros: of.cpuMicrosPerPair });
  for (const callers of [32, 512]) {
    const file = ledgerAndFloor(join(folder, `${callers}.db`), accounts);
    const settings = { accounts, callers, ms: seconds * 250 };
    const own = { title: "ledger", unit: "pair", passes: [] as Pass[] };
    const floor = { title: "raw statements", unit: "pair", passes: [] as Pass[] };
    let batches: Batch[] = [];
    for (let pass = 0; pass < passes; pass += 1) {
      // First in each second pass, with the batches of the pass before.
      const isFloorFirst = pass % 2 === 1;
      if (isFloorFirst) floor.passes.push(passOf(throughRawLoop(file, settings, batches)));
      batches = [];
      own.passes.push(passOf(await throughLedger(file, settings, batches)));
      if (!isFloorFirst) floor.passes.push(passOf(throughRawLoop(file, settings, batches)));
    }
    const workload = `hold and settlement on SQLite, ${callers} callers, ${accounts} accounts`;
    results.push(compared(workload, "0.75", own, floor));
  }
  rmSync(folder, { recursive: true });
  return results;
}

/** The embedded engine, against the llama-server that LLAMA_SERVER names. */
export async function engine({ passes: rounds }: Options): Promise<Result[]> {
  const workload = "embedded engine, of a native llama-server";
  const targets = { 1: "0.97", 4: "0.95", 8: "0.95" };
  if (process.env.LLAMA_SERVER === undefined)
    return [notMeasured(workload, Object.values(targets).join(", "), "LLAMA_SERVER is not set")];
  const threads = availableParallelism();
  const results: Result[] = [];
  const asked = { model: defaultModel, threads, tokens: 128, rounds };
  const passOf = (rate = Number.NaN): Pass => ({ rate, cpuMicros: Number.NaN });
  for await (const { settings, rounds } of measureEngine(asked, Object.keys(targets).map(Number))) {
    const own = rounds.map(({ inkwell }) => passOf(inkwell.tokensPerSecond));
    const floor = rounds.map(({ floors }) => passOf(floors[floorNames.server]?.tokensPerSecond));
    results.push(
      compared(
        `${workload}, ${settings.concurrent} at once, ${threads} threads, ${basename(asked.model)}`,
        Object.entries(targets).find(([count]) => Number(count) === settings.concurrent)?.[1] ?? "",
        { title: "Inkwell", unit: "token", passes: own },
        { title: "llama-server", unit: "token", passes: floor },
      ),
    );
  }
  return results;
}
