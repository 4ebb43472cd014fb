/**
 * One answer out of an upstream, as the pipeline sees it.
 *
 * Guarantees: no more tokens are yielded than are paid for. Text beyond that waits, and the connection is not read meanwhile.
 * At most a window of events is buffered. `usage` never reports fewer tokens than were yielded. After `stop`, and after a stop
 * sequence, the connection is closed and nothing more is yielded. A request is sent again only before any of its answer has
 * arrived: once over a fresh connection if a kept one was stale, and once to another server. If the chat template refuses the
 * order of the messages, it is sent in other foldings.
 *
 * An upstream makes tokens until the buffers of the connection are full. Unpaid tokens are never yielded and never charged.
 */
import {
  EngineError,
  type EngineEvent,
  type FinishReason,
  type GenerateOptions,
  type Generation,
  type Message,
  type Reasoning,
  type Usage,
} from "../../chat/engine.ts";
import { EventQueue } from "../event-queue.ts";
import type { Piece } from "../text/segments.ts";
import type { AnswerText } from "./answer-text.ts";
import { type Chunk, type ChunkRules, readChunk } from "./chunk.ts";
import type { Ticket } from "./circuit.ts";
import type { ConversationForms } from "./conversation-forms.ts";
import type { PromptEstimate } from "./estimate.ts";
import type { Exchange, ExchangeReader } from "./exchange.ts";
import { brokenAnswer, UpstreamFailure } from "./failure.ts";
import type { Sending, UpstreamServer } from "./server.ts";
import { type CountAfter, TokenCount } from "./token-count.ts";

/** Events that a generation may be ahead of its reader. */
const windowEvents = 64;
/** For usage and the end of the stream, when the answer itself has come to its end. */
const finishMs = 5000;

export interface UpstreamJob {
  accountId: string;
  reasoning: Reasoning;
  /** As the caller names whom it asks for; null where it does not. */
  user: string | null;
  /** The conversation, in the form to begin with and in those that stricter chat templates take. */
  forms: ConversationForms;
  prompt: PromptEstimate;
  options: GenerateOptions;
  rules: ChunkRules;
  text: AnswerText;
  contextWindow: number;
  finishMs?: number | undefined;
}

export interface GenerationOwner {
  /** What is sent for this generation now. */
  body(job: UpstreamJob, messages: readonly Message[], maxTokens: number): string;
  send(server: UpstreamServer, body: string, reader: ExchangeReader, how: Sending): Exchange;
  /** Another server that may be asked now; null where there is none. */
  another(tried: ReadonlySet<UpstreamServer>): UpstreamServer | null;
  /** What the log may say of it. */
  failed(server: UpstreamServer, failure: UpstreamFailure, job: UpstreamJob, how: Failing): string;
  /** The first of an answer came. */
  answered(server: UpstreamServer): void;
  /** An answer came as far as it was wanted, whoever ended it. */
  wasWhole(server: UpstreamServer): void;
  /** Ended of its own accord. */
  completed(server: UpstreamServer, job: UpstreamJob, answer: CompletedAnswer): void;
  /** Nothing more comes of it; it may still be waiting for its turn. */
  ended(generation: UpstreamGeneration): void;
}

/** Of a request that failed. */
export interface Failing {
  ticket: Ticket;
  /** Something of its answer had come. */
  inAnswer: boolean;
  /** It goes to another server, so nobody else hears of the failure. */
  isAgain: boolean;
}

export interface CompletedAnswer {
  usage: Usage;
  /** As the upstream counted them; null where it did not say so sanely. */
  promptTokens: number | null;
  /** Completion tokens that had been paid for by then. */
  paidTokens: number;
}

/** What has come of an answer and cannot be taken yet. */
type Held = Chunk | "done" | "ended" | UpstreamFailure;

export class UpstreamGeneration implements Generation {
  readonly job: UpstreamJob;
  readonly #owner: GenerationOwner;
  /** Of what the server that is asked now has said. */
  #count: TokenCount;
  readonly #events = new EventQueue();
  readonly #held: Held[] = [];
  readonly #tried = new Set<UpstreamServer>();
  #maxTokens: number;
  #paidTokens: number;
  /** What the upstream was asked for; 0 before. */
  #askedTokens = 0;
  #messages: readonly Message[];
  #wasFresh = false;
  /** That is asked now, and how it knows this request. */
  #sent: { server: UpstreamServer; ticket: Ticket } | null = null;
  #exchange: Exchange | null = null;
  #started = false;
  #answered = false;
  #finish: FinishReason | null = null;
  #finishing: NodeJS.Timeout | undefined;
  #final: Usage | null = null;
  #isOver = false;
  #isPaused = false;

  constructor(job: UpstreamJob, owner: GenerationOwner) {
    this.job = job;
    this.#owner = owner;
    this.#messages = job.forms.current;
    this.#maxTokens = job.options.maxTokens;
    this.#paidTokens = job.options.paidTokens;
    this.#count = newCount(job);
  }

