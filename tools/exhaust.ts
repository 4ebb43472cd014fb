/**
 * `npm run exhaust [-- WORLD ...]`: searches the small worlds of the ledger completely
 * (test/fixtures/exhaust.ts), two at a time, and prints what it has seen.
 *
 * Exit code 1: a check failed, and its shortest history is printed, or the worlds together never
 * came to a value that a check is for.
 */
import { once } from "node:events";
import { writeSync } from "node:fs";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { decide } from "../src/ledger/kernel.ts";
import { type SearchResult, search, Violation } from "../test/fixtures/exhaust.ts";
import { type SearchedWorld, smallWorlds, tellingValues } from "../test/fixtures/small-worlds.ts";

const usage = `Usage: npm run exhaust [-- WORLD ...]
${smallWorlds.map(({ name, about }) => `  ${name.padEnd(8)} ${about}`).join("\n")}
Without a name all of them are searched.`;

/** Worlds that are searched at the same time. */
const parallel = 2;
const heapMbMax = 6000;

/** The answer of a thread. */
type Searched =
  | { kind: "searched"; result: SearchResult; seconds: number }
  | { kind: "violation"; text: string };

function searchHere(world: SearchedWorld): Searched {
  const startedMs = performance.now();
  try {
    const onProgress = ({ depth, states, transitions }: SearchResult) =>
      // A console of a thread prints nothing before the search ends.
      writeSync(2, `${world.name}: depth ${depth}, ${states} states, ${transitions} transitions\n`);
    const result = search(world, { ...world, decide, onProgress });
    return { kind: "searched", result, seconds: (performance.now() - startedMs) / 1000 };
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    return { kind: "violation", text: error.message };
  }
}

async function searchInThread({ name }: SearchedWorld): Promise<Searched> {
  const resourceLimits = { maxOldGenerationSizeMb: heapMbMax };
  const worker = new Worker(import.meta.filename, { workerData: name, resourceLimits });
  const [searched]: Searched[] = await once(worker, "message");
  if (searched === undefined) throw new Error(`the search of the world ${name} has no result`);
  return searched;
}

function printCounts(title: string, counts: ReadonlyMap<string, number>): void {
  console.log(`  ${title}:`);
  for (const [name, times] of [...counts].sort(([one], [other]) => (one < other ? -1 : 1)))
    console.log(`    ${times.toLocaleString("en").padStart(12)}  ${name}`);
}

function print(world: SearchedWorld, { result, seconds }: Extract<Searched, { kind: "searched" }>): void {
  const { states, transitions, depth, outcomes, checks, marks } = result;
  const { name, about, batchMax, batchEvery, naiveEvery } = world;
  console.log(
    `${name}: ${about}\n  ${states.toLocaleString("en")} states, ${transitions.toLocaleString("en")} transitions, ` +
      `at most ${depth} steps deep, ${seconds.toFixed(0)} s\n  batches of up to ${batchMax} in each state, all ` +
      `batches in 1 of ${batchEvery}; the naive ledger in 1 of ${naiveEvery}`,
  );
  printCounts("answers to single operations", outcomes);
  printCounts("checks", checks);
  printCounts("values that the checks saw", marks);
}

async function searchAll(names: readonly string[]): Promise<boolean> {
  if (names.includes("--help")) {
    console.log(usage);
    return true;
  }
  const known = new Set(smallWorlds.map(({ name }) => name));
  const unknown = names.find((name) => !known.has(name));
  if (unknown !== undefined) {
    console.error(`There is no world "${unknown}".\n${usage}`);
    process.exit(2);
  }
  const chosen = smallWorlds.filter(({ name }) => names.length === 0 || names.includes(name));
  const waiting = [...chosen];
  const seen = new Set<string>();
  let isSound = true;
  const work = async () => {
    for (let world = waiting.shift(); world !== undefined; world = waiting.shift()) {
      const searched = await searchInThread(world);
      if (searched.kind === "violation") {
        console.log(`${world.name}: ${searched.text}`);
        isSound = false;
        continue;
      }
      print(world, searched);
      for (const value of searched.result.marks.keys()) seen.add(value);
    }
  };
  await Promise.all(Array.from({ length: parallel }, work));
  const missing = names.length === 0 ? tellingValues.filter((value) => !seen.has(value)) : [];
  if (missing.length > 0) console.log(`No world came to: ${missing.join("; ")}`);
  return isSound && missing.length === 0;
}

if (isMainThread) {
  process.exitCode = (await searchAll(process.argv.slice(2))) ? 0 : 1;
} else {
  const world = smallWorlds.find(({ name }) => name === workerData);
  if (world !== undefined) parentPort?.postMessage(searchHere(world));
}
