/**
 * One upstream server: its connections, its load, its circuit breaker, its probes, and the turns
 * of the event loop that large bodies take.
 *
 * Guarantees: the key is sent to this server only. At most `connectionsMax` requests are under
 * way, because callers check `hasRoom` first.
 */

import { Client, type Dispatcher, Pool } from "undici";
import type { EngineServer } from "../../chat/engine.ts";
import type { Turns } from "../../limits/turns.ts";
import { outgoing } from "../../outgoing.ts";
import type { EpochMs } from "../../units.ts";
import type { Corrections } from "./added-fields.ts";
import { coolDownMsMax } from "./circuit.ts";
import { Exchange, type ExchangeOwner } from "./exchange.ts";
import { type UpstreamFailure, wasClosed } from "./failure.ts";
import { Notices } from "./notices.ts";
import { Probe } from "./probe.ts";
import { type AccountAttempt, ServerCircuit } from "./server-circuit.ts";

export interface UpstreamTimes {
  /** Time to connect. */
  connectMs: number;
  /**
   * Time from the request to the head of the response. Many servers send the head with the first
   * token.
   */
  headersMs: number;
  /** Time between two bytes of an answer. */
  idleMs: number;
}

/** How a request is sent. */
interface Sending {
  /** From `begin`. */
  attempt: AccountAttempt;
  /** Use a new connection. */
  isFresh: boolean;
}

interface ServerOptions {
  /** URL with its path: `https://llm.example/v1`. */
  url: string;
  key: string | null;
  /** Requests on their way at once. */
  connectionsMax: number;
  times: UpstreamTimes;
  turns: Turns;
}

interface ProbeListeners {
  /** The server went down. */
  onDown(reason: string): void;
  /** The server was down and responds again. */
  onUp(): void;
}

/**
 * Idle time before a connection is closed, unless the server sends a shorter one. Most servers
 * keep connections for 5 s or longer.
 */
const keepAliveMs = 4000;
/** Time between trials of a server at which the operator's account is empty. */
const outOfCreditMs = 300_000;
/** Time for which refused fields are remembered. */
const correctedMs = 3_600_000;
/** Questions must not wait behind answers. */
const askConnectionsMax = 16;
/** Limit for the answer to a question: two million tokens. Takes up to 70 ms to parse. */
const askBytesMax = 16 * 1024 * 1024;

export class UpstreamServer {
  /** For the log. */
  readonly name: string;
  /** The last failure, as it was logged. */
  lastError: EngineServer["lastError"] = null;
  /** When the state of `view` began. */
  #stateSinceMs: EpochMs = Date.now();
  #notedState: EngineServer["state"] = "ok";
  readonly #pool: Pool;
  readonly #asks: Pool;
  readonly notices = new Notices();
  readonly #circuit = new ServerCircuit();
  #isOutOfCredit = false;
  readonly #corrections = new Map<string, { value: number | null; untilMs: number }>();
  readonly #origin: string;
  readonly #path: string;
  readonly #connectionsMax: number;
  readonly #turns: Turns;
  readonly #headers: Record<string, string>;
  /** Null until `watch`. */
  #probe: Probe | null = null;
  readonly #times: UpstreamTimes;
  readonly #transport: Client.Options;
  #busy = 0;
  /**
   * End of the pause that the server asked for by `retry-after`. Without another server it gets
   * requests all the same.
   */
  #coolsDownUntilMs = 0;

