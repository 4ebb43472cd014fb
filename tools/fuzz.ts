/**
 * `npm run fuzz -- TARGET [--minutes N] [--seed N]`: feeds mutations of test/corpus/TARGET to a
 * reader, in a process of its own.
 *
 * It looks for crashes, hangs, long work, growing memory, refusals that are not the documented
 * ones, and unclean text (test/fixtures/fuzz-targets.ts). Each finding is made small and kept in
 * the corpus, which `npm test` replays. Exit code 1: something was found. Without feedback from
 * the code, an input with a new outcome becomes a seed of further mutations.
 */
import { type ChildProcess, fork } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import type { FuzzReply } from "../test/fixtures/fuzz-child.ts";
import { corpusFolder, type FuzzTarget, targets } from "../test/fixtures/fuzz-targets.ts";
import { randomOf } from "../test/fixtures/random.ts";

const usage = `Usage: npm run fuzz -- TARGET [options]
  TARGET       ${Object.keys(targets).join(", ")}
  --minutes N  how long (default 10)
  --seed N     of the random numbers (default: the time)`;

const inputBytesMax = 1_048_576;
const hangMs = 20_000;
const heapMbMax = 512;
/** Of the process. Beyond the limit of the heap, buffers are counted. */
const residentMbMax = 1000;
const seedsMax = 2000;
const minimizeRuns = 200;

type Random = (below: number) => number;

/** A finding, or null. */
type Verdict = { kind: string; text: string } | null;

/** Reads inputs in a child, which is replaced after a crash or a hang. */
class Reader {
  readonly #name: string;
  readonly #target: FuzzTarget;
  readonly #folder = mkdtempSync(path.join(tmpdir(), "inkwell-fuzz-"));
  #child: ChildProcess | null = null;
  lastOutcome: string | null = null;

  constructor(name: string, target: FuzzTarget) {
    this.#name = name;
    this.#target = target;
  }

  async read(bytes: Buffer): Promise<Verdict> {
    const first = await this.#readOnce(bytes);
    if (first?.kind !== "slow") return first;
    // A collection of garbage, or another process, may have been in the way.
    const again = await this.#readOnce(bytes);
    return again?.kind === "slow" ? await this.#readOnce(bytes) : again;
  }

