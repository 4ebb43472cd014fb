/**
 * Model servers of a simulated world, in place of undici's connections. Most answer well. Some are
 * slow, break off, respond with errors, send no end, or lie about what they generated.
 */
import { Readable } from "node:stream";
import { type Dispatcher, errors } from "undici";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import type { Random } from "./random.ts";
import { type ReceivedRequest, receiverOrigin, type SimulatedReceivers } from "./receivers.ts";
import type { Owner, Timeline, Timer } from "./timeline.ts";

/** How a server answers, with how often. */
export interface UpstreamHabits {
  well: number;
  /** The connection cannot be opened. */
  refusesConnection: number;
  /** 500, or 503 and 429 with a pause. */
  respondsWithError: number;
  /** The connection breaks between two tokens. */
  breaksOff: number;
  /** Nothing more comes after some tokens. */
  hangs: number;
  /** It never responds. */
  staysSilent: number;
  /** The usage is too small, too large, or absurd. */
  lies: number;
  /** It generates more tokens than it was asked for. */
  runsOn: number;
  /** There is no usage, and no end. */
  endsEarly: number;
}

/** One request at a server, as it went. */
interface UpstreamCall {
  promptTokens: number;
  /** Tokens that were handed to the network. */
  sent: number;
  habit: keyof UpstreamHabits;
}

/** Hears of each request, by the mark that its client gave it. */
export interface UpstreamListener {
  began(mark: string): void;
  ended(mark: string): void;
}

type Handler = Dispatcher.DispatchHandler;

interface ChatBody {
  messages: { content: unknown }[];
  max_tokens?: number;
}

export class SimulatedUpstreams {
  readonly listener: UpstreamListener;
  readonly #timeline: Timeline;
  readonly #random: Random;
  readonly #habits: UpstreamHabits;
  readonly answering = new Map<object, Owner>();

  constructor(options: {
    timeline: Timeline;
    random: Random;
    habits: UpstreamHabits;
    listener: UpstreamListener;
  }) {
    this.listener = options.listener;
    this.#timeline = options.timeline;
    this.#random = options.random;
    this.#habits = options.habits;
  }

