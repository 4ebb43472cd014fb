/**
 * Requests per second through the whole HTTP path with a scripted engine of one token: keys, hold, settlement and
 * receipt on disk, log and metrics, against a bare Fastify handler that answers with the same bytes, in the same run,
 * in turns. The server has one core (all its threads), the clients the others.
 *
 *   npm run bench -- gateway [--clients 32] [--seconds 3] [--rounds 5] [--stream false,true]
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import type { Started } from "./gateway-server.ts";
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
      stream: { type: "string", default: "false,true" },
    },
  });
  await using inkwell = await startServer("inkwell", values.clients);
  await using raw = await startServer("raw", values.clients);
  const table: Record<string, string>[] = [];
  for (const stream of values.stream.split(",")) {
    const body = {
      model: "bench",
      messages: [{ role: "user", content: "Count from one to ten in words." }],
      max_tokens: 1,
      stream: stream === "true",
    };
    const measured = { inkwell: [] as Measured[], raw: [] as Measured[] };
    // A first one uncounted, so that code is compiled and files are in memory.
    for (const server of [inkwell, raw]) await measure(server, body, 2);
    for (let round = 0; round < Number(values.rounds); round += 1) {
      measured.inkwell.push(await measure(inkwell, body, Number(values.seconds)));
      measured.raw.push(await measure(raw, body, Number(values.seconds)));
    }
    table.push(...linesOf(stream === "true", measured));
  }
  console.log(
    `${values.clients} clients, one core, median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

interface Server extends Started, AsyncDisposable {
  process: ChildProcess;
}

/** On the first core, and what it loads the server with on the others, where the system can tell them apart. */
const cores = { server: "0", clients: `1-${Math.max(1, availableParallelism() - 1)}` };

function pinned(core: string, file: string, args: readonly string[]): [string, string[]] {
  return ["taskset", ["-c", core, process.execPath, join(import.meta.dirname, file), ...args]];
}

async function startServer(which: "inkwell" | "raw", clients: string): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const [command, args] = pinned(cores.server, "gateway-server.ts", [which, clients, folder]);
  const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const [started]: Started[] = await once(child, "message");
  if (started === undefined) throw new Error("a server tells where it listens");
  const stop = async () => {
    const closed = once(child, "close");
    child.kill("SIGKILL");
    await closed;
    await rm(folder, { recursive: true });
  };
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

function linesOf(stream: boolean, measured: { inkwell: Measured[]; raw: Measured[] }) {
  const floor = summaryOf(measured.raw);
  return (["inkwell", "raw"] as const).map((name) => {
    const { rate, cpu, p50, p99, spread } = summaryOf(measured[name]);
    return {
      answers: stream ? "streamed" : "whole",
      server: name === "raw" ? "bare Fastify" : "Inkwell",
      "requests/s": rate.toFixed(0),
      ratio: (rate / floor.rate).toFixed(2),
      "p50 ms": p50.toFixed(2),
      "added ms": (p50 - floor.p50).toFixed(2),
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
