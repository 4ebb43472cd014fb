/**
 * One upstream server: its connections, how busy it is, and whether it is worth asking.
 *
 * Guarantees: the key goes to this server and nowhere else; there are never more requests on their way than
 * `connectionsMax`, for nobody begins one without asking `hasRoom`.
 */
import { Client, type Dispatcher, Pool } from "undici";
import { type Attempt, Circuit, coolDownMsMax } from "./circuit.ts";
import { Exchange, type ExchangeOwner } from "./exchange.ts";
import { type UpstreamFailure, wasClosed } from "./failure.ts";
import type { LargeTurns } from "./large-turns.ts";

export interface UpstreamTimes {
  /** For a connection to be made. */
  connectMs: number;
  /** From the request to the head of its answer, which many servers send with the first token. */
  headersMs: number;
  /** Between two bytes of an answer. */
  idleMs: number;
}

/** How a request is sent. */
export interface Sending {
  /** From `enter`. */
  attempt: Attempt;
  /** Over a connection that nothing has used before. */
  isFresh: boolean;
}

export interface ServerOptions {
  /** With its path: `https://llm.example/v1`. */
  url: string;
  key: string | null;
  /** Requests on their way at once. */
  connectionsMax: number;
  times: UpstreamTimes;
  turns: LargeTurns;
}

/** Unused connections are closed after so long, unless the server says an earlier time: most keep them 5 s or longer. */
const keepAliveMs = 4000;
/** Questions must not wait behind answers. */
const askConnectionsMax = 16;
/** Of an answer to a question: the tokens of a prompt of 4 MiB, written out. */
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
  /** It asked to be left alone until then; it is asked all the same where there is no other. */
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

  /** Before each `send`; `insteadOf`: the attempt of the sending that this one repeats, here or elsewhere. */
  enter(insteadOf: Attempt | null): Attempt {
    return this.#circuit.enter(performance.now(), insteadOf);
  }

  /**
   * Sends a chat request; one with a large body in a turn of the event loop of its own. `owner.freed` is called when there is
   * room for another one.
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
   * Asks for a small JSON document beside the answers; `path` from the root of the server's address. Once more, over a
   * fresh connection, where a kept one was closed before the answer.
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

  /** The first of an answer came. True where the circuit closes with it. */
  answered(): boolean {
    return this.#circuit.answered();
  }

  /** An answer came as far as it was wanted. */
  completed(): void {
    this.#circuit.completed();
  }

  /** `inAnswer`: something of the answer had come. True where the circuit opens with it. */
  failed(failure: UpstreamFailure, attempt: Attempt, inAnswer: boolean): boolean {
    const { isFault, retryAfterSeconds } = failure;
    const nowMs = performance.now();
    if (retryAfterSeconds !== undefined) {
      this.#coolsDownUntilMs = nowMs + Math.min(coolDownMsMax, retryAfterSeconds * 1000);
    }
    if (isFault) return this.#circuit.failed(nowMs, attempt, inAnswer);
    // A server that refuses is one that answers.
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

/** A body that is written when it is sent. */
export interface Body {
  /** As many as it has at least. */
  characters: number;
  text(): string;
}
