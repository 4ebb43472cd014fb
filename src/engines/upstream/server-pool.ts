/**
 * The servers of one model: which one is asked next, and who gets a place there.
 *
 * Guarantees: each server gets no more requests at once than `parallel`; others wait in a bounded line, and its last places
 * are for accounts that run nothing (place-line.ts). Of the servers that seem to be alive the least busy one is asked. A
 * server that fails again and again is left alone for a while (circuit.ts).
 */
import { EngineError, type EngineLoad, type EngineState, type Message } from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import type { Attempt } from "./circuit.ts";
import { loggable, type UpstreamFailure } from "./failure.ts";
import { LargeTurns } from "./large-turns.ts";
import { PlaceLine, type Places } from "./place-line.ts";
import { UpstreamServer, type UpstreamTimes } from "./server.ts";

export interface ServerPoolOptions {
  /** At least one. */
  urls: readonly string[];
  key: string | null;
  /** Requests at once, for each server. */
  parallel: number;
  /** Of these, the last that only accounts without a running request get; fewer than `parallel`. */
  reserved: number;
  /** Requests that may wait; as many again from accounts that have none waiting. */
  queueMax: number;
  times: UpstreamTimes;
  log: EngineLog;
}

/** A request for a place. */
export interface Applicant {
  job: { accountId: string };
  /** A place at this server is taken for it. */
  begin(server: UpstreamServer): void;
  /** It gets no place, or loses the one it has. */
  breakOff(failure: EngineError): void;
}

/** A request that failed at a server. */
export interface FailedRequest {
  attempt: Attempt;
  /** Something of its answer had come. */
  inAnswer: boolean;
  /** It goes to another server, so nobody else hears of the failure. */
  isAgain: boolean;
  /** Not to be logged, whatever the server says. */
  user: string | null;
  messages: readonly Message[];
}

const retryAfterSeconds = 2;

export class ServerPool {
  readonly #options: ServerPoolOptions;
  readonly #servers: readonly UpstreamServer[];
  readonly #line: PlaceLine<Applicant>;
  readonly #applicants = new Set<Applicant>();
  #isClosed = false;
  /** Where the choice among equals begins. */
  #turn = 0;
  /** While somebody waits and a server rests. */
  #restOver: NodeJS.Timeout | undefined;

