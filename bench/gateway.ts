/**
 * Requests per second through the whole HTTP path with a scripted engine of one token: keys, hold, settlement and
 * receipt on disk, log and metrics. Against two floors in the same run, in turns, which meter, check and log nothing:
 * a bare Fastify handler that answers with the same bytes, and one that fetches them through undici from another
 * process, as a router does. The server has one core (all its threads), clients and upstream the others.
 *
 *   npm run bench -- gateway [--clients 32] [--seconds 3] [--rounds 5] [--warm 6] [--stream false,true]
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import type { ServerTask, Started } from "./gateway-server.ts";
import type { LoadResult, LoadTask } from "./load-client.ts";

interface Measured extends LoadResult {
  cpuMicrosPerRequest: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      clients: { type: "string", default: "32" },
      seconds: { type: "string", default: "3" },
      rounds: { type: "string", default: "5" },
      warm: { type: "string", default: "6" },
      stream: { type: "string", default: "false,true" },
    },
  });
  const clients = Number(values.clients);
  await using inkwell = await startServer({ which: "inkwell", clients });
  await using bare = await startServer({ which: "bare", clients });
  await using upstream = await startServer({ which: "upstream", clients });
  await using proxy = await startServer({ which: "proxy", clients, upstreamPort: upstream.port });
  const servers = { inkwell, bare, proxy };
  const table: Record<string, string>[] = [];
  for (const stream of values.stream.split(",")) {
    const body = {
      model: "bench",
      messages: [{ role: "user", content: "Count from one to ten in words." }],
      max_tokens: 1,
      stream: stream === "true",
    };
    const measured: Rounds = { inkwell: [], bare: [], proxy: [] };
    // A first one uncounted, so that code is compiled and files are in memory.
    for (const name of names) await measure(servers[name], body, Number(values.warm));
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const name of names)
        measured[name].push(await measure(servers[name], body, Number(values.seconds)));
    }
    table.push(...linesOf(stream === "true", measured));
  }
  console.log(
    `${values.clients} clients, one core, median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

const names = ["inkwell", "bare", "proxy"] as const;
type Rounds = Record<(typeof names)[number], Measured[]>;

const titles = { inkwell: "Inkwell", bare: "bare Fastify", proxy: "bare Fastify and undici" };

interface Server extends Started, AsyncDisposable {
  process: ChildProcess;
}

/** On the first core, and what it loads the server with on the others, where the system can tell them apart. */
const cores = { server: "0", clients: `1-${Math.max(1, availableParallelism() - 1)}` };

function pinned(core: string, file: string, args: readonly string[]): [string, string[]] {
  return ["taskset", ["-c", core, process.execPath, join(import.meta.dirname, file), ...args]];
}

async function startServer(task: Omit<ServerTask, "folder">): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const core = task.which === "upstream" ? cores.clients : cores.server;
  const [command, args] = pinned(core, "gateway-server.ts", [JSON.stringify({ ...task, folder })]);
  const log = openSync(join(folder, "log"), "a");
  const child = spawn(command, args, { stdio: ["ignore", "inherit", log, "ipc"] });
  closeSync(log);
  const closed = once(child, "close");
  const stop = async () => {
    child.kill("SIGKILL");
    await closed;
    await rm(folder, { recursive: true });
  };
  const started: Started | null = await Promise.race([
    once(child, "message").then(([message]) => message),
    closed.then(() => null),
  ]);
  if (started === null) {
    const why = await readFile(join(folder, "log"), "utf8");
    await stop();
    throw new Error(`the server "${task.which}" did not start: ${why}`);
  }
  return { ...started, process: child, [Symbol.asyncDispose]: stop };
}

async function cpuMicrosOf(server: Server): Promise<number> {
  server.process.send("cpu");
  const [usage]: NodeJS.CpuUsage[] = await once(server.process, "message");
  return usage === undefined ? Number.NaN : usage.user + usage.system;
}

async function measure(server: Server, body: object, seconds: number): Promise<Measured> {
  const { port, keys } = server;
  const task: LoadTask = { port, keys, body, seconds };
  const before = await cpuMicrosOf(server);
  const [command, args] = pinned(cores.clients, "load-client.ts", [JSON.stringify(task)]);
  const { stdout } = await promisify(execFile)(command, args);
  const result: LoadResult = JSON.parse(stdout);
  const after = await cpuMicrosOf(server);
  return { ...result, cpuMicrosPerRequest: (after - before) / result.requests };
}

function linesOf(stream: boolean, rounds: Rounds) {
  const inkwell = summaryOf(rounds.inkwell);
  return names.map((name) => {
    const { rate, cpu, p50, p99, spread } = summaryOf(rounds[name]);
    return {
      answers: stream ? "streamed" : "whole",
      server: titles[name],
      "requests/s": rate.toFixed(0),
      "Inkwell / this": (inkwell.rate / rate).toFixed(2),
      "p50 ms": p50.toFixed(2),
      "Inkwell adds ms": (inkwell.p50 - p50).toFixed(2),
      "p99 ms": p99.toFixed(2),
      "CPU µs/request": cpu.toFixed(0),
      spread: `${(spread * 100).toFixed(0)} %`,
    };
  });
}

function summaryOf(rounds: readonly Measured[]) {
  const rates = rounds.map(({ requests, seconds }) => requests / seconds);
  const rate = medianOf(rates);
  return {
    rate,
    cpu: medianOf(rounds.map(({ cpuMicrosPerRequest }) => cpuMicrosPerRequest)),
    p50: medianOf(rounds.map(({ p50Ms }) => p50Ms)),
    p99: medianOf(rounds.map(({ p99Ms }) => p99Ms)),
    spread: (Math.max(...rates) - Math.min(...rates)) / rate,
  };
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