  constructor({ url, key, connectionsMax, times, turns }: ServerOptions) {
    this.#turns = turns;
    const { origin, pathname } = new URL(url);
    this.#origin = origin;
    this.#path = pathname.replace(/\/+$/, "");
    this.name = origin + this.#path;
    this.#connectionsMax = connectionsMax;
    this.#headers = {
      "content-type": "application/json",
      accept: "text/event-stream",
      // Without it a server may compress.
      "accept-encoding": "identity",
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
    };
    this.#times = times;
    this.#transport = {
      ...outgoing,
      connect: { timeout: times.connectMs },
      // An exchange has a timer of its own, and a question a signal.
      headersTimeout: 0,
      bodyTimeout: times.idleMs,
    };
    this.#pool = new Pool(origin, {
      ...this.#transport,
      connections: connectionsMax,
      keepAliveTimeout: keepAliveMs,
    });
    this.#asks = new Pool(origin, {
      ...this.#transport,
      connections: askConnectionsMax,
      maxResponseSize: askBytesMax,
    });
  }

  get busy(): number {
    return this.#busy;
  }

  hasRoom(accountId: string, nowMs: number): boolean {
    return this.#busy < this.#connectionsMax && this.#circuit.admits(accountId, nowMs);
  }

  isOpen(nowMs: number): boolean {
    return this.#circuit.isOpen(nowMs);
  }

  /** Time from which a request of the account is admitted, or null if it is now. */
  openUntilMsFor(accountId: string): number | null {
    return this.#circuit.openUntilMsFor(accountId);
  }

  get hasFailures(): boolean {
    return this.#circuit.hasFailures;
  }

  /** Whether it gets nothing because the operator's account there is empty. */
  get isOutOfCredit(): boolean {
    return this.#isOutOfCredit;
  }

  get openUntilMs(): number | null {
    return this.#circuit.openUntilMs;
  }

  /** True if the last probe failed. Requests may be sent nevertheless. */
  get isDown(): boolean {
    return this.#probe?.isDown ?? false;
  }

  view(): EngineServer {
    return {
      url: this.name,
      state: this.#state,
      sinceMs: this.#stateSinceMs,
      running: this.#busy,
      pausedAccounts: this.#circuit.pausedAccounts,
      lastError: this.lastError,
      notices: this.notices.list(),
    };
  }

  /** Whether other servers are preferred: it asked for a pause, or is down. */
  isLastChoice(nowMs: number): boolean {
    return nowMs < this.#coolsDownUntilMs || this.isDown;
  }

  /** Asks the server regularly whether it responds, until `close`. */
  watch(everyMs: number, { onDown, onUp }: ProbeListeners): void {
    this.#probe = new Probe({
      everyMs,
      // A server that connects in time may take as long again to respond.
      limitMs: 2 * this.#times.connectMs,
      ask: (signal) => this.#askForModels(signal),
      onFailure: (reason) => {
        this.lastError = { atMs: Date.now(), message: `${this.name}: ${reason}` };
        if (this.#noteState() === "down") onDown(reason);
      },
      onRecovery: () => {
        this.#noteState();
        onUp();
      },
    });
  }

  /**
   * Called before each `send`. `insteadOf` is the earlier attempt of the same request, at this or
   * another server.
   */
  begin(accountId: string, insteadOf: AccountAttempt | null): AccountAttempt {
    return this.#circuit.begin(accountId, performance.now(), insteadOf);
  }

  /** Changes of added fields that the server has lately made necessary. */
  corrections(): Corrections {
    const nowMs = performance.now();
    for (const [name, { untilMs }] of this.#corrections) if (untilMs <= nowMs) this.#corrections.delete(name);
    return new Map([...this.#corrections].map(([name, { value }]) => [name, value]));
  }

  /** Records the corrections with which a request succeeded. */
  keepCorrections(corrections: Corrections): void {
    const untilMs = performance.now() + correctedMs;
    for (const [name, value] of corrections) this.#corrections.set(name, { value, untilMs });
  }

  /** Forgets failures and refused fields, because the operator may have mended their causes. */
  reloaded(): void {
    this.#circuit.reset();
    this.#isOutOfCredit = false;
    this.#coolsDownUntilMs = 0;
    this.#corrections.clear();
    this.notices.clear();
    this.#noteState();
  }

  /**
   * Sends a chat request. A large body gets a turn of the event loop of its own. `owner.freed` is
   * called when the slot is free.
   */
  send(body: Body, owner: ExchangeOwner, { attempt, isFresh }: Sending): Exchange {
    this.#busy += 1;
    const client = isFresh ? new Client(this.#origin, this.#transport) : null;
    const freed = () => {
      this.#busy -= 1;
      this.#circuit.ended(attempt);
      void client?.destroy();
      owner.freed();
    };
    const exchange = new Exchange({ changed: owner.changed, freed }, this.#times.headersMs);
    const path = `${this.#path}/chat/completions`;
    const dispatch = () => {
      if (exchange.isAborted) return exchange.drop();
      try {
        const request = { method: "POST", path, headers: this.#headers, body: body.text() } as const;
        (client ?? this.#pool).dispatch(request, exchange);
      } catch (error) {
        // Its owner has it first.
        queueMicrotask(() => exchange.fail(error));
      }
    };
    if (body.characters < largeCharacters) dispatch();
    else void this.#turn(body.characters).then(dispatch);
    return exchange;
  }

  /**
   * Requests a small JSON document. `path` starts at the root of the server's URL. If a kept
   * connection was closed before the answer, the request is sent again over a new one.
   */
  async ask(path: string, body: Body, signal: AbortSignal): Promise<Answer> {
    await this.#turn(body.characters);
    const question = {
      method: "POST",
      path: this.#path.replace(/\/v1$/, "") + path,
      headers: { ...this.#headers, accept: "application/json" },
      body: body.text(),
      signal,
    } as const;
    const response = await this.#asks.request(question).catch((error: unknown) => {
      if (signal.aborted || !wasClosed(error)) throw error;
      return null;
    });
    if (response !== null) return await this.#answerOf(response);
    const client = new Client(this.#origin, { ...this.#transport, maxResponseSize: askBytesMax });
    try {
      return await this.#answerOf(await client.request(question));
    } finally {
      await client.destroy();
    }
  }

  async #answerOf({ statusCode, body }: Dispatcher.ResponseData): Promise<Answer> {
    const bytes = Buffer.from(await body.arrayBuffer());
    await this.#turn(bytes.length);
    return { status: statusCode, bytes };
  }

  /** Requests the list of models over a connection of its own. Returns the status. */
  async #askForModels(signal: AbortSignal): Promise<number> {
    const client = new Client(this.#origin, this.#transport);
    try {
      const headers = { ...this.#headers, accept: "application/json" };
      const path = `${this.#path}/models`;
      const { statusCode, body } = await client.request({ method: "GET", path, headers, signal });
      // The status is enough. A body that ends early is no failure.
      body.on("error", () => {}).destroy();
      return statusCode;
    } finally {
      await client.destroy();
    }
  }

  /**
   * Resolves at once if the message is small, otherwise in a turn of the event loop of its own. A
   * conversation of 4 MB takes about 10 ms to encode as JSON, and as long again to write to the
   * connection. Twenty of them in one turn would block the event loop for half a second.
   */
  async #turn(characters: number): Promise<void> {
    if (characters >= largeCharacters) await this.#turns.wait(this.name, () => {});
  }

  get #state(): EngineServer["state"] {
    if (this.#isOutOfCredit) return "out_of_credit";
    if (this.openUntilMs !== null) return "resting";
    return this.isDown ? "down" : "ok";
  }

  /** Records when the state has changed. Returns the new state, or null if it is the same. */
  #noteState(): EngineServer["state"] | null {
    const state = this.#state;
    if (state === this.#notedState) return null;
    this.#notedState = state;
    this.#stateSinceMs = Date.now();
    return state;
  }

  /** Records the first token of an answer. Returns true if the server was down or resting. */
  answered(accountId: string): boolean {
    const isClosed = this.#circuit.answered(accountId, performance.now());
    this.#isOutOfCredit = false;
    const isUp = this.heard();
    this.#noteState();
    return isClosed || isUp;
  }

  /** Records that the server responds. Returns true if it was down. */
  heard(): boolean {
    const wasDown = this.#probe?.answered() ?? false;
    if (wasDown) this.#noteState();
    return wasDown;
  }

  /** Records an answer that arrived as far as it was wanted. */
  completed(accountId: string): void {
    this.#circuit.completed(accountId, performance.now());
  }

  /**
   * Records a failure. `inAnswer`: part of the answer had arrived. Returns for whom this opens the
   * circuit, or null.
   */
  failed(failure: UpstreamFailure, attempt: AccountAttempt, inAnswer: boolean): Paused | null {
    const { isFault, retryAfterSeconds } = failure;
    const nowMs = performance.now();
    if (retryAfterSeconds !== undefined) {
      this.#coolsDownUntilMs = nowMs + Math.min(coolDownMsMax, retryAfterSeconds * 1000);
    }
    const paused = this.#pausedBy(failure, attempt, { nowMs, inAnswer });
    if (isFault) this.#probe?.doubt();
    // A server that refuses a request responds.
    else this.heard();
    this.#noteState();
    return paused;
  }

  #pausedBy(
    { failure, isFault, isOfAll }: UpstreamFailure,
    attempt: AccountAttempt,
    { nowMs, inAnswer }: { nowMs: number; inAnswer: boolean },
  ): Paused | null {
    if (failure === "out_of_credit") {
      const isKnown = this.#isOutOfCredit && this.#circuit.isOpen(nowMs);
      this.#circuit.openFor(nowMs, outOfCreditMs);
      this.#isOutOfCredit = true;
      return isKnown ? null : "all";
    }
    // Rejections say nothing about the server.
    if (!isFault) return null;
    if (!this.#circuit.isOpen(nowMs)) this.#isOutOfCredit = false;
    return this.#circuit.failed(nowMs, attempt, { isOfAll, inAnswer });
  }

  async close(): Promise<void> {
    await this.#probe?.stop();
    await Promise.all([this.#pool.destroy(), this.#asks.destroy()]);
  }
}

/** The accounts whose requests a server does not get for a while. */
type Paused = "all" | "account";

/** The answer to a question. */
export interface Answer {
  status: number;
  bytes: Buffer;
}

/** A body that is encoded when it is sent. */
export interface Body {
  /** Lower bound of its length. */
  characters: number;
  text(): string;
}

/** A smaller message takes less than a millisecond and needs no turn of its own. */
const largeCharacters = 131_072;
