/**
 * The servers of one model. Chooses the server for each request, and the request for each free
 * slot.
 *
 * Guarantees: each server gets at most `parallel` requests at once. Other requests wait in a
 * queue, and the last slots are for accounts that run nothing (`AdmissionQueue`). The least
 * busy server that seems alive gets the next request. A server that fails repeatedly gets no
 * requests for a while, or none of one account (`ServerCircuit`).
 */

import {
  EngineError,
  type EngineLoad,
  type EngineServer,
  type EngineState,
  type Message,
  type NoticeKind,
  type RejectionReason,
} from "../../chat/engine.ts";
import { BusySet, type QueueMax } from "../../collections.ts";
import { limits } from "../../limits/limits.ts";
import { Turns } from "../../limits/turns.ts";
import type { EngineLog } from "../engine-log.ts";
import { AdmissionQueue, type Slots, type Waiter } from "./admission-queue.ts";
import type { AnswerNotice } from "./answer.ts";
import { redact, type UpstreamFailure } from "./failure.ts";
import { UpstreamServer, type UpstreamTimes } from "./server.ts";
import type { AccountAttempt } from "./server-circuit.ts";

export interface ServerPoolOptions {
  /** At least one. */
  urls: readonly string[];
  key: string | null;
  /** Callers whose request is rejected get the sentence of the server. Default: false. */
  passErrors?: boolean;
  /** Requests at once, for each server. */
  parallel: number;
  /** Slots for accounts without a running request only. Fewer than `parallel`. */
  reserved: number;
  /** Limit of waiting requests. Accounts without a waiting request may add as many again. */
  queueMax: QueueMax;
  times: UpstreamTimes;
  log: EngineLog;
  /** Called for each answer with something odd about it. */
  onNotice?: ((kind: NoticeKind) => void) | undefined;
  /** About this often each server is asked whether it responds. Absent: never. */
  probeEveryMs?: number;
}

/** A request that failed at a server. */
interface FailedRequest {
  attempt: AccountAttempt;
  /** Part of the answer had arrived. */
  inAnswer: boolean;
  /** The request goes to another server, so the failure must be logged here. */
  isAgain: boolean;
  /** Must not appear in the log, as the messages must not. */
  user: string | null;
  messages: readonly Message[];
}

const retryAfterSeconds = 2;

export class ServerPool {
  readonly #options: ServerPoolOptions;
  readonly #servers: readonly UpstreamServer[];
  readonly #line: AdmissionQueue;
  readonly #waiters = new BusySet<Waiter>();
  #isClosed = false;
  /** Index of the server that is preferred among equals. */
  #turn = 0;
  /** Set while requests wait and a circuit is open. */
  #trialTimer: NodeJS.Timeout | undefined;

  constructor(options: ServerPoolOptions) {
    const { urls, key, parallel, times, queueMax, probeEveryMs } = options;
    this.#options = options;
    // `upload_bytes` limits the messages that wait.
    const turns = new Turns(limits.largeMessages, { turnMs: 0 });
    this.#servers = urls.map(
      (url) => new UpstreamServer({ url, key, connectionsMax: parallel, times, turns }),
    );
    this.#line = new AdmissionQueue(queueMax);
    if (probeEveryMs !== undefined) for (const server of this.#servers) this.#watch(server, probeEveryMs);
  }

