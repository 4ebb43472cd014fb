/** A process of the service in a simulated world. It can die and start again. */
import assert from "node:assert/strict";
import type http from "node:http";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import type { serviceTimes } from "../../src/app/service-times.ts";
import type { startService } from "../../src/app.ts";
import type { Config, loadConfig } from "../../src/config/load.ts";
import { day, hour, minute, second } from "../fixtures/times.ts";
import type { SimulatedDatabase } from "./database.ts";
import { evaluate } from "./process.ts";
import type { Random } from "./random.ts";
import type { SimulatedReceivers } from "./receivers.ts";
import type { Owner, Timeline } from "./timeline.ts";
import type { SimulatedUpstreams } from "./upstreams.ts";

interface Program {
  startService: typeof startService;
  serviceTimes: typeof serviceTimes;
  loadConfig: typeof loadConfig;
}

/** The parts of a world that its processes need. */
export interface NodeWorld {
  /** The program (process.ts). */
  readonly bundle: string;
  readonly random: Random;
  readonly timeline: Timeline;
  readonly database: SimulatedDatabase;
  readonly upstreams: SimulatedUpstreams;
  readonly receivers: SimulatedReceivers;
  /** Interval between looks at the clock of the database. */
  readonly clockEveryMs: number;
  /** Length of a turn of an event loop (process.ts). */
  readonly turnMs: number;
}

function nowhere(): Writable {
  return new Writable({ write: (_chunk, _encoding, done) => done() });
}

/** One process, with its machine. It can die and start again. */
export class SimulatedNode {
  readonly number: number;
  readonly #world: NodeWorld;
  readonly #folder: string;
  /** The clock of its machine, on which nothing depends. */
  readonly #clockAheadMs: number;
  #owner: Owner = { isGone: true };
  listeners = new Map<number, http.Server>();
  #service: Awaited<ReturnType<typeof startService>> | null = null;

  constructor(number: number, world: NodeWorld, folder: string) {
    this.number = number;
    this.#world = world;
    this.#folder = folder;
    this.#clockAheadMs = world.random.pick([0, 0, -3 * day, hour, 50 * day]);
  }

  /** The path of its configuration file. */
  get configuration(): string {
    return join(this.#folder, "inkwell.yaml");
  }

  get isUp(): boolean {
    return this.#service !== null;
  }

  get owner(): Owner {
    return this.#owner;
  }

  async start(): Promise<void> {
    const owner: Owner = { isGone: false };
    this.#owner = owner;
    this.listeners = new Map();
    const { timeline, database, upstreams, receivers } = this.#world;
    const random = this.#world.random.fork();
    const program = evaluate<Program>(this.#world.bundle, {
      timeline,
      random,
      owner,
      listeners: this.listeners,
      turnMs: this.#world.turnMs,
      hostname: `node-${this.number}`,
      clockAheadMs: () => this.#clockAheadMs,
      modules: { undici: upstreams.module(owner, receivers) },
      simulation: { database: database.connect(owner) },
    });
    const reread = (): Config => program.loadConfig({ cwd: this.#folder, file: this.configuration, env: {} });
    const host = {
      stdin: Readable.from([]),
      stdout: nowhere(),
      stderr: nowhere(),
      reread,
    };
    const service = await program.startService(reread(), host, new AbortController().signal, {
      ...program.serviceTimes,
      heartbeatEveryMs: minute,
      stopsEveryMs: 5 * second,
      clockEveryMs: this.#world.clockEveryMs,
      events: { ...program.serviceTimes.events, everyMs: 10 * second, modelsEveryMs: minute },
    });
    if (owner.isGone) return;
    this.#service = service;
  }

  /** The process dies: nothing of it runs any more, and its connections break. */
  kill(): void {
    this.#owner.isGone = true;
    this.#service = null;
    this.listeners = new Map();
  }

  async stop(): Promise<void> {
    const service = this.#service;
    this.#service = null;
    const owner = this.#owner;
    await service?.stop();
    // What is under way on its connections arrives first.
    await this.#world.timeline.pause(minute);
    const timers = this.#world.timeline.timersOf(owner).map(({ run, delayMs }) => `${delayMs} ms: ${run}`);
    assert.deepEqual(timers, [], "a process that has stopped has no timers");
    owner.isGone = true;
  }
}
