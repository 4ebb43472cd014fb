/**
 * One upstream server: its connections, its load and its circuit breaker.
 *
 * Guarantees: the key is sent to this server only. At most `connectionsMax` requests are under
 * way, because callers check `hasRoom` first.
 */
import { Client, type Dispatcher, Pool } from "undici";
import { type Attempt, Circuit, coolDownMsMax } from "./circuit.ts";
import { Exchange, type ExchangeOwner } from "./exchange.ts";
import { type UpstreamFailure, wasClosed } from "./failure.ts";
import type { LargeTurns } from "./large-turns.ts";

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
export interface Sending {
  /** From `enter`. */
  attempt: Attempt;
  /** Use a new connection. */
  isFresh: boolean;
}

export interface ServerOptions {
  /** URL with its path: `https://llm.example/v1`. */
  url: string;
  key: string | null;
  /** Requests on their way at once. */
  connectionsMax: number;
  times: UpstreamTimes;
  turns: LargeTurns;
}

/**
 * Idle time before a connection is closed, unless the server sends a shorter one. Most servers
 * keep connections for 5 s or longer.
 */
const keepAliveMs = 4000;
/** Questions must not wait behind answers. */
const askConnectionsMax = 16;
/** Limit for the answer to a question: the tokens of a prompt of 4 MiB. */
const askBytesMax = 64 * 1024 * 1024;

export class UpstreamServer {
  /** For the log. */
  readonly name: string;
  readonly #pool: Pool;
  readonly #asks: Pool;
  readonly #circuit = new Circuit();
  readonly #origin: string;
  readonly #path: string;
  readonly #connectionsMax: number;
  readonly #turns: LargeTurns;
  readonly #headers: Record<string, string>;
  readonly #transport: { connect: { timeout: number }; headersTimeout: number; bodyTimeout: number };
  #busy = 0;
  /**
   * End of the pause that the server asked for. Without another server it gets requests all the
   * same.
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
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
    };
    this.#transport = {
      connect: { timeout: times.connectMs },
      headersTimeout: times.headersMs,
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

  hasRoom(nowMs: number): boolean {
    return this.#busy < this.#connectionsMax && this.#circuit.admits(nowMs);
  }

  isOpen(nowMs: number): boolean {
    return this.#circuit.isOpen(nowMs);
  }

  get openUntilMs(): number | null {
    return this.#circuit.openUntilMs;
  }

  isCoolingDown(nowMs: number): boolean {
    return nowMs < this.#coolsDownUntilMs;
  }

  /**
   * Called before each `send`. `insteadOf` is the earlier attempt of the same request, at this or
   * another server.
   */
  enter(insteadOf: Attempt | null): Attempt {
    return this.#circuit.enter(performance.now(), insteadOf);
  }

  /**
   * Sends a chat request. A large body gets a turn of the event loop of its own. `owner.freed` is
   * called when the place is free.
   */
  send(body: Body, owner: ExchangeOwner, { attempt, isFresh }: Sending): Exchange {
    this.#busy += 1;
    const client = isFresh ? new Client(this.#origin, this.#transport) : null;
    const exchange = new Exchange({
      changed: owner.changed,
      freed: () => {
        this.#busy -= 1;
        this.#circuit.left(attempt);
        void client?.destroy();
        owner.freed();
      },
    });
    const path = `${this.#path}/chat/completions`;
    this.#turns.run(body.characters, () => {
      if (exchange.isAborted) exchange.drop();
      else
        (client ?? this.#pool).dispatch(
          { method: "POST", path, headers: this.#headers, body: body.text() },
          exchange,
        );
    });
    return exchange;
  }

  /**
   * Requests a small JSON document. `path` starts at the root of the server's URL. If a kept
   * connection was closed before the answer, the request is sent again over a new one.
   */
  async ask(path: string, body: Body, signal: AbortSignal): Promise<{ status: number; text: string }> {
    await this.#turns.wait(body.characters);
    const question: Question = { path, body: body.text(), signal };
    const response = await this.#ask(this.#asks, question).catch((error: unknown) => {
      if (signal.aborted || !wasClosed(error)) throw error;
      return null;
    });
    if (response !== null) return await this.#textOf(response);
    const client = new Client(this.#origin, { ...this.#transport, maxResponseSize: askBytesMax });
    try {
      return await this.#textOf(await this.#ask(client, question));
    } finally {
      await client.destroy();
    }
  }

  #ask(client: Dispatcher, { path, body, signal }: Question): Promise<Dispatcher.ResponseData> {
    const root = this.#path.replace(/\/v1$/, "");
    const headers = { ...this.#headers, accept: "application/json" };
    return client.request({ method: "POST", path: root + path, headers, body, signal });
  }

  async #textOf({ statusCode, body }: Dispatcher.ResponseData): Promise<{ status: number; text: string }> {
    const bytes = Buffer.from(await body.arrayBuffer());
    await this.#turns.wait(bytes.length);
    return { status: statusCode, text: bytes.toString("utf8") };
  }

  /** Records the first token of an answer. Returns true if this closes the circuit. */
  answered(): boolean {
    return this.#circuit.answered();
  }

  /** Records an answer that arrived as far as it was wanted. */
  completed(): void {
    this.#circuit.completed();
  }

  /**
   * Records a failure. `inAnswer`: part of the answer had arrived. Returns true if this opens the
   * circuit.
   */
  failed(failure: UpstreamFailure, attempt: Attempt, inAnswer: boolean): boolean {
    const { isFault, retryAfterSeconds } = failure;
    const nowMs = performance.now();
    if (retryAfterSeconds !== undefined) {
      this.#coolsDownUntilMs = nowMs + Math.min(coolDownMsMax, retryAfterSeconds * 1000);
    }
    if (isFault) return this.#circuit.failed(nowMs, attempt, inAnswer);
    // A server that refuses a request is alive.
    this.#circuit.answered();
    return false;
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.destroy(), this.#asks.destroy()]);
  }
}

interface Question {
  path: string;
  body: string;
  signal: AbortSignal;
}

/** A body that is encoded when it is sent. */
export interface Body {
  /** Lower bound of its length. */
  characters: number;
  text(): string;
}