  get usage(): Usage {
    return this.#final ?? this.#count.soFar(this.#thinkingTokens);
  }

  get started(): boolean {
    return this.#started;
  }

  [Symbol.asyncIterator](): AsyncGenerator<EngineEvent, void, undefined> {
    return this.#events.drain(
      () => this.#readOn(),
      () => this.stop(),
    );
  }

  pay(paidTokens: number, isLast: boolean): void {
    if (this.#isOver) return;
    this.#paidTokens = Math.max(this.#paidTokens, paidTokens);
    if (isLast) this.#maxTokens = Math.min(this.#maxTokens, this.#paidTokens);
    this.#takeHeld();
  }

  async stop(): Promise<void> {
    this.#events.close();
    if (this.#isOver) return;
    this.#isOver = true;
    this.#end();
    this.#exchange?.abort();
  }

  /** From the engine: its turn has come. */
  begin(server: UpstreamServer): void {
    this.#send(server, false);
  }

  /** From the engine: there will be no turn, or no more of the answer. */
  breakOff(failure: EngineError): void {
    if (this.#isOver) return;
    this.#exchange?.abort();
    this.#over(failure);
  }

  #send(server: UpstreamServer, isFresh: boolean): void {
    const { job } = this;
    this.#tried.add(server);
    this.#askedTokens = this.#maxTokens;
    // What another server said of its tokens before it failed is nothing that this one made.
    this.#count = newCount(job);
    const body = this.#owner.body(job, this.#messages, this.#maxTokens);
    const ticket = server.enter(this.#sent?.ticket ?? null);
    this.#sent = { server, ticket };
    const reader: ExchangeReader = {
      begun: () => {
        this.#started = true;
      },
      event: (data, isError) => this.#receive(() => this.#read(data, isError)),
      ended: () => this.#receive(() => "ended"),
      failed: (failure) => this.#receive(() => failure),
    };
    this.#exchange = this.#owner.send(server, body, reader, { ticket, isFresh });
  }

  get #thinkingTokens(): number {
    return this.job.text.thinkingTokens;
  }

  #receive(read: () => Held): void {
    if (this.#isOver) return;
    const held = read();
    if (this.#held.length > 0 || !this.#take(held)) this.#held.push(held);
    if (this.#isOver) return;
    if (this.#held.length > 0 || this.#events.length >= windowEvents) {
      this.#isPaused = true;
      this.#exchange?.pause();
      clearTimeout(this.#finishing);
    }
  }

  #takeHeld(): void {
    for (let next = this.#held[0]; next !== undefined && !this.#isOver; next = this.#held[0]) {
      if (!this.#take(next)) break;
      this.#held.shift();
    }
    this.#readOn();
  }

  #readOn(): void {
    if (!this.#isPaused || this.#held.length > 0 || this.#events.length > windowEvents / 2) return;
    this.#isPaused = false;
    this.#exchange?.resume();
    if (this.#finish !== null) this.#waitForRest(this.#finish);
  }

  #read(data: string, isError: boolean): Held {
    if (data === "[DONE]") return "done";
    try {
      if (isError) return brokenAnswer(`it told of an error: ${data}`);
      return readChunk(data, this.job.rules);
    } catch (error) {
      if (error instanceof UpstreamFailure) return error;
      throw error;
    }
  }

  /** False where it has to wait for pay. */
  #take(held: Held): boolean {
    if (held instanceof UpstreamFailure) {
      this.#fail(held);
      return true;
    }
    if (held === "done" || held === "ended") {
      this.#close(held);
      return true;
    }
    const { text, thinks, usage, finishReason } = held;
    if (text !== "" || thinks) {
      const count = this.#count.after(held, this.#askedTokens);
      const { tokens } = count;
      if (tokens > this.#paidTokens || tokens > this.#maxTokens) {
        if (this.#paidTokens >= this.#maxTokens) this.#endShort("length");
        // Made, though not yet to be had: asks for what it takes.
        else this.job.options.onTokens(tokens);
        return this.#isOver;
      }
      this.#addText(held, count);
      if (this.#isOver) return true;
    } else if (usage !== null) this.#count.report(usage);
    if (finishReason !== null && this.#finish === null) this.#finishWith(finishReason);
    return true;
  }

  #addText(chunk: Chunk, count: CountAfter): void {
    this.#hasAnswered();
    const added = this.#count.add(chunk, count);
    const { job } = this;
    if (chunk.text !== "") {
      this.#push(job.text.push(chunk.text, added, chunk.thinks ? [] : (chunk.logprobs ?? [])));
    }
    job.options.onTokens(this.#count.completionTokens);
    if (job.text.stopped) this.#endShort("stop");
  }

  #hasAnswered(): void {
    if (this.#answered || this.#sent === null) return;
    this.#answered = true;
    this.#owner.answered(this.#sent.server);
  }

  #push(pieces: readonly Piece[]): void {
    const { topLogprobs } = this.job.rules;
    for (const { text, logprobs } of pieces) {
      if (text === "") continue;
      this.#events.push(topLogprobs === null ? { type: "text", text } : { type: "text", text, logprobs });
    }
  }

  #finishWith(reason: string): void {
    if (reason === "error" || reason === "abort") {
      this.#fail(brokenAnswer(`it ended the answer with the reason ${reason}`));
      return;
    }
    this.#finish = reason === "length" ? "length" : "stop";
    this.#waitForRest(this.#finish);
  }

  /** Only while the connection is read: what a slow reader holds up is not late. */
  #waitForRest(reason: FinishReason): void {
    clearTimeout(this.#finishing);
    if (this.#isPaused || this.#isOver) return;
    this.#finishing = setTimeout(() => this.#complete(reason), this.job.finishMs ?? finishMs);
  }

  /** The stream says that it is over, or is. */
  #close(how: "done" | "ended"): void {
    if (this.#finish !== null) this.#complete(this.#finish);
    else if (how === "ended" || this.#count.events === 0)
      this.#fail(brokenAnswer("its answer ended without its end"));
    else this.#complete(this.#count.completionTokens >= this.#askedTokens ? "length" : "stop");
  }

  #complete(reason: FinishReason): void {
    if (this.#isOver) return;
    const { job } = this;
    this.#push(job.text.end());
    const finish = job.text.stopped ? "stop" : reason;
    const { usage, promptTokens } = this.#count.final(this.#askedTokens, this.#thinkingTokens);
    this.#final = usage;
    // Usage may tell of tokens without text, which are made and paid for all the same.
    job.options.onTokens(usage.completionTokens);
    this.#events.push({ type: "end", finishReason: finish });
    this.#wasWhole();
    const answer: CompletedAnswer = { usage, promptTokens, paidTokens: this.#paidTokens };
    if (this.#sent !== null) this.#owner.completed(this.#sent.server, job, answer);
    this.#exchange?.release();
    this.#over(null);
  }

  #wasWhole(): void {
    this.#hasAnswered();
    if (this.#sent !== null) this.#owner.wasWhole(this.#sent.server);
  }

  /** Ends here what the upstream would go on with. */
  #endShort(finishReason: FinishReason): void {
    if (finishReason === "length") this.#push(this.job.text.end());
    else this.#final = { ...this.#count.soFar(this.#thinkingTokens), endedHere: true };
    this.#events.push({ type: "end", finishReason });
    this.#wasWhole();
    this.#exchange?.abort();
    this.#over(null);
  }

  #fail(failure: UpstreamFailure): void {
    if (this.#finish !== null) {
      // The answer is whole; only what belongs to it is lost.
      this.#complete(this.#finish);
      return;
    }
    const exchange = this.#exchange;
    const isAgain = this.#count.events === 0 && this.#sendAgain(failure);
    const said = isAgain ? "" : this.#failed(failure, false);
    // Only now, when the failure is known: the place that this makes is filled at once.
    exchange?.abort();
    if (isAgain) return;
    const { retryAfterSeconds } = failure;
    const seconds = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
    this.#over(new EngineError(failure.failure, said, seconds));
  }

  #failed(failure: UpstreamFailure, isAgain: boolean): string {
    if (this.#sent === null) return "";
    const { server, ticket } = this.#sent;
    return this.#owner.failed(server, failure, this.job, { ticket, inAnswer: this.#answered, isAgain });
  }

  #sendAgain(failure: UpstreamFailure): boolean {
    if (this.#sent === null) return false;
    const { server } = this.#sent;
    if (failure.isStale && !this.#wasFresh) {
      this.#wasFresh = true;
      this.#started = false;
      this.#send(server, true);
      return true;
    }
    if (failure.isRefused && this.job.forms.fold()) {
      this.#messages = this.job.forms.current;
      this.#send(server, false);
      return true;
    }
    if (!failure.elsewhere || this.#tried.size > 1) return false;
    const other = this.#owner.another(this.#tried);
    if (other === null) return false;
    this.#failed(failure, true);
    this.#started = false;
    this.#send(other, false);
    return true;
  }

  #over(failure: EngineError | null): void {
    this.#isOver = true;
    if (failure !== null) this.#events.fail(failure);
    this.#end();
  }

  #end(): void {
    clearTimeout(this.#finishing);
    this.#held.length = 0;
    this.#final ??= this.#count.soFar(this.#thinkingTokens);
    this.#owner.ended(this);
  }
}

function newCount({ prompt, contextWindow }: UpstreamJob): TokenCount {
  return new TokenCount(prompt.likely, contextWindow);
}