  async #readOnce(bytes: Buffer): Promise<Verdict> {
    const child = await this.#start();
    this.lastOutcome = null;
    const reply = await new Promise<FuzzReply | "hang" | "crash">((resolve) => {
      const timer = setTimeout(() => finish("hang"), hangMs);
      const onMessage = (message: FuzzReply) => finish(message);
      const onExit = () => finish("crash");
      const finish = (result: FuzzReply | "hang" | "crash") => {
        clearTimeout(timer);
        child.off("message", onMessage).off("exit", onExit);
        resolve(result);
      };
      child.on("message", onMessage).on("exit", onExit).send(bytes);
    });
    if (typeof reply === "string") {
      await this.#stop();
      return { kind: reply, text: `${reply} of the reader` };
    }
    const { outcome, failure, workMs, residentMb } = reply;
    this.lastOutcome = outcome;
    if (residentMb > residentMbMax) {
      await this.#stop();
      return { kind: "memory", text: `${Math.round(residentMb)} MB after this input` };
    }
    if (failure !== null) return { kind: "failure", text: failure };
    if (workMs > this.#target.workMsMax) {
      return { kind: "slow", text: `${Math.round(workMs)} ms of work` };
    }
    return null;
  }

  async #start(): Promise<ChildProcess> {
    if (this.#child !== null) return this.#child;
    const module = path.join(import.meta.dirname, "../test/fixtures/fuzz-child.ts");
    const child = fork(module, [this.#name, this.#folder], {
      serialization: "advanced",
      execArgv: [`--max-old-space-size=${heapMbMax}`],
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    await once(child, "message");
    this.#child = child;
    return child;
  }

  async #stop(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  async close(): Promise<void> {
    await this.#stop();
    rmSync(this.#folder, { recursive: true });
  }
}

const numbers = [
  0,
  1,
  2,
  8,
  127,
  255,
  256,
  32_767,
  65_535,
  65_536,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32 - 1,
  2 ** 53,
];

/** Changes one place of the input. */
function mutated(input: Buffer, others: readonly Buffer[], words: readonly string[], random: Random): Buffer {
  const at = random(input.length + 1);
  const end = Math.min(input.length, at + 1 + random(random(4) === 0 ? input.length + 1 : 16));
  const [before, part, behind] = [input.subarray(0, at), input.subarray(at, end), input.subarray(end)];
  const word = () => Buffer.from(words[random(words.length)] ?? "");
  switch (random(10)) {
    case 0:
      return Buffer.concat([before, behind]);
    case 1:
      return Buffer.concat([before, part, part, behind]);
    case 2: {
      const times = Math.min(2 ** random(18), Math.floor(inputBytesMax / Math.max(1, part.length)));
      return Buffer.concat([before, ...Array(times).fill(part), behind]);
    }
    case 3:
      return Buffer.concat([before, word(), part, behind]);
    case 4:
      return Buffer.concat([before, word(), behind]);
    case 5: {
      const other = others[random(others.length)] ?? input;
      const from = random(other.length + 1);
      return Buffer.concat([before, other.subarray(from, from + 1 + random(256)), behind]);
    }
    case 6:
      return Buffer.concat([before, Buffer.from(String(numbers[random(numbers.length)])), behind]);
    case 7: {
      const width = [1, 2, 4, 8][random(4)] ?? 1;
      const number = Buffer.alloc(8);
      number.writeBigUInt64LE(BigInt(numbers[random(numbers.length)] ?? 0));
      return Buffer.concat([
        before,
        number.subarray(0, width),
        input.subarray(Math.min(input.length, at + width)),
      ]);
    }
    case 8:
      return before;
    default: {
      const copy = Buffer.from(input);
      if (copy.length > 0) copy[at % copy.length] = random(256);
      return copy;
    }
  }
}

/** Removes parts of a failing input as long as it fails in the same way. */
async function minimized(input: Buffer, kind: string, reader: Reader): Promise<Buffer> {
  if (kind === "hang") return input;
  let small = input;
  let runs = 0;
  for (
    let size = Math.ceil(small.length / 2);
    size >= 1 && runs < minimizeRuns;
    size = Math.floor(size / 2)
  ) {
    for (let at = 0; at < small.length && runs < minimizeRuns; ) {
      const shorter = Buffer.concat([small.subarray(0, at), small.subarray(at + size)]);
      runs += 1;
      if ((await reader.read(shorter))?.kind === kind) small = shorter;
      else at += size;
    }
  }
  return small;
}

async function fuzz(name: string, target: FuzzTarget, minutes: number, seed: number): Promise<number> {
  const folder = path.join(corpusFolder, name);
  mkdirSync(folder, { recursive: true });
  const seeds: Buffer[] = readdirSync(folder).map((file) => readFileSync(path.join(folder, file)));
  const outcomes = new Set<string>();
  const found = new Set<string>();
  const random = randomOf(seed);
  const reader = new Reader(name, target);
  const endMs = performance.now() + minutes * 60_000;
  let runs = 0;
  const run = async (input: Buffer) => {
    runs += 1;
    const verdict = await reader.read(input);
    const { lastOutcome } = reader;
    if (lastOutcome !== null && !outcomes.has(lastOutcome)) {
      outcomes.add(lastOutcome);
      if (seeds.length < seedsMax) seeds.push(input);
    }
    if (verdict === null) return;
    const [summary = "", place = ""] = [verdict.text, /^ +at .*/m.exec(verdict.text)?.[0]];
    const title = `${verdict.kind} ${place === "" ? summary.replace(/\d+/g, "#") : place}`;
    if (found.has(title)) return;
    found.add(title);
    const small = await minimized(input, verdict.kind, reader);
    const file = path.join(
      folder,
      `${verdict.kind}-${createHash("sha256").update(small).digest("hex").slice(0, 8)}`,
    );
    writeFileSync(file, small);
    console.log(`${path.relative(process.cwd(), file)} (${small.length} bytes): ${summary.slice(0, 2000)}`);
  };
  try {
    for (const input of [...seeds]) await run(input);
    while (performance.now() < endMs) {
      let input: Buffer = seeds[random(seeds.length)] ?? Buffer.of();
      for (let steps = 1 + random(4); steps > 0; steps -= 1)
        input = mutated(input, seeds, target.words, random);
      await run(input.subarray(0, inputBytesMax));
    }
  } finally {
    await reader.close();
  }
  console.log(`${name}: ${runs} inputs, ${outcomes.size} outcomes, ${found.size} findings (seed ${seed})`);
  return found.size;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { minutes: { type: "string", default: "10" }, seed: { type: "string" } },
});
const [name = ""] = positionals;
const target = targets[name];
const [minutes, seed] = [Number(values.minutes), Number(values.seed ?? Date.now() & 0x3fff_ffff)];
if (target === undefined || !(minutes > 0) || !Number.isSafeInteger(seed)) {
  console.error(usage);
  process.exit(2);
}
process.exitCode = (await fuzz(name, target, minutes, seed)) === 0 ? 0 : 1;