  constructor(options: ServerPoolOptions) {
    const { urls, key, parallel, times, queueMax } = options;
    this.#options = options;
    const turns = new LargeTurns();
    this.#servers = urls.map(
      (url) => new UpstreamServer({ url, key, connectionsMax: parallel, times, turns }),
    );
    this.#line = new PlaceLine(queueMax);
  }

  get state(): EngineState {
    if (this.#isClosed) return "closed";
    const nowMs = performance.now();
    return this.#servers.every((server) => server.isOpen(nowMs)) ? "unavailable" : "ready";
  }

  load(): EngineLoad {
    const running = this.#servers.reduce((sum, { busy }) => sum + busy, 0);
    return { running, ...this.#line.load(performance.now()) };
  }

  /** Throws an `EngineError` if no server may be asked now. */
  assertReady(): void {
    if (this.state !== "ready") throw this.#unavailable();
  }

  /** Queues a request for a place, which it may get at once. Throws an `EngineError` if too many wait. */
  join(applicant: Applicant): void {
    if (!this.#line.push(applicant, performance.now())) {
      throw new EngineError("overloaded", `${this.#line.size} requests are waiting already`, {
        retryAfterSeconds,
      });
    }
    this.#applicants.add(applicant);
    this.pump();
  }

  /** Nothing more comes of the request; it may still be waiting. */
  leave(applicant: Applicant): void {
    this.#applicants.delete(applicant);
    this.#line.remove(applicant, performance.now());
    // Its account, or another one, may now have one of the places that are free.
    if (this.#line.size === 0) clearTimeout(this.#restOver);
    else this.pump();
  }

  /** Gives free places to requests that wait. */
  readonly pump = (): void => {
    let nowMs = performance.now();
    while (this.#line.size > 0 && !this.#isClosed) {
      const server = this.another(new Set(), nowMs);
      const next = server === null ? undefined : this.#line.next(this.#places(nowMs));
      if (server === null || next === undefined) break;
      next.begin(server);
      nowMs = performance.now();
    }
    if (this.state === "unavailable") {
      for (const applicant of this.#line.takeAll(nowMs)) applicant.breakOff(this.#unavailable());
    }
    this.#pumpAfterRest(nowMs);
  };

  /** Returns a server with a free place: the least busy, equals in turn, one that asked for a rest last; null if there is none. */
  another(tried: ReadonlySet<UpstreamServer>, nowMs = performance.now()): UpstreamServer | null {
    const count = this.#servers.length;
    let best: UpstreamServer | null = null;
    this.#turn = (this.#turn + 1) % count;
    for (let step = 0; step < count; step += 1) {
      const server = this.#servers[(this.#turn + step) % count];
      if (server === undefined || tried.has(server) || !server.hasRoom(nowMs)) continue;
      if (best === null || isBetter(server, best, nowMs)) best = server;
    }
    return best;
  }

  /** Returns a server to ask a question, which goes over connections of its own, so that a busy server will do. */
  toAsk(isWanted: (server: UpstreamServer) => boolean): UpstreamServer | null {
    const nowMs = performance.now();
    const alive = this.#servers.filter((server) => !server.isOpen(nowMs) && isWanted(server));
    return alive.reduce<UpstreamServer | null>(
      (best, server) => (best === null || isBetter(server, best, nowMs) ? server : best),
      null,
    );
  }

  /** Returns what the log may say of the failure. */
  failed(server: UpstreamServer, failure: UpstreamFailure, request: FailedRequest): string {
    const { key, log } = this.#options;
    const { attempt, inAnswer, isAgain, user, messages } = request;
    const reason = `${server.name}: ${loggable(failure.message, { key, user, messages })}`;
    if (isAgain) log.warn({ reason }, "an upstream failed; the request goes to another one");
    if (server.failed(failure, attempt, inAnswer)) {
      log.error({ upstream: server.name, reason }, "an upstream keeps failing and is left alone for a while");
    }
    return reason;
  }

  /** The first of an answer came. */
  answered(server: UpstreamServer): void {
    if (!server.answered()) return;
    this.#options.log.info({ upstream: server.name }, "an upstream answers again");
    this.pump();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#line.takeAll(performance.now());
    clearTimeout(this.#restOver);
    for (const applicant of this.#applicants) applicant.breakOff(this.#unavailable());
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  #places(nowMs: number): Places {
    const { parallel, reserved } = this.#options;
    const servers = this.#servers.filter((server) => !server.isOpen(nowMs));
    const busy = servers.reduce((sum, server) => sum + server.busy, 0);
    const total = servers.length * parallel;
    return { total, free: total - busy, reserved: servers.length * reserved };
  }

  /**
   * The end of a rest is the only thing that makes room and that no request tells of. `nowMs`: when a server was looked for
   * in vain, so that a rest that has just ended is not taken for one that made room.
   */
  #pumpAfterRest(nowMs: number): void {
    clearTimeout(this.#restOver);
    if (this.#line.size === 0) return;
    const rests = this.#servers.map(({ openUntilMs }) => (openUntilMs ?? nowMs) - nowMs);
    const nextMs = Math.min(...rests.filter((coolMs) => coolMs > 0));
    if (nextMs < Infinity) this.#restOver = setTimeout(this.pump, Math.ceil(nextMs));
  }

  #unavailable(): EngineError {
    if (this.#isClosed) return new EngineError("unavailable", "the engine has been closed");
    const nextMs = Math.min(...this.#servers.map(({ openUntilMs }) => openUntilMs ?? 0));
    const waitSeconds = Math.max(1, Math.ceil((nextMs - performance.now()) / 1000));
    const names = this.#servers.map(({ name }) => name).join(", ");
    return new EngineError("unavailable", `every upstream has failed repeatedly: ${names}`, {
      retryAfterSeconds: waitSeconds,
    });
  }
}

function isBetter(server: UpstreamServer, other: UpstreamServer, nowMs: number): boolean {
  if (server.isCoolingDown(nowMs) !== other.isCoolingDown(nowMs)) return other.isCoolingDown(nowMs);
  return server.busy < other.busy;
}
