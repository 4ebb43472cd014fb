/**
 * `npm run torture -- [options]`: tests the ledger with random operations and faults, for any
 * time.
 */
import { parseArgs } from "node:util";
import { messageOf } from "../src/errors.ts";
import { torture } from "../test/fixtures/torture.ts";
import { subjects } from "../test/fixtures/torture-subjects.ts";
import { tortureByKilling } from "./torture-kill.ts";
import { ledgers } from "./torture-ledger.ts";

const usage = `Usage: npm run torture -- [options]
  --ops N       at least so many operations on each store (default 1000000)
  --seed S      the seed to begin with
  --store NAME  ${Object.keys(subjects).join(", ")}; default: one after the other
  --kill        instead: the real server with clients, killed again and again, on ${Object.keys(ledgers).join(" and ")}
  --cycles N    with --kill: how often (default 20)
  --up MS       with --kill: the longest time between two kills (default 6000)`;

function refuse(problem: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}

function given() {
  try {
    return parseArgs({
      options: {
        ops: { type: "string", default: "1000000" },
        seed: { type: "string", default: String(Date.now() & 0x3fff_ffff) },
        store: { type: "string" },
        kill: { type: "boolean", default: false },
        cycles: { type: "string", default: "20" },
        up: { type: "string", default: "6000" },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (error) {
    return refuse(messageOf(error));
  }
}

const values = given();
if (values.help) {
  console.log(usage);
  process.exit(0);
}

function whole(name: "ops" | "seed" | "cycles" | "up"): number {
  const number = Number(values[name]);
  if (Number.isSafeInteger(number) && number >= (name === "seed" ? 0 : 1)) return number;
  return refuse(`--${name} is a whole number above 0, not ${values[name]}`);
}

/** Finds it by its name or the start of its name, in any case. */
function isStore(name: string, given: string): boolean {
  return given !== "" && name.toLowerCase().startsWith(given.toLowerCase());
}

/** The stores of these that `--store` names. */
function chosen(names: readonly string[]): readonly string[] {
  const { store } = values;
  const found = store === undefined ? names : names.filter((name) => isStore(name, store)).slice(0, 1);
  return found.length === 0 ? refuse(`There is no store "${store}".`) : found;
}

async function byOperations(): Promise<void> {
  for (const name of chosen(Object.keys(subjects))) {
    const subject = subjects[name];
    if (subject === undefined) refuse(`There is no store "${name}".`);
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
    await tortureByKilling({ store, seed: whole("seed"), cycles: whole("cycles"), upMsMax: whole("up") });
  }
}

await (values.kill ? byKills() : byOperations());
