/**
 * One answer out of an upstream, as the pipeline sees it: waits for a place, sends the request, and takes what arrives,
 * as much at once as the network brought. Nothing is read ahead of the pipeline but the window of the connection.
 *
 * Guarantees: after `stop`, and after a stop sequence, the connection is closed and nothing more is yielded. A request is
 * sent again only before any of its answer has arrived: once over a fresh connection if a kept one was stale, and once to
 * another server. If the chat template refuses the order of the messages, it is sent in other foldings.
 *
 * An upstream makes tokens until the buffers of the connection are full. Unpaid tokens are never yielded and never charged.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import {
  EngineError,
  type EngineEvent,
  type Generation,
  type Reasoning,
  type Usage,
} from "../../chat/engine.ts";
import { Answer, type AnswerOptions } from "./answer.ts";
import type { Attempt } from "./circuit.ts";
import type { ConversationForms } from "./conversation-forms.ts";
import { type Dialect, requestBody } from "./dialects.ts";
import type { Exchange } from "./exchange.ts";
import { brokenAnswer, UpstreamFailure } from "./failure.ts";
import type { UpstreamServer } from "./server.ts";
import type { Applicant, ServerPool } from "./server-pool.ts";

/** For usage and the end of the stream, when the answer itself has come to its end. */
const finishMs = 5000;
/** Events of one batch. Text that was held for a stop sequence comes as thousands at once, and writing all takes seconds. */
const batchMax = 256;
/** 64 events with 20 alternatives each take about 10 ms to write. */
const batchMaxWithLogprobs = 64;

export interface UpstreamJob extends AnswerOptions {
  accountId: string;
  dialect: Dialect;
  /** The model's name at the upstream. */
  model: string;
  /** Null where the model is not said to think, and so is not asked how much it should. */
  reasoning: Reasoning | null;
  /** Stop sequences go along. */
  sendStop: boolean;
  /** As the caller names whom it asks for; null where it does not. */
  user: string | null;
  /** The conversation, in the form to begin with and in those that stricter chat templates take. */
  forms: ConversationForms;
  finishMs?: number | undefined;
  /** The answer ended of its own accord. */
  onCompleted(server: UpstreamServer, job: UpstreamJob, answer: CompletedAnswer): void;
}

export interface CompletedAnswer {
  usage: Usage;
  /** As the upstream counted them; null where it did not say so sanely. */
  promptTokens: number | null;
  /** Completion tokens that had been paid for by then. */
  paidTokens: number;
}

/** The request as it was sent last. */
interface Sent {
  server: UpstreamServer;
  attempt: Attempt;
  exchange: Exchange;
}

export class UpstreamGeneration implements Generation, Applicant {
  readonly job: UpstreamJob;
  readonly #pool: ServerPool;
  readonly #answer: Answer;
  readonly #tried = new Set<UpstreamServer>();
  #sent: Sent | null = null;
  #wasFresh = false;
  /** The upstream has begun on the prompt in an earlier form. */
  #hadBegun = false;
  #hasAnswered = false;
  /** Taken from the exchange; those before `#next` are in the answer. */
  #events: readonly string[] = [];
  #next = 0;
  /** When the rest of an answer that has its end is waited for no longer; null: the reader may have been slow since. */
  #finishByMs: number | null = null;
  #failure: EngineError | null = null;
  #isOver = false;
  #isStopped = false;
  #wake: (() => void) | null = null;

  constructor(job: UpstreamJob, pool: ServerPool) {
    this.job = job;
    this.#pool = pool;
    this.#answer = new Answer(job);
  }

  get usage(): Usage {
    return this.#answer.usage;
  }

  get started(): boolean {
    return this.#hadBegun || this.#sent?.exchange.hasBegun === true;
  }

