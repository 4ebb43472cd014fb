/**
 * `npm run torture -- [options]`: tests the ledger with random operations and faults, for any
 * time.
 */
import { torture } from "../test/fixtures/torture.ts";
import { subjects } from "../test/fixtures/torture-subjects.ts";
import { optionsOf, refuse, wholeNumber } from "./options.ts";
import { tortureFrontEnd } from "./torture-front-end.ts";
import { tortureByKilling } from "./torture-kill.ts";
import { ledgers } from "./torture-ledger.ts";

const usage = `Usage: npm run torture -- [options]
  --ops N       at least so many operations on each store (default 1000000)
  --seed S      the seed to begin with
  --store NAME  ${Object.keys(subjects).join(", ")}; default: one after the other
  --kill        instead: the real server with clients, killed again and again, on ${Object.keys(ledgers).join(" and ")}
  --cycles N    with --kill: how often (default 20)
  --up MS       with --kill and --front-end: the longest time between two kills (default 6000)
  --front-end   instead: people behind one key of a front end, on nodes that are killed
  --people N    with --front-end: how many (default 1000)
  --requests N  with --front-end: how many they send together (default 20000)
  --workers N   with --front-end on PostgreSQL: one service with so many workers; kills of any of its processes
  --quick       with --kill: holds of a killed service end after 8 s, not after 30 s`;

const values = optionsOf(usage, {
  ops: { type: "string", default: "1000000" },
  seed: { type: "string", default: String(Date.now() & 0x3fff_ffff) },
  store: { type: "string" },
  kill: { type: "boolean", default: false },
  cycles: { type: "string", default: "20" },
  up: { type: "string", default: "6000" },
  "front-end": { type: "boolean", default: false },
  people: { type: "string", default: "1000" },
  requests: { type: "string", default: "20000" },
  workers: { type: "string", default: "1" },
  quick: { type: "boolean", default: false },
});

function whole(name: "ops" | "seed" | "cycles" | "up" | "people" | "requests" | "workers"): number {
  return wholeNumber(usage, name, values[name]);
}

/** Finds it by its name or the start of its name, in any case. */
function isStore(name: string, given: string): boolean {
  return given !== "" && name.toLowerCase().startsWith(given.toLowerCase());
}

/** The stores of these that `--store` names. */
function chosen(names: readonly string[]): readonly string[] {
  const { store } = values;
  const found = store === undefined ? names : names.filter((name) => isStore(name, store)).slice(0, 1);
  return found.length === 0 ? refuse(usage, `There is no store "${store}".`) : found;
}

async function byOperations(): Promise<void> {
  for (const name of chosen(Object.keys(subjects))) {
    const subject = subjects[name];
    if (subject === undefined) refuse(usage, `There is no store "${name}".`);
    console.log(`${name}, seed ${values.seed}`);
    const startedMs = performance.now();
    const result = await torture({
      subject,
      operationsMin: whole("ops"),
      seed: whole("seed"),
      onProgress: ({ operations }) => process.stderr.write(`\r${operations.toLocaleString("en")} operations`),
    });
    const seconds = (performance.now() - startedMs) / 1000;
    const { none, ...faults } = result.faults;
    console.log(
      `\n${result.operations.toLocaleString("en")} operations in ${result.commits.toLocaleString("en")} commits, ` +
        `${seconds.toFixed(0)} s, no difference and nothing for the audit.`,
    );
    console.log(
      `Commits that failed: ${Object.entries(faults)
        .map(([fault, times]) => `${fault} ${times}`)
        .join(", ")}`,
    );
  }
}

async function byKills(): Promise<void> {
  for (const store of chosen(Object.keys(ledgers))) {
    await tortureByKilling({
      store,
      seed: whole("seed"),
      cycles: whole("cycles"),
      upMsMax: whole("up"),
      isQuick: values.quick,
    });
  }
}

async function behindFrontEnd(): Promise<void> {
  const workers = whole("workers");
  for (const store of chosen(workers > 1 ? ["PostgreSQL"] : Object.keys(ledgers))) {
    const [seed, people, requests, upMsMax] = [
      whole("seed"),
      whole("people"),
      whole("requests"),
      whole("up"),
    ];
    await tortureFrontEnd({ store, seed, people, requests, workers, upMsMax });
  }
}

if (values["front-end"]) await behindFrontEnd();
else await (values.kill ? byKills() : byOperations());
