/**
 * A process of a simulated world: the program's sources, bundled once, with time, randomness, the
 * network and the database of the world. Each process evaluates the bundle anew, so it has its own
 * modules, clock and random numbers. The program is unchanged: its globals and the modules that it
 * imports are replaced.
 */
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { EventEmitter } from "node:events";
import fs, { readFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import os from "node:os";
import { dirname, join } from "node:path";
import perfHooks from "node:perf_hooks";
import type { Duplex } from "node:stream";
import { fileURLToPath, pathToFileURL } from "node:url";
import vm from "node:vm";
import { type BuildOptions, build, type PluginBuild } from "esbuild";
import type { Random } from "./random.ts";
import type { Owner, Timeline, Timer } from "./timeline.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const requireReal = createRequire(import.meta.url);

/** Packages that are not bundled: they are replaced, or a simulation never reaches them. */
const external = [
  "undici",
  "node-llama-cpp",
  "pg",
  "@opentelemetry/*",
  "@huggingface/*",
  "pino-pretty",
  "esbuild",
];

/** Sources that the simulation replaces: the databases, and the watch of the real event loop. */
const replaced = new Map(
  [
    ["src/app/database.ts", "program-store.ts"],
    ["src/telemetry/event-loop.ts", "event-loop.ts"],
  ].map(([source = "", replacement = ""]) => [
    join(root, source),
    join(root, "test/simulation", replacement),
  ]),
);

/** A change of a source, for a defect that the simulation must find. */
export interface Edit {
  /** Path of the source in the repository. */
  file: string;
  /** Text that stands in the file once. */
  from: string;
  to: string;
}

/** Bundles the service with the store of the simulation in place of its databases. */
export async function bundleProgram(edits: readonly Edit[] = []): Promise<string> {
  return await bundled("test/simulation/program.ts", { edits, format: "cjs", external });
}

/** Bundles the world itself, so that its database runs the same ledger as the program. */
export async function bundleWorld(edits: readonly Edit[]): Promise<string> {
  return await bundled("test/simulation/world.ts", { edits, format: "esm", packages: "external" });
}

/** Bundles a source of the repository and everything that it imports. */
async function bundled(
  entry: string,
  { edits, ...options }: { edits: readonly Edit[] } & BuildOptions,
): Promise<string> {
  const { outputFiles } = await build({
    ...options,
    entryPoints: [join(root, entry)],
    absWorkingDir: root,
    bundle: true,
    platform: "node",
    target: "node26",
    write: false,
    logLevel: "error",
    plugins: [{ name: "simulated parts", setup: (bundler) => replaceParts(bundler, edits) }],
  });
  const [bundle] = outputFiles;
  if (bundle === undefined) throw new Error("the bundler wrote nothing");
  return bundle.text;
}

function replaceParts(bundler: PluginBuild, edits: readonly Edit[]): void {
  bundler.onResolve({ filter: /\.ts$/ }, ({ path, resolveDir }) => {
    const replacement = replaced.get(join(resolveDir, path));
    return replacement === undefined ? undefined : { path: replacement };
  });
  bundler.onLoad({ filter: /\.[cm]?[jt]s$/ }, ({ path }) => {
    const ours = edits.filter(({ file }) => path === join(root, file));
    const source = readFileSync(path, "utf8");
    if (ours.length === 0 && !source.includes("import.meta.")) return undefined;
    const places: Record<string, string> = {
      url: pathToFileURL(path).href,
      dirname: dirname(path),
      filename: path,
    };
    const contents = ours
      .reduce(edited, source)
      .replaceAll(/\bimport\.meta\.(url|dirname|filename)\b/g, (_, name: string) =>
        JSON.stringify(places[name]),
      );
    return { contents, loader: path.endsWith("ts") ? "ts" : "js" };
  });
}

function edited(source: string, { file, from, to }: Edit): string {
  const parts = source.split(from);
  if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${from}`);
  return parts.join(to);
}

export interface ProcessWorld {
  timeline: Timeline;
  random: Random;
  /** The program's events never run after it is gone. */
  owner: Owner;
  hostname: string;
  /** How far the clock of the machine is ahead of true time. */
  clockAheadMs: () => number;
  listeners: Map<number, http.Server>;
  /** Length of a turn of the event loop that other work fills. 0: the loop is idle. */
  turnMs: number;
  /** Modules that replace those of the same name. */
  modules: Readonly<Record<string, unknown>>;
  /** The database connection, which the store of the program reads. */
  simulation: unknown;
}

/** Evaluates the bundle in a world and returns its exports. */
export function evaluate<Exports>(bundle: string, world: ProcessWorld): Exports {
  const globals = globalsOf(world);
  const modules = modulesOf(world, globals);
  const require = Object.assign(
    (name: string): unknown => modules[name.replace(/^node:/, "")] ?? requireReal(name),
    { resolve: requireReal.resolve, cache: {}, main: undefined, extensions: {} },
  );
  const module = { exports: {} };
  const given = { ...globals, require, module, exports: module.exports, simulation: world.simulation };
  const filename = join(root, "simulated-program.cjs");
  const run = vm.compileFunction(bundle, Object.keys(given), { filename });
  run(...Object.values(given));
  return module.exports as Exports;
}

function globalsOf({ timeline, random, owner, clockAheadMs, turnMs }: ProcessWorld) {
  const startMs = timeline.nowMs;
  const wallMs = () => Math.floor(timeline.nowMs + clockAheadMs());
  class SimulatedDate extends Date {
    constructor(...given: [] | [number | string | Date] | number[]) {
      if (given.length === 0) super(wallMs());
      else if (given.length === 1) super(given[0] ?? Number.NaN);
      else super(...(given as [number, number]));
    }

    static override now(): number {
      return wallMs();
    }
  }
  const clear = (timer: Timer | null | undefined) => timer?.close();
  const later = (run: (...given: unknown[]) => void, ms = 0, ...given: unknown[]) =>
    timeline.after(Math.max(1, ms), () => run(...given), owner);
  return {
    Date: SimulatedDate,
    performance: { now: () => timeline.nowMs - startMs, timeOrigin: startMs, mark() {}, measure() {} },
    // Processor time is that of the real machine.
    process: new Proxy(process, {
      get: (target, name) => {
        const fixed: Record<string | symbol, unknown> = {
          threadCpuUsage: () => ({ user: 0, system: 0 }),
          cpuUsage: () => ({ user: 0, system: 0 }),
          uptime: () => (timeline.nowMs - startMs) / 1000,
          hrtime: Object.assign(() => [0, 0], { bigint: () => BigInt(Math.floor(timeline.nowMs * 1e6)) }),
        };
        const value: unknown = fixed[name] ?? Reflect.get(target, name);
        return typeof value === "function" && fixed[name] === undefined ? value.bind(target) : value;
      },
    }),
    Math: Object.create(Math, { random: { value: () => random.next() } }),
    setTimeout: later,
    clearTimeout: clear,
    setInterval: (run: (...given: unknown[]) => void, ms = 0, ...given: unknown[]) =>
      timeline.every(Math.max(1, ms), () => run(...given), owner),
    clearInterval: clear,
    setImmediate: (run: (...given: unknown[]) => void, ...given: unknown[]) =>
      timeline.after(turnMs, () => run(...given), owner),
    clearImmediate: clear,
    AbortSignal: new Proxy(AbortSignal, {
      get: (target, name) => (name === "timeout" ? timeoutSignal : Reflect.get(target, name)),
    }),
  };

  function timeoutSignal(ms: number): AbortSignal {
    const controller = new AbortController();
    later(() => controller.abort(new DOMException("The operation timed out", "TimeoutError")), ms);
    return controller.signal;
  }
}

type Globals = ReturnType<typeof globalsOf>;

/** Files are ready at once. The system would take a time that differs from run to run. */
const settledFiles = {
  readFile: async (...given: Parameters<typeof fs.readFileSync>) => fs.readFileSync(...given),
  writeFile: async (...given: Parameters<typeof fs.writeFileSync>) => fs.writeFileSync(...given),
  link: async (...given: Parameters<typeof fs.linkSync>) => fs.linkSync(...given),
  rm: async (...given: Parameters<typeof fs.rmSync>) => fs.rmSync(...given),
  stat: async (...given: Parameters<typeof fs.statSync>) => fs.statSync(...given),
  readdir: async (path: string) => fs.readdirSync(path),
  open: async (...given: Parameters<typeof fs.openSync>) => {
    const file = fs.openSync(...given);
    return {
      sync: async () => fs.fsyncSync(file),
      stat: async () => fs.fstatSync(file),
      readFile: async (encoding: BufferEncoding) => fs.readFileSync(file, encoding),
      [Symbol.asyncDispose]: async () => fs.closeSync(file),
    };
  },
};

function modulesOf(world: ProcessWorld, globals: Globals): Record<string, unknown> {
  const { timeline, random, owner, hostname, listeners, turnMs } = world;
  const pause = (ms = 0, value?: unknown, options: { signal?: AbortSignal } = {}) =>
    new Promise((resolve, reject) => {
      const { signal } = options;
      const fail = () => reject(signal?.reason);
      if (signal?.aborted === true) {
        fail();
        return;
      }
      const timer = timeline.after(
        ms > 0 ? ms : 0,
        () => {
          signal?.removeEventListener("abort", stop);
          resolve(value);
        },
        owner,
      );
      const stop = () => {
        timer.close();
        fail();
      };
      signal?.addEventListener("abort", stop, { once: true });
    });
  const promises = {
    setTimeout: pause,
    setImmediate: (value?: unknown, options?: { signal?: AbortSignal }) => pause(turnMs, value, options),
    scheduler: { wait: pause, yield: () => pause(turnMs) },
  };
  const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = globals;
  const timers = {
    setTimeout,
    setInterval,
    setImmediate,
    clearTimeout,
    clearInterval,
    clearImmediate,
    promises,
  };
  const simulatedCrypto = {
    ...crypto,
    randomBytes: (length: number) => random.bytes(length),
    randomUUID: () => {
      const hex = random.bytes(16).toString("hex");
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
    randomInt: (min: number, max: number) => random.whole(min, max - 1),
  };
  return {
    timers,
    "timers/promises": promises,
    "fs/promises": settledFiles,
    crypto: { ...simulatedCrypto, default: simulatedCrypto },
    perf_hooks: { ...perfHooks, performance: globals.performance, PerformanceObserver: NoObserver },
    os: { ...os, hostname: () => hostname, uptime: () => timeline.nowMs / 1000 },
    http: {
      ...http,
      createServer: (options: http.ServerOptions, listener?: http.RequestListener) =>
        listening(http.createServer(options, listener), { timeline, owner, listeners }),
    },
    net: { ...net, createServer: () => new ClosedListener(timeline, owner) },
    ...world.modules,
  };
}

/** Observes nothing of the real process, which would never forget it. */
class NoObserver {
  observe(): void {}
}

/** The check of a port before the service opens it. */
class ClosedListener extends EventEmitter {
  readonly #timeline: Timeline;
  readonly #owner: Owner;

  constructor(timeline: Timeline, owner: Owner) {
    super();
    this.#timeline = timeline;
    this.#owner = owner;
  }

  listen(): this {
    this.#timeline.after(0, () => this.emit("listening"), this.#owner);
    return this;
  }

  close(): this {
    this.#timeline.after(0, () => this.emit("close"), this.#owner);
    return this;
  }
}

/**
 * Node checks the times of connections by the real clock. The timer of a process that dies would
 * also keep all of it in memory.
 */
function endChecks(server: http.Server): void {
  const checks = Object.getOwnPropertySymbols(server).find(
    ({ description }) => description === "http.server.connectionsCheckingInterval",
  );
  assert.ok(checks !== undefined, "a server of Node has a timer for its connections");
  clearInterval(Reflect.get(server, checks));
}

/** Gives the server a listener of the simulated network in place of one of the system. */
function listening(
  server: http.Server,
  { timeline, owner, listeners }: Pick<ProcessWorld, "timeline" | "owner" | "listeners">,
): http.Server {
  let port: number | null = null;
  const sockets = new Set<Duplex>();
  let closed: (() => void) | null = null;
  const endIfIdle = () => {
    if (closed === null || sockets.size > 0) return;
    const done = closed;
    closed = null;
    timeline.after(
      0,
      () => {
        server.emit("close");
        done();
      },
      owner,
    );
  };
  server.prependListener("connection", (socket: Duplex) => {
    sockets.add(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      endIfIdle();
    });
  });
  const listen = (options: { port: number }, done?: () => void) => {
    port = options.port;
    listeners.set(options.port, server);
    timeline.after(
      0,
      () => {
        server.emit("listening");
        endChecks(server);
        done?.();
      },
      owner,
    );
    return server;
  };
  const close = (done: (error?: Error) => void = () => {}) => {
    if (port !== null) listeners.delete(port);
    port = null;
    http.Server.prototype.closeIdleConnections.call(server);
    closed = done;
    endIfIdle();
    return server;
  };
  return Object.defineProperties(server, {
    listen: { value: listen },
    close: { value: close },
    listening: { get: () => port !== null },
    address: { value: () => (port === null ? null : { address: "127.0.0.1", port, family: "IPv4" }) },
    getConnections: { value: (done: (error: null, count: number) => void) => done(null, sockets.size) },
  });
}