  /** Returns the classes of undici, for a process. */
  module(owner: Owner, receivers: SimulatedReceivers): Record<string, unknown> {
    const serve = (options: Dispatcher.DispatchOptions, handler: Handler, idleMs: number) =>
      new Answer(this, { timeline: this.#timeline, owner, handler, idleMs }).begin(options);
    class SimulatedPool {
      readonly #idleMs: number;

      readonly #isReceiver: boolean;

      constructor(origin: string, options: { bodyTimeout?: number } = {}) {
        this.#idleMs = options.bodyTimeout ?? 300_000;
        this.#isReceiver = origin === receiverOrigin;
      }

      dispatch(options: Dispatcher.DispatchOptions, handler: Handler): boolean {
        serve(options, handler, this.#idleMs);
        return true;
      }

      /** Of servers, only the list of models is asked for: the dialect counts no prompts. */
      async request(options: ReceivedRequest): Promise<object> {
        if (this.#isReceiver) return await receivers.request(options, owner);
        return { statusCode: 200, body: Readable.from(['{"data":[]}']) };
      }

      async close(): Promise<void> {}
      async destroy(): Promise<void> {}
    }
    const never = { request() {}, setGlobalDispatcher() {}, Agent: class {}, EnvHttpProxyAgent: class {} };
    return { Pool: SimulatedPool, Client: SimulatedPool, errors, ...never };
  }

  habit(): keyof UpstreamHabits {
    return this.#random.weighted({ ...this.#habits });
  }

  /** Number of calls that living processes wait for. */
  get open(): number {
    return [...this.answering.values()].filter(({ isGone }) => !isGone).length;
  }

  get random(): Random {
    return this.#random;
  }
}

/** Clients put a mark like `#17` into what they ask. */
function markIn(content: string): string {
  return /#\d+/.exec(content)?.[0] ?? "";
}

class Answer {
  readonly #upstreams: SimulatedUpstreams;
  readonly #timeline: Timeline;
  readonly #owner: Owner;
  readonly #handler: Handler;
  readonly #idleMs: number;
  #idle: Timer | null = null;
  #isPaused = false;
  #isOver = false;
  #mark = "";
  /** Events that arrived while the connection was paused. */
  readonly #waiting: (() => void)[] = [];

  constructor(
    upstreams: SimulatedUpstreams,
    options: { timeline: Timeline; owner: Owner; handler: Handler; idleMs: number },
  ) {
    this.#upstreams = upstreams;
    this.#timeline = options.timeline;
    this.#owner = options.owner;
    this.#handler = options.handler;
    this.#idleMs = options.idleMs;
    this.#upstreams.answering.set(this, this.#owner);
  }

  readonly #controller: Dispatcher.DispatchController = (() => {
    const answer = this;
    return {
      get aborted() {
        return answer.#isOver;
      },
      get paused() {
        return answer.#isPaused;
      },
      get reason() {
        return null;
      },
      abort: (error: Error) => answer.#fail(error),
      pause: () => {
        answer.#isPaused = true;
        answer.#idle?.close();
      },
      resume: () => {
        answer.#isPaused = false;
        answer.#watch();
        while (!answer.#isPaused && !answer.#isOver) {
          const arrived = answer.#waiting.shift();
          if (arrived === undefined) return;
          arrived();
        }
      },
    };
  })();

  begin({ body }: Dispatcher.DispatchOptions): void {
    const request: ChatBody = JSON.parse(String(body));
    const { random } = this.#upstreams;
    const habit = this.#upstreams.habit();
    const characters = JSON.stringify(request.messages).length;
    const call: UpstreamCall = { promptTokens: Math.ceil(characters / 6), sent: 0, habit };
    this.#mark = markIn(String(request.messages.at(-1)?.content));
    this.#upstreams.listener.began(this.#mark);
    if (habit === "refusesConnection") {
      this.#after(2, () =>
        this.#fail(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" })),
      );
      return;
    }
    this.#after(random.delay(2), () => {
      this.#handler.onRequestStart?.(this.#controller, {});
      if (habit === "staysSilent") return;
      if (habit === "respondsWithError") this.#respondWithError();
      else this.#after(random.delay(80), () => this.#stream(request, call));
    });
  }

  #respondWithError(): void {
    const { random } = this.#upstreams;
    const status = random.pick([500, 503, 429]);
    const headers = { "content-type": "application/json", ...(status === 500 ? {} : { "retry-after": "1" }) };
    this.#after(random.delay(20), () => {
      this.#handler.onResponseStart?.(this.#controller, status, headers);
      this.#data('{"error":{"message":"no","type":"server_error"}}');
      this.#end();
    });
  }

  #stream({ max_tokens: most = 16 }: ChatBody, call: UpstreamCall): void {
    const { random } = this.#upstreams;
    const { habit } = call;
    const wanted = random.chance(0.4) ? most : Math.min(most, random.whole(0, 12));
    const length = habit === "runsOn" ? most + random.whole(1, 8) : wanted;
    const stopsAt =
      habit === "breaksOff" || habit === "hangs" || habit === "endsEarly" ? random.whole(0, length) : length;
    this.#handler.onResponseStart?.(this.#controller, 200, { "content-type": "text/event-stream" });
    this.#data(first);
    const pace = random.delay(15);
    const next = () => {
      if (call.sent < stopsAt) {
        call.sent += 1;
        this.#data(text(` w${call.sent}`));
        this.#after(random.delay(pace), next);
        return;
      }
      if (habit === "hangs") return;
      if (habit === "breaksOff")
        this.#fail(Object.assign(new Error("other side closed"), { code: "UND_ERR_SOCKET" }));
      else if (habit === "endsEarly") this.#end();
      else {
        this.#data(finish(length < most ? "stop" : "length"));
        const [prompt, completion] = habit === "lies" ? this.#lie(call) : [call.promptTokens, call.sent];
        this.#data(usage(prompt, completion));
        this.#data(done);
        this.#end();
      }
    };
    this.#after(random.delay(pace), next);
  }

  #lie({ promptTokens, sent }: UpstreamCall): [unknown, unknown] {
    const { random } = this.#upstreams;
    return random.pick<[unknown, unknown]>([
      [0, 0],
      [promptTokens, sent + 5],
      [promptTokens * 10, sent * 10],
      [2 ** 60, 2 ** 60],
      [-1, -1],
      ["many", null],
      [promptTokens, Math.max(0, sent - 3)],
    ]);
  }

  #data(bytes: string): void {
    this.#arrive(() => this.#handler.onResponseData?.(this.#controller, Buffer.from(bytes)));
  }

  #end(): void {
    this.#arrive(() => {
      this.#close();
      this.#handler.onResponseEnd?.(this.#controller, {});
    });
  }

  #fail(error: Error): void {
    if (this.#isOver) return;
    this.#close();
    // undici reports it after the caller's turn.
    this.#timeline.after(0, () => this.#handler.onResponseError?.(this.#controller, error), this.#owner);
  }

  #close(): void {
    this.#isOver = true;
    this.#idle?.close();
    this.#upstreams.answering.delete(this);
    this.#upstreams.listener.ended(this.#mark);
  }

  #arrive(receive: () => void): void {
    if (this.#isOver) return;
    this.#watch();
    if (this.#isPaused) this.#waiting.push(receive);
    else receive();
  }

  /** The time without a byte begins anew. */
  #watch(): void {
    this.#idle?.close();
    if (!this.#isOver && !this.#isPaused)
      this.#idle = this.#after(this.#idleMs, () => this.#fail(new errors.BodyTimeoutError()));
  }

  /** Nothing happens after the end of the process: it has closed its connections. */
  #after(ms: number, run: () => void): Timer {
    return this.#timeline.after(
      ms,
      () => {
        if (!this.#isOver) run();
      },
      this.#owner,
    );
  }
}