  /**
   * "unavailable" if no server responds. A server that only fails its probes gets requests
   * nevertheless.
   */
  get state(): EngineState {
    if (this.#isClosed) return "closed";
    const nowMs = performance.now();
    return this.#servers.every((server) => server.isDown || server.isOpen(nowMs)) ? "unavailable" : "ready";
  }

  load(): EngineLoad {
    const running = this.#servers.reduce((sum, { busy }) => sum + busy, 0);
    return { running, ...this.#line.load(performance.now()) };
  }

  servers(): EngineServer[] {
    return this.#servers.map((server) => server.view());
  }

  /** Throws an `EngineError` if no server may be asked for the account now. */
  assertReady(accountId: string): void {
    if (this.#isClosed || this.#isShut(accountId)) throw this.#unavailable(accountId);
  }

  /**
   * Queues a request. It may get a slot at once. Throws an `EngineError` if too many requests
   * wait.
   */
  join(waiter: Waiter): void {
    if (!this.#line.push(waiter, performance.now())) {
      throw new EngineError("overloaded", `${this.#line.size} requests are waiting already`, {
        retryAfterSeconds,
      });
    }
    this.#waiters.add(waiter);
    this.dispatch();
  }

  /** Removes a request that has ended or gives up waiting. */
  remove(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    this.#line.remove(waiter, performance.now());
    // A waiting request may now be entitled to a free slot.
    if (this.#line.size === 0) clearTimeout(this.#trialTimer);
    else this.dispatch();
  }

  /** Gives free slots to requests that wait. */
  readonly dispatch = (): void => {
    let nowMs = performance.now();
    const isServed = (accountId: string) => this.#servers.some((server) => server.hasRoom(accountId, nowMs));
    while (this.#line.size > 0 && !this.#isClosed) {
      const next = this.#line.next(this.#slots(nowMs), isServed);
      const server = next === undefined ? null : this.another(next.accountId, new Set(), nowMs);
      if (next === undefined || server === null) break;
      next.begin(server);
      nowMs = performance.now();
    }
    const isPaused = this.#servers.some((server) => server.hasFailures);
    if (isPaused && !this.#isClosed && this.#line.size > 0) {
      const refused = this.#line.takeAll(nowMs, (accountId) => this.#isShut(accountId));
      for (const waiter of refused) waiter.breakOff(this.#unavailable(waiter.accountId));
    }
    clearTimeout(this.#trialTimer);
    if (isPaused) this.#dispatchAtTrial(nowMs);
  };

  /**
   * Returns a server with a free slot for the account, or null. Prefers the least busy server,
   * takes equals in turn, and uses servers last that asked for a pause or are down.
   */
  another(
    accountId: string,
    tried: ReadonlySet<UpstreamServer>,
    nowMs = performance.now(),
  ): UpstreamServer | null {
    const count = this.#servers.length;
    let best: UpstreamServer | null = null;
    this.#turn = (this.#turn + 1) % count;
    for (let step = 0; step < count; step += 1) {
      const server = this.#servers[(this.#turn + step) % count];
      if (server === undefined || tried.has(server) || !server.hasRoom(accountId, nowMs)) continue;
      if (best === null || isBetter(server, best, nowMs)) best = server;
    }
    return best;
  }

  /**
   * Returns a server for a question, or null. Questions have their own connections, so the server
   * may be busy.
   */
  toAsk(isWanted: (server: UpstreamServer) => boolean): UpstreamServer | null {
    const nowMs = performance.now();
    const alive = this.#servers.filter((server) => !server.isOpen(nowMs) && isWanted(server));
    return alive.reduce<UpstreamServer | null>(
      (best, server) => (best === null || isBetter(server, best, nowMs) ? server : best),
      null,
    );
  }

  /** Records a failure. Returns the message for the log. */
  failed(server: UpstreamServer, failure: UpstreamFailure, request: FailedRequest): string {
    const { key, log } = this.#options;
    const { attempt, inAnswer, isAgain, user, messages } = request;
    const reason = `${server.name}: ${redact(failure.message, { key, user, messages })}`;
    if (!failure.isCallers) server.lastError = { atMs: Date.now(), message: reason };
    if (isAgain) log.warn({ reason }, "an upstream failed; the request goes to another one");
    const { accountId } = attempt;
    const paused = server.failed(failure, attempt, inAnswer);
    if (paused === null) return reason;
    const openMs = (server.openUntilMsFor(accountId) ?? 0) - performance.now();
    const forTime = `for ${Math.ceil(openMs / 1000)} s`;
    if (server.isOutOfCredit)
      log.error(
        { upstream: server.name, reason },
        `the account at the provider has no credits; the upstream gets one request every ${Math.round(openMs / 60_000)} minutes until they are added, or until a reload`,
      );
    else if (paused === "all")
      log.error(
        { upstream: server.name, reason },
        `an upstream keeps failing and gets no requests ${forTime}`,
      );
    else
      log.warn(
        { upstream: server.name, account: accountId, reason },
        `an upstream keeps failing for one account and gets none of its requests ${forTime}`,
      );
    return reason;
  }

  /** Returns why a request was rejected, as the caller may know it. */
  reasonOf({ reason }: UpstreamFailure): RejectionReason | undefined {
    const { key, passErrors = false } = this.#options;
    const said = passErrors ? (reason?.sentence ?? "") : "";
    return reason && { ...reason, sentence: redact(said, { key, user: null, messages: [] }) };
  }

  /** Reports something odd about an answer. Logged if it is new. */
  notice(server: UpstreamServer, { kind, message, subject }: Omit<AnswerNotice, "isOnReceipt">): void {
    const { log, onNotice } = this.#options;
    onNotice?.(kind);
    if (server.notices.add(kind, message, subject))
      log.warn({ upstream: server.name, notice: kind }, message);
  }

  /** Forgets what was learned of failures. */
  reloaded(): void {
    for (const server of this.#servers) server.reloaded();
    this.dispatch();
  }

  /** Records that a part of an answer has arrived, so that no probe disturbs it. */
  heard(server: UpstreamServer): void {
    if (server.heard()) this.#respondsAgain(server);
  }

  /** Records the first token of an answer. */
  answered(server: UpstreamServer, accountId: string): void {
    // Requests may wait for the end of a pause.
    const mayWait = server.hasFailures;
    if (server.answered(accountId)) this.#respondsAgain(server);
    if (mayWait) this.dispatch();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#line.takeAll(performance.now());
    clearTimeout(this.#trialTimer);
    for (const waiter of this.#waiters) waiter.breakOff(this.#unavailable(waiter.accountId));
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  #watch(server: UpstreamServer, everyMs: number): void {
    server.watch(everyMs, {
      onDown: (reason) =>
        this.#options.log.warn({ upstream: server.name, reason }, "an upstream does not respond"),
      onUp: () => this.#respondsAgain(server),
    });
  }

  #respondsAgain({ name: upstream }: UpstreamServer): void {
    this.#options.log.info({ upstream }, "an upstream responds again");
  }

  /** True if no server may be asked for the account now. */
  #isShut(accountId: string): boolean {
    const nowMs = performance.now();
    return this.#servers.every((server) => nowMs < (server.openUntilMsFor(accountId) ?? 0));
  }

  #slots(nowMs: number): Slots {
    const { parallel, reserved } = this.#options;
    const servers = this.#servers.filter((server) => !server.isOpen(nowMs));
    const busy = servers.reduce((sum, server) => sum + server.busy, 0);
    const total = servers.length * parallel;
    return { total, free: total - busy, reserved: servers.length * reserved };
  }

  /**
   * Dispatches again when an open circuit admits a trial, because no request ends then. `nowMs` is
   * the time of the last search for a server: circuits that admit one since then count.
   */
  #dispatchAtTrial(nowMs: number): void {
    if (this.#line.size === 0) return;
    const waitsMs = [...this.#line.accounts()].flatMap((accountId) =>
      this.#servers.map((server) => (server.openUntilMsFor(accountId) ?? nowMs) - nowMs),
    );
    const nextMs = Math.min(...waitsMs.filter((ms) => ms > 0));
    if (nextMs < Infinity) this.#trialTimer = setTimeout(this.dispatch, Math.ceil(nextMs));
  }

  #unavailable(accountId: string): EngineError {
    if (this.#isClosed) return new EngineError("unavailable", "the engine has been closed");
    const nextMs = Math.min(...this.#servers.map((server) => server.openUntilMsFor(accountId) ?? 0));
    const waitSeconds = Math.max(1, Math.ceil((nextMs - performance.now()) / 1000));
    const names = this.#servers.map(({ name }) => name).join(", ");
    if (this.#servers.every(({ isOutOfCredit }) => isOutOfCredit)) {
      return new EngineError("out_of_credit", `the account at the provider has no credits: ${names}`);
    }
    return new EngineError("unavailable", `every upstream has failed repeatedly: ${names}`, {
      retryAfterSeconds: waitSeconds,
    });
  }
}

function isBetter(server: UpstreamServer, other: UpstreamServer, nowMs: number): boolean {
  if (server.isLastChoice(nowMs) !== other.isLastChoice(nowMs)) return other.isLastChoice(nowMs);
  return server.busy < other.busy;
}
