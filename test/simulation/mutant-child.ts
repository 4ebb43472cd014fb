/**
 * A process that runs one mutant: histories of clocks, simulated worlds, and then small worlds. It
 * reports each world that has ended, and the first violation. The process that started it ends it
 * if it hangs.
 */
import { messageOf } from "../../src/errors.ts";
import { loadBundle, simulationOf } from "./defects.ts";
import { bundled, type Edit } from "./process.ts";
import type { WorldOptions } from "./world.ts";

/** Events of each history of a clock. */
const clockEventsMax = 4;

/** Null: the sources as they are. */
export interface MutantRun {
  edit: Edit | null;
  worlds: readonly WorldOptions[];
  smallWorlds: readonly string[];
}

export type Report =
  | { kind: "world"; name: string; digest: string | null }
  | { kind: "violation"; name: string; text: string }
  | { kind: "end" };

function report(message: Report): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}

async function run({ edit, worlds, smallWorlds }: MutantRun): Promise<void> {
  const edits = edit === null ? [] : [edit];
  let name = "the start";
  try {
    const text = await bundled("test/simulation/searched.ts", { edits, format: "esm", packages: "external" });
    await using bundle = await loadBundle<typeof import("./searched.ts")>(text);
    const { search, searchClocks, smallWorlds: all, decide } = bundle.exports;
    name = "the histories of clocks";
    searchClocks(clockEventsMax);
    await using simulate = await simulationOf(edits);
    for (const options of worlds) {
      name = `seed ${options.seed}`;
      const { digest } = await simulate(options);
      await report({ kind: "world", name, digest });
    }
    for (const world of all.filter((each) => smallWorlds.includes(each.name))) {
      name = `the small world "${world.name}"`;
      search(world, { ...world, decide });
      await report({ kind: "world", name, digest: null });
    }
    await report({ kind: "end" });
  } catch (error) {
    await report({ kind: "violation", name, text: messageOf(error) });
  }
}

process.once("disconnect", () => process.exit());
process.once("message", (message: MutantRun) => {
  run(message).finally(() => process.exit());
});
