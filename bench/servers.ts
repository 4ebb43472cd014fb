/**
 * Shared by the benchmarks of the HTTP path: servers in separate processes, on one core with all
 * their threads, and clients on the other cores.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { BareTask } from "./bare-gateway.ts";
import type { Memory, ServerTask, Started } from "./gateway-server.ts";
import type { LoadResult, LoadTask } from "./load-client.ts";

export interface Server extends Started, AsyncDisposable {
  process: ChildProcess;
}

export interface Measured extends LoadResult {
  cpuMicrosPerRequest: number;
  /**
   * Load of the server's core. Well below 1, the clients were slower, or other processes used the
   * core.
   */
  busy: number;
}

/** The measured server runs on the first core, clients on the others. */
export const cores = { server: "0", clients: `1-${Math.max(1, availableParallelism() - 1)}` };

function pinned(core: string, file: string, args: readonly string[]): [string, string[]] {
  const program = [process.execPath, "--expose-gc", join(import.meta.dirname, file)];
  return ["taskset", ["-c", core, ...program, ...args]];
}

export async function startServer(task: Omit<ServerTask, "folder"> | BareTask): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const core = task.which === "upstream" ? cores.clients : cores.server;
  const isBare = task.which === "proxy" || task.which === "reader";
  const file = isBare ? "bare-gateway.ts" : "gateway-server.ts";
  const [command, args] = pinned(core, file, [JSON.stringify({ ...task, folder })]);
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

/** Memory after a garbage collection. */
export async function memoryOf(server: Server): Promise<Memory> {
  server.process.send("memory");
  const [memory]: Memory[] = await once(server.process, "message");
  if (memory === undefined) throw new Error("the server did not tell its memory");
  return memory;
}

/** Runs the tasks one after the other and returns the measurements of their clients. */
export async function load(task: LoadTask): Promise<LoadResult> {
  const [command, args] = pinned(cores.clients, "load-client.ts", []);
  const running = promisify(execFile)(command, args);
  // With a thousand keys it is too long for an argument.
  running.child.stdin?.end(JSON.stringify(task));
  const { stdout } = await running;
  return JSON.parse(stdout);
}

export async function measure(
  server: Server,
  body: object,
  seconds: number,
  clients?: number,
): Promise<Measured> {
  const { port } = server;
  const keys = server.keys.slice(0, clients);
  const before = await cpuMicrosOf(server);
  const result = await load({ port, keys, body, seconds });
  const cpuMicros = (await cpuMicrosOf(server)) - before;
  return {
    ...result,
    cpuMicrosPerRequest: cpuMicros / result.requests,
    busy: cpuMicros / (result.seconds * 1e6),
  };
}

export function summaryOf(rounds: readonly Measured[]) {
  const rates = rounds.map(({ requests, seconds }) => requests / seconds);
  const rate = medianOf(rates);
  return {
    rate,
    cpu: medianOf(rounds.map(({ cpuMicrosPerRequest }) => cpuMicrosPerRequest)),
    busy: medianOf(rounds.map(({ busy }) => busy)),
    p50: medianOf(rounds.map(({ p50Ms }) => p50Ms)),
    p99: medianOf(rounds.map(({ p99Ms }) => p99Ms)),
    spread: (Math.max(...rates) - Math.min(...rates)) / rate,
  };
}

export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
