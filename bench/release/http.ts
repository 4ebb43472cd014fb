/** Workloads of the HTTP path. Each pass starts each server anew. */
import { closeSync, existsSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { noPostgres, start } from "../../test/fixtures/postgres.ts";
import { startLlamaService } from "../llama-service.ts";
import { defaultModel } from "../options.ts";
import { residentBytes } from "../processes.ts";
import { cores, medianOf, startServer } from "../servers.ts";
import { versionOf } from "../steady.ts";
import type { Options, Pass, Result, Side, Target } from "./measure.ts";
import * as measure from "./measure.ts";

const { compared, measurePass, rangeOf, rotated, runPasses, startBare, startInkwell } = measure;

/** The request that product and floor get alike. */
export function asked({ answer: { id: model, tokens } }: Pick<Options, "answer">, stream: boolean) {
  const messages = [{ role: "user", content: "Count from one to ten in words." }];
  return { tokens, body: { model, messages, max_tokens: tokens, stream } };
}

const passing = "bare, passes on the bytes";
const oneObject = "bare, one JSON object";

function side<S extends Omit<Side, "passes">>(of: S): S & { passes: Pass[] } {
  return { ...of, passes: [] };
}

/** Whole and streamed answers, and one client. */
export async function answers(options: Options): Promise<Result[]> {
  const { clients, seconds, answer } = options;
  const [whole, streamed] = [asked(options, false), asked(options, true)];
  // A whole answer tells its tokens, and a streamed one has an event for each.
  const isRight = (text: string) =>
    text.includes(`"completion_tokens":${answer.tokens},`) ||
    text.match(/"content":" /g)?.length === answer.tokens;
  const fsyncsMs: number[] = [];
  const startMeasured = async () => {
    const service = await startInkwell(options);
    fsyncsMs.push(fsyncMs(service.folder));
    return service;
  };
  const inkwell = side({ title: "Inkwell", ...whole, start: startMeasured });
  const bare = side({ title: oneObject, ...whole, start: () => startBare(options) });
  const title = "bare, reads the events";
  const reader = side({ title, ...whole, start: () => startBare(options, "reader") });
  const streaming = side({ title: "Inkwell", ...streamed, start: () => startInkwell(options) });
  const passes = side({ title: passing, ...streamed, start: () => startBare(options) });
  const alone = new Map<Side, Pass[]>([inkwell, bare, reader].map((each) => [each, []]));
  await runPasses(options, [inkwell, bare, reader, streaming, passes], async (server, each) => {
    const one = { seconds: seconds / 4, skippedSeconds: 0, clients: 1 };
    if (alone.has(each)) alone.get(each)?.push(await measurePass(server, each, one));
    await checkAnswer(server, each.body, isRight);
  });
  const aloneOf = (of: Side) => ({ title: of.title, passes: alone.get(of) ?? [] });
  const p50s = (of: Side) => aloneOf(of).passes.map(({ p50Ms = Number.NaN }) => p50Ms);
  const fsync = `${rangeOf(fsyncsMs)} ms for a page of 4 KiB in the folder of the ledger, median of 200`;
  const target = `two fsyncs and 0.4 ms: ${rangeOf(fsyncsMs.map((ms) => 2 * ms + 0.4))} ms`;
  const addedTo = (floor: Side, workload: string): Result => {
    const row = compared(workload, target, aloneOf(inkwell), aloneOf(floor));
    const addedMs = p50s(inkwell).map((ms, pass) => ms - (p50s(floor)[pass] ?? Number.NaN));
    return { ...row, result: `${rangeOf(addedMs)} ms`, figures: [...row.figures, ["fsync", fsync]] };
  };
  return [
    compared(`whole answers, ${clients} clients; the floor gets one JSON object`, "0.30", inkwell, bare),
    compared("the same; the floor reads the events and makes the object of them", "0.60", inkwell, reader),
    compared(`streamed tokens, ${clients} clients; the floor passes on the bytes`, "0.85", streaming, passes),
    addedTo(bare, "one client after them, SQLite: added to the p50 of the floor"),
    addedTo(reader, "the same; the floor reads the events and makes the object of them"),
  ];
}

/** Another gateway, which is warm unless it was started just before. */
export async function otherGateway(options: Options): Promise<Result[]> {
  const { other, clients } = options;
  if (other === null) return [];
  const { port, pid, key } = other;
  const target = {
    port,
    keys: Array(clients).fill(key),
    process: { pid },
    [Symbol.asyncDispose]: async () => {},
  };
  const results: Result[] = [];
  for (const stream of [false, true]) {
    const of = asked(options, stream);
    const model = stream ? other.streamed : other.whole;
    if (model === undefined) continue;
    const body = { ...of.body, model };
    const product = side({ ...of, ...other, body, start: async () => target });
    const floor = side({ title: stream ? passing : oneObject, ...of, start: () => startBare(options) });
    await runPasses(options, [product, floor]);
    const workload = `${stream ? "streamed tokens" : "whole answers"}, ${clients} clients`;
    results.push(compared(workload, "none", product, floor));
  }
  return results;
}

/** Throws unless an answer is right, so that no failure is measured. */
async function checkAnswer(
  { port, keys }: Target,
  body: object,
  isRight: (text: string) => boolean,
): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${keys[0]}` },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!isRight(text)) throw new Error(`a wrong answer: ${text}`);
}

/** Median of appends of a page to a file of this folder, each with its fsync. */
function fsyncMs(folder: string): number {
  const path = join(folder, "fsyncs");
  const file = openSync(path, "w");
  const tookMs = Array.from({ length: 200 }, () => {
    const beganMs = performance.now();
    writeSync(file, Buffer.alloc(4096));
    fsyncSync(file);
    return performance.now() - beganMs;
  });
  closeSync(file);
  rmSync(path);
  return medianOf(tookMs);
}

const debian = "/usr/lib/postgresql/15/bin";
const databases = [
  { title: "PostgreSQL 18, from npm", missing: noPostgres },
  {
    title: "PostgreSQL 15, of Debian",
    programs: debian,
    missing: existsSync(debian) ? noPostgres : "not installed",
  },
];

/** One long run on each database. The floor runs before and after them, a fifth as long. */
export async function onPostgres(options: Options): Promise<Result[]> {
  const { longSeconds } = options;
  const skippedSeconds = Math.floor(longSeconds / 6);
  const results: Result[] = [];
  for (const stream of [false, true]) {
    const kind = stream ? "streamed tokens" : "whole answers";
    const target = stream ? "0.60" : "0.20";
    const of = asked(options, stream);
    const floor = side({ title: stream ? passing : oneObject, ...of, start: () => startBare(options) });
    const once = { ...options, passes: 1, skippedSeconds, seconds: longSeconds };
    const runFloor = () => runPasses({ ...once, seconds: longSeconds / 3 }, [floor]);
    await runFloor();
    const ran = new Map<string, Side>();
    for (const { title, programs, missing } of stream ? databases.toReversed() : databases) {
      const product = side({ title, note: "", ...of, start: () => startOn(programs, options) });
      if (missing === null) {
        await runPasses(once, [product], async ({ version }) => {
          product.title = `Inkwell, PostgreSQL ${version}`;
        });
        product.note = byTenSeconds(product.passes[0]?.bySecond?.slice(skippedSeconds, longSeconds) ?? []);
        ran.set(`${kind}, ${title}, from second ${skippedSeconds} to ${longSeconds}`, product);
      } else results.push(measure.notMeasured(`${kind}, ${title}`, target, missing));
    }
    await runFloor();
    for (const [workload, product] of ran) results.push(compared(workload, target, product, floor));
  }
  return results;
}

/** Whether a database becomes slower shows here. */
function byTenSeconds(counts: readonly number[]): string {
  const rates = Array.from({ length: Math.floor(counts.length / 10) }, (_, n) =>
    (counts.slice(10 * n, 10 * n + 10).reduce((sum, count) => sum + count) / 10).toFixed(0),
  );
  return rates.length === 0 ? "" : `requests/s by 10 s: ${rates.join(" ")}`;
}

/** Two workers against one, each with database, mock and clients on all cores of the machine. */
export async function workers(options: Options): Promise<Result[]> {
  const workload = "whole answers, two workers; of one worker";
  const target = "processor time within 10 %";
  const [first] = databases;
  if (first === undefined || first.missing !== null)
    return [measure.notMeasured(workload, target, first?.missing ?? "no database")];
  const of = asked(options, false);
  const sideWith = (workers: number) =>
    side({ title: `workers: ${workers}`, ...of, start: () => startOn(undefined, options, workers) });
  const [two, one] = [sideWith(2), sideWith(1)];
  await runPasses(options, [two, one]);
  return [compared(workload, target, two, one)];
}

/** Both on the core of servers; with `workers`, on all cores. */
async function startOn(programs: string | undefined, options: Options, workers?: number): Promise<Target> {
  const others = {
    ...(programs === undefined ? {} : { programs }),
    ...(workers === undefined ? { core: cores.server } : {}),
  };
  const server = await start({ durable: true, ...others });
  await using started = new AsyncDisposableStack();
  started.defer(() => server.kill());
  const database = server.url(await server.create());
  const { postmaster, version } = await versionOf(database);
  const service = started.use(await startInkwell(options, { database, workers }));
  const owned = started.move();
  return { ...service, postmaster, version, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** Prompts of agents: 100 messages of 2.2 KB, one token of answer. */
export async function longPrompts(all: Options): Promise<Result[]> {
  const options = { ...all, clients: 150 };
  const content = "and then the ship sailed on across the quiet sea, ".repeat(44);
  const messages = Array.from({ length: 100 }, (_, n) => ({
    role: n % 2 === 0 ? "user" : "assistant",
    content,
  }));
  const before = { body: { model: "short", messages, max_tokens: 1 } };
  const to = { body: { model: "bench", messages, max_tokens: 1 } };
  const embedded = { model: defaultModel, parallel: 4, contextWindow: 8192, accounts: options.clients };
  const inkwell = side({ title: "Inkwell", ...before, start: () => startInkwell(options) });
  const bare = side({ title: oneObject, ...before, start: () => startBare(options) });
  const start = () => startLlamaService({ ...embedded, core: cores.server });
  const refusing = side({ title: "Inkwell, refusals", ...to, status: 400, start });
  const startReading = () => startServer({ which: "bare", clients: options.clients });
  const reading = side({ title: "bare, answers at once", ...to, start: startReading });
  const isRefusal = (text: string) => text.includes('"context_length_exceeded"');
  await runPasses(options, [inkwell, bare, refusing, reading], async (server, each) => {
    if (each === refusing) await checkAnswer(server, each.body, isRefusal);
  });
  const workload = "150 clients with prompts of 220 KB, upstream, one token of answer";
  const refused = "the same, embedded engine: they exceed its window of 8,192 tokens, and are refused";
  return [
    compared(workload, "1,000 requests/s or 0.50", inkwell, bare),
    compared(refused, "none", refusing, reading),
  ];
}

/** Resident memory of all processes of the service, without an embedded model. */
export async function memory(options: Options): Promise<Result[]> {
  const { clients, seconds, idleSeconds } = options;
  const inkwell = { title: "Inkwell", start: () => startInkwell(options, { accounts: 1 }) };
  const bare = { title: "bare, Fastify and undici", start: () => startBare(options) };
  const sides = [inkwell, bare].map((each) => ({ ...each, idle: [] as number[], most: [] as number[] }));
  for (let pass = 0; pass < options.passes; pass += 1) {
    for (const { start, idle, most } of rotated<(typeof sides)[number]>(sides, pass)) {
      await using server: Target & { addAccounts?(count: number): Promise<void> } = await start();
      const residentMb = () => residentBytes(server.process.pid ?? Number.NaN) / 1e6;
      await sleep(idleSeconds * 1000);
      idle.push(residentMb());
      await server.addAccounts?.(clients - 1);
      const seen: number[] = [];
      const timer = setInterval(() => seen.push(residentMb()), 200);
      await measurePass(server, asked(options, false), options);
      clearInterval(timer);
      most.push(Math.max(...seen, residentMb()));
    }
  }
  const rowOf = (of: "idle" | "most", workload: string, target: string): Result => {
    const [own = "", ...others] = sides.map((each) => `${rangeOf(each[of], 0)} MB`);
    const figures = [own, ...others].map((text, n): [string, string] => [sides[n]?.title ?? "", text]);
    return { workload, result: own, byTime: "", target, figures };
  };
  return [
    rowOf("idle", `memory without an embedded model, idle ${idleSeconds} s after the start`, "120 MB"),
    rowOf("most", `the most under ${clients} clients for ${seconds} s, whole answers`, "250 MB"),
  ];
}