  extendBudget(paidTokens: number, isLast: boolean): void {
    if (this.#isOver) return;
    this.#answer.extendBudget(paidTokens, isLast);
    this.#wakeUp();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    if (!this.#isOver) this.#end(null);
    this.#wakeUp();
  }

  /** Sends the request: a place at this server is taken for it. */
  begin(server: UpstreamServer): void {
    this.#send(server, false);
    this.#wakeUp();
  }

  /** Ends the request: it gets no place, or loses the one it has. */
  breakOff(failure: EngineError): void {
    if (this.#isOver) return;
    this.#end(failure);
    this.#wakeUp();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<EngineEvent[], void, undefined> {
    const most = this.job.rules.topLogprobs === null ? batchMax : batchMaxWithLogprobs;
    try {
      while (!this.#isStopped) {
        const batch: EngineEvent[] = [];
        if (!this.#isOver) this.#take(batch);
        if (batch.length > 0) {
          for (let from = 0; from < batch.length && !this.#isStopped; from += most) {
            if (from > 0) await nextTurn();
            yield batch.length <= most ? batch : batch.slice(from, from + most);
          }
          this.#finishByMs = null;
        } else if (this.#isOver) {
          if (this.#failure !== null) throw this.#failure;
          return;
        } else await this.#change();
      }
    } finally {
      await this.stop();
    }
  }

  /** Adds what has arrived and is paid for to `batch`. */
  #take(batch: EngineEvent[]): void {
    if (this.#sent === null) return;
    const { exchange } = this.#sent;
    try {
      this.#takeEvents(exchange, batch);
    } catch (error) {
      if (!(error instanceof UpstreamFailure)) throw error;
      this.#failed(error, batch);
    }
    if (!this.#isOver) exchange.handled();
  }

  #takeEvents(exchange: Exchange, batch: EngineEvent[]): void {
    if (!this.#read(batch)) return;
    this.#events = exchange.take();
    this.#next = 0;
    if (!this.#read(batch)) return;
    const { ending } = exchange;
    if (ending === "ended") this.#close("ended", batch);
    else if (ending !== null) throw ending;
    else if (this.#finishByMs !== null && performance.now() >= this.#finishByMs) this.#complete(batch);
  }

  /** Reads the events that have been taken. Returns false if one waits to be paid for or ends the answer. */
  #read(batch: EngineEvent[]): boolean {
    const answer = this.#answer;
    for (let data = this.#events[this.#next]; data !== undefined; data = this.#events[this.#next]) {
      const taken = answer.take(data, batch);
      if (taken === "unpaid") {
        this.#sent?.exchange.pause();
        break;
      }
      this.#next += 1;
      if (taken === "done") this.#close("done", batch);
      else if (answer.hasText) this.#answered();
      if (taken === "short") this.#endShort();
      if (this.#isOver) return false;
    }
    if (answer.hasText) answer.report();
    return !answer.isUnpaid;
  }

  /** Waits until something arrives, is paid for, or ends the answer. */
  async #change(): Promise<void> {
    const exchange = this.#sent?.exchange;
    if (exchange?.hasArrived === true && !this.#answer.isUnpaid) return;
    let timer: NodeJS.Timeout | undefined;
    // Only while the connection is read: what a slow reader or a missing payment holds up is not late.
    if (this.#answer.finish !== null && !this.#answer.isUnpaid) {
      const nowMs = performance.now();
      this.#finishByMs ??= nowMs + (this.job.finishMs ?? finishMs);
      timer = setTimeout(() => this.#wakeUp(), Math.max(0, Math.ceil(this.#finishByMs - nowMs)));
    }
    exchange?.await();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    clearTimeout(timer);
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  #send(server: UpstreamServer, isFresh: boolean): void {
    const { dialect, model, reasoning, sendStop, accountId, user, forms, options } = this.job;
    this.#tried.add(server);
    const { sampling } = options;
    const request = {
      accountId,
      model,
      maxTokens: this.#answer.restart(),
      sampling,
      user,
      reasoning,
      sendStop,
    };
    const body = {
      characters: forms.characters,
      text: () => requestBody(dialect, { ...request, messages: forms.current }),
    };
    const attempt = server.enter(this.#sent?.attempt ?? null);
    this.#events = [];
    this.#next = 0;
    const owner = { changed: () => this.#wakeUp(), freed: this.#pool.pump };
    this.#sent = { server, attempt, exchange: server.send(body, owner, { attempt, isFresh }) };
  }

  /** Returns false if sending the request again cannot help. */
  #sendAgain(failure: UpstreamFailure): boolean {
    const failed = this.#sent;
    const other = failed === null ? null : this.#nextServer(failed.server, failure);
    if (failed === null || other === null) return false;
    if (other !== failed.server) this.#tell(failure, true);
    this.#hadBegun = failure.isRefused && this.started;
    this.#send(other, failure.isStale && other === failed.server);
    // Only now, when the failure is known: the place that this makes is filled at once.
    failed.exchange.abort();
    return true;
  }

  /** Returns the server that gets the request now, the same one over a fresh connection or in another form; null: none. */
  #nextServer(server: UpstreamServer, failure: UpstreamFailure): UpstreamServer | null {
    if (failure.isStale && !this.#wasFresh) {
      this.#wasFresh = true;
      return server;
    }
    if (failure.isRefused && this.job.forms.normaliseFurther()) return server;
    return failure.elsewhere && this.#tried.size === 1 ? this.#pool.another(this.#tried) : null;
  }

  #answered(): void {
    if (this.#hasAnswered || this.#sent === null) return;
    this.#hasAnswered = true;
    this.#pool.answered(this.#sent.server);
  }

  /** The stream says that it is over, or is. */
  #close(how: "done" | "ended", batch: EngineEvent[]): void {
    const isEnd = this.#answer.finish !== null || (how === "done" && this.#answer.hasText);
    if (!isEnd) throw brokenAnswer("its answer ended without its end");
    this.#complete(batch);
  }

  #complete(batch: EngineEvent[]): void {
    const { job } = this;
    const promptTokens = this.#answer.complete(this.#answer.finish ?? this.#answer.impliedFinish, batch);
    this.#wasWhole();
    const { usage, paidTokens } = this.#answer;
    if (this.#sent !== null) job.onCompleted(this.#sent.server, job, { usage, promptTokens, paidTokens });
    this.#sent?.exchange.release();
    this.#over();
  }

  /** The answer has been ended here: the upstream would go on. */
  #endShort(): void {
    this.#wasWhole();
    this.#end(null);
  }

  /** An answer came as far as it was wanted, whoever ended it. */
  #wasWhole(): void {
    this.#answered();
    this.#sent?.server.completed();
  }

  /** Sends the request again if that may help; otherwise ends the answer. */
  #failed(failure: UpstreamFailure, batch: EngineEvent[]): void {
    // The answer is whole; only what belongs to it is lost.
    if (this.#answer.finish !== null) this.#complete(batch);
    else if (this.#answer.hasText || !this.#sendAgain(failure)) this.#fail(failure);
  }

  #fail(failure: UpstreamFailure): void {
    const reason = this.#tell(failure, false);
    const { retryAfterSeconds } = failure;
    const seconds = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
    this.#end(new EngineError(failure.failure, reason, seconds));
  }

  /** Returns what the log may say of the failure. */
  #tell(failure: UpstreamFailure, isAgain: boolean): string {
    if (this.#sent === null) return "";
    const { server, attempt } = this.#sent;
    const { user, forms } = this.job;
    const request = { attempt, inAnswer: this.#hasAnswered, isAgain, user, messages: forms.current };
    return this.#pool.failed(server, failure, request);
  }

  #end(failure: EngineError | null): void {
    this.#failure = failure;
    // Frees its place, which may be filled at once.
    this.#isOver = true;
    this.#sent?.exchange.abort();
    this.#over();
  }

  #over(): void {
    this.#isOver = true;
    this.#answer.freeze();
    this.#pool.leave(this);
  }
}
