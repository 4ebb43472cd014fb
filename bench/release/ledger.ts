/** Hold and settlement on SQLite, against raw statements in batches of the same sizes. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ledgerAndFloor, type Measured, throughLedger, throughRawLoop } from "../ledger.ts";
import type { Batch } from "../raw-ledger.ts";
import { type Options, type Result, rangeOf } from "./measure.ts";

export async function ledger({ seconds, passes }: Options): Promise<Result[]> {
  const results: Result[] = [];
  const folder = mkdtempSync(join(tmpdir(), "inkwell-bench-"));
  const accounts = 1000;
  try {
    for (const callers of [32, 512]) {
      const file = ledgerAndFloor(join(folder, `${callers}.db`), accounts);
      const settings = { accounts, callers, ms: seconds * 250 };
      const ledger: Measured[] = [];
      const floor: Measured[] = [];
      let batches: Batch[] = [];
      for (let pass = 0; pass < passes; pass += 1) {
        // First in each second pass, with the batches of the pass before.
        const isFloorFirst = pass % 2 === 1;
        if (isFloorFirst) floor.push(throughRawLoop(file, settings, batches));
        batches = [];
        ledger.push(await throughLedger(file, settings, batches));
        if (!isFloorFirst) floor.push(throughRawLoop(file, settings, batches));
      }
      const ratios = (of: (one: Measured, other: Measured) => number) =>
        rangeOf(ledger.flatMap((one, pass) => floor.slice(pass, pass + 1).map((other) => of(one, other))));
      const figuresOf = (passes: Measured[]) =>
        `${rangeOf(
          passes.map(({ pairsPerSecond }) => pairsPerSecond),
          0,
        )} pairs/s; ${rangeOf(
          passes.map(({ cpuMicrosPerPair }) => cpuMicrosPerPair),
          0,
        )} µs of processor a pair`;
      results.push({
        workload: `hold and settlement on SQLite, ${callers} callers, ${accounts} accounts; the floor writes the same rows with raw statements`,
        result: ratios((one, other) => one.pairsPerSecond / other.pairsPerSecond),
        byTime: ratios((one, other) => other.cpuMicrosPerPair / one.cpuMicrosPerPair),
        target: "0.75",
        figures: [
          ["ledger", figuresOf(ledger)],
          ["raw statements", figuresOf(floor)],
        ],
      });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return results;
}
