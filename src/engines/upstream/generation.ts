/**
 * One answer of an upstream. It waits for a slot, sends the request, and yields what has arrived,
 * one batch for each read of the network. It reads ahead by no more than the window of the
 * connection.
 *
 * Guarantees: after `stop` and after a stop sequence, the connection is closed and nothing more is
 * yielded. A request is sent again only before its answer starts: once over a fresh connection if
 * a kept one was stale, and once to another server. If the chat template refuses the order of the
 * messages, they are sent in the next normal form. If the server refuses a field that Inkwell
 * adds, the request is sent without it (added-fields.ts).
 *
 * An answer ends with the upstream's end (`#streamEnded`, `#complete`), here at a limit or a stop
 * sequence (`#cutOff`), with a failure that no further attempt helps (`#retryOrFail`, `#fail`), or
 * from outside (`stop`, `breakOff`). All of them come to `#over`.
 *
 * An upstream generates tokens until the buffers of the connection are full. Unpaid tokens are
 * never yielded and never charged.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { EngineError, type EngineEvent, type Generation, type Usage } from "../../chat/engine.ts";
import { given } from "../../objects.ts";
import type { ConversationForms } from "../text/conversation-forms.ts";
import { type AddedFields, type Corrections, correctionFor, fitting, isAboutAdded } from "./added-fields.ts";
import type { Waiter } from "./admission-queue.ts";
import { type AnswerOptions, UpstreamAnswer } from "./answer.ts";
import { type Dialect, requestBody, type UpstreamRequest } from "./dialects.ts";
import type { Exchange } from "./exchange.ts";
import { brokenAnswer, inMidAnswer, UpstreamFailure } from "./failure.ts";
import type { UpstreamServer } from "./server.ts";
import type { AccountAttempt } from "./server-circuit.ts";
import type { ServerPool } from "./server-pool.ts";

/** Attempts in all, if a server refuses added fields. */
const attemptsMax = 4;
/** Time for the usage and the end of the stream after the end of the answer. */
const finishMs = 5000;
/**
 * After its first text, an answer is read at most so often, for a caller who gets it as a whole or
 * as a stream. Each reading costs as much as some ten events.
 */
const readEveryMs = { whole: 20, stream: 5 };
/**
 * Limit of events in a batch. Text that was held for a stop sequence comes as thousands of events
 * at once, and writing them all takes seconds.
 */
const batchMax = 256;
/** 64 events with 20 alternatives each take about 10 ms to write. */
const batchMaxWithLogprobs = 64;

interface UpstreamJob extends AnswerOptions {
  dialect: Dialect;
  /**
   * The request without the limit of tokens and the messages, which may differ when it is sent.
   */
  request: Omit<UpstreamRequest, "maxTokens" | "messages" | "corrections">;
  /** Fields of the request that the caller did not send. */
  added: AddedFields;
  /** The conversation, with the forms for stricter chat templates. */
  forms: ConversationForms;
  finishMs?: number | undefined;
  /** Longest time without text or thinking, from the head of the answer on. */
  textMs: number;
  /** Called if the upstream ended the answer. */
  onCompleted(server: UpstreamServer, answer: CompletedAnswer): void;
}

export interface CompletedAnswer {
  usage: Usage;
  /** The upstream's count, or null if it is missing, impossible or of a cut prompt. */
  promptTokens: number | null;
  /** Completion tokens that were paid for at the end. */
  paidTokens: number;
}

/** The last attempt to send the request. */
interface Sent {
  server: UpstreamServer;
  attempt: AccountAttempt;
  exchange: Exchange;
}

export class UpstreamGeneration implements Generation, Waiter {
  readonly job: UpstreamJob;
  readonly #pool: ServerPool;
  readonly #answer: UpstreamAnswer;
  readonly #tried = new Set<UpstreamServer>();
  #sent: Sent | null = null;
  #wasFresh = false;
  /** An upstream started on the prompt in an earlier form. */
  #hadBegun = false;
  #hasAnswered = false;
  #attempts = 0;
  /** For the server that is asked now. */
  #corrections = new Map<string, number | null>();
  /** Fields that were corrected because this request was refused. */
  readonly #corrected = new Set<string>();
  /** Those of them that other requests need too. */
  readonly #lessons = new Map<string, number | null>();
  /** Events from the exchange. Those before `#next` are part of the answer. */
  #events: readonly string[] = [];
  #next = 0;
  /**
   * Deadline for more text, or for the usage after the end of the answer. Null if text has arrived
   * or the reader may have been slow since the last read.
   */
  #dueMs: number | null = null;
  /** Wakes the loop at the deadline, or before a later one. */
  #timer: NodeJS.Timeout | undefined;
  /** The last reading. */
  #readMs = 0;
  /** Runs while bytes wait to be read together. */
  #gathering: NodeJS.Timeout | undefined;
  #failure: EngineError | null = null;
  #isOver = false;
  #isStopped = false;
  #wake: (() => void) | null = null;

  constructor(job: UpstreamJob, pool: ServerPool) {
    this.job = job;
    this.#pool = pool;
    this.#answer = new UpstreamAnswer(job);
  }

  get accountId(): string {
    return this.job.request.accountId;
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
    if (!this.#isOver) this.#countArrived();
    if (!this.#isOver) this.#end(null);
    this.#wakeUp();
  }

  /** Sends the request to a server with a slot for it. */
  begin(server: UpstreamServer): void {
    this.#send(server, false);
    this.#wakeUp();
  }

  /** Ends the request, because it gets no slot or the engine closes. */
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
        if (!this.#isOver) this.#pull(batch);
        if (batch.length > 0) {
          for (let from = 0; from < batch.length && !this.#isStopped; from += most) {
            if (from > 0) await nextTurn();
            yield batch.length <= most ? batch : batch.slice(from, from + most);
          }
          this.#dueMs = null;
        } else if (this.#isOver) {
          if (this.#failure !== null) throw this.#failure;
          return;
        } else await this.#waitForChange();
      }
    } finally {
      await this.stop();
    }
  }

  /** Adds the events that have arrived and are paid for to `batch`. */
  #pull(batch: EngineEvent[]): void {
    if (this.#sent === null) return;
    const { exchange } = this.#sent;
    try {
      this.#drainExchange(exchange, batch);
    } catch (error) {
      if (!(error instanceof UpstreamFailure)) throw error;
      this.#retryOrFail(error, batch);
    }
    if (!this.#isOver) exchange.releaseSlot();
  }

  #drainExchange(exchange: Exchange, batch: EngineEvent[]): void {
    if (!this.#readEvents(batch)) return;
    this.#takeEvents(exchange);
    if (this.#events.length > 0 && this.#sent !== null) this.#pool.heard(this.#sent.server);
    if (!this.#readEvents(batch)) return;
    const { ending } = exchange;
    if (ending === "ended") this.#streamEnded("ended", batch);
    else if (ending !== null) throw ending;
    else if (this.#dueMs !== null && performance.now() >= this.#dueMs) {
      if (this.#answer.finish === null) throw withoutText(this.job.textMs);
      this.#complete(batch);
    }
  }

  #takeEvents(exchange: Exchange): void {
    this.#events = exchange.takeEvents();
    this.#next = 0;
    this.#readMs = performance.now();
  }

  /**
   * Reads the taken events. Returns false if an event waits for an extension of the budget, or
   * ends the answer.
   */
  #readEvents(batch: EngineEvent[]): boolean {
    const answer = this.#answer;
    const { events, finish } = answer;
    for (let data = this.#events[this.#next]; data !== undefined; data = this.#events[this.#next]) {
      const taken = answer.accept(data, batch);
      if (taken === "unpaid") {
        this.#sent?.exchange.pause();
        break;
      }
      this.#next += 1;
      if (taken === "done") this.#streamEnded("done", batch);
      else if (answer.hasText) this.#answered();
      if (taken === "endedHere") this.#cutOff();
      if (this.#isOver) return false;
    }
    if (answer.events > events || answer.finish !== finish) this.#dueMs = null;
    if (answer.finish !== finish) this.#stopTimer();
    if (answer.hasText) answer.report();
    return !answer.isUnpaid;
  }

  /** Waits for an arrival, an extension of the budget or the end of the answer. */
  async #waitForChange(): Promise<void> {
    const exchange = this.#sent?.exchange;
    // The deadline runs only while the connection is read, not while the reader or the budget
    // holds it up.
    if (exchange?.hasHead === true && !this.#answer.isUnpaid) {
      const nowMs = performance.now();
      const { textMs, finishMs: ownMs = finishMs } = this.job;
      this.#dueMs ??= nowMs + (this.#answer.finish === null ? textMs : ownMs);
      if (exchange.hasArrived) return;
      this.#timer ??= setTimeout(
        () => {
          this.#stopTimer();
          this.#wakeUp();
        },
        Math.max(0, Math.ceil(this.#dueMs - nowMs)),
      );
    }
    exchange?.holdSlot();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Reads on, unless the last reading was a moment ago and more can arrive. */
  #changed(): void {
    const isFilling = this.#answer.hasText && this.#sent?.exchange.isFilling === true;
    const everyMs = readEveryMs[this.job.options.isWhole === true ? "whole" : "stream"];
    const leftMs = isFilling ? this.#readMs + everyMs - performance.now() : 0;
    if (leftMs <= 0) this.#wakeUp();
    else this.#gathering ??= setTimeout(() => this.#wakeUp(), leftMs);
  }

  /** Tokens that have arrived count, although nobody will read their text. */
  #countArrived(): void {
    if (this.#sent === null) return;
    try {
      if (!this.#readEvents([])) return;
      this.#takeEvents(this.#sent.exchange);
      this.#readEvents([]);
    } catch (error) {
      // The events before a malformed one have been counted.
      if (!(error instanceof UpstreamFailure)) throw error;
    }
  }

  #wakeUp(): void {
    clearTimeout(this.#gathering);
    this.#gathering = undefined;
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  #send(server: UpstreamServer, isFresh: boolean): void {
    const { dialect, request, forms, added } = this.job;
    this.#attempts += 1;
    this.#tried.add(server);
    if (server !== this.#sent?.server) {
      this.#corrections = new Map(fitting(server.corrections(), added));
      this.#corrected.clear();
      this.#lessons.clear();
    }
    const corrections: Corrections = new Map(this.#corrections);
    const maxTokens = this.#answer.restart(added.limit === null ? undefined : corrections.get(added.limit));
    const body = {
      characters: forms.characters,
      text: () => requestBody(dialect, { ...request, maxTokens, messages: forms.current, corrections }),
    };
    const attempt = server.begin(request.accountId, this.#sent?.attempt ?? null);
    this.#dueMs = null;
    this.#events = [];
    this.#next = 0;
    const owner = { changed: () => this.#changed(), freed: this.#pool.dispatch };
    this.#sent = { server, attempt, exchange: server.send(body, owner, { attempt, isFresh }) };
  }

  /** Sends the request again, if that may help. */
  #sendAgain(failure: UpstreamFailure): boolean {
    const failed = this.#sent;
    const other = failed === null ? null : this.#nextServer(failed.server, failure);
    if (failed === null || other === null) return false;
    if (other !== failed.server) this.#reportFailure(failure, true);
    this.#hadBegun = failure.isRefused;
    this.#send(other, failure.isStale && other === failed.server);
    // The failure is recorded first, because the free slot is filled at once.
    failed.exchange.abort();
    return true;
  }

  /**
   * Returns the server for the next attempt, or null. The same server gets the request over a
   * fresh connection or in the next form.
   */
  #nextServer(server: UpstreamServer, failure: UpstreamFailure): UpstreamServer | null {
    if (failure.isStale && !this.#wasFresh) {
      this.#wasFresh = true;
      return server;
    }
    if (this.#attempts < attemptsMax && this.#correct(failure)) return server;
    if (failure.isRefused && this.job.forms.normaliseFurther()) return server;
    return failure.elsewhere && this.#tried.size === 1
      ? this.#pool.another(this.accountId, this.#tried)
      : null;
  }

  /** Changes the request as a refusal of an added field asks. Returns false for other failures. */
  #correct({ failure, objection }: UpstreamFailure): boolean {
    if (objection === undefined) return false;
    const next = correctionFor(objection, this.job.added, {
      corrected: this.#corrected,
      sentTokens: this.#answer.askedTokens,
      isTooLong: failure === "too_long",
    });
    if (next === null) return false;
    this.#corrected.add(next.name);
    this.#corrections.set(next.name, next.value);
    if (next.isLasting) this.#lessons.set(next.name, next.value);
    return true;
  }

  #answered(): void {
    if (this.#hasAnswered || this.#sent === null) return;
    this.#hasAnswered = true;
    const { server } = this.#sent;
    this.#pool.answered(server, this.accountId);
    server.keepCorrections(this.#lessons);
    for (const [name, value] of this.#lessons) {
      const how = value === null ? "left out" : `sent with ${value} at most`;
      const message = `it refused ${name}, which no caller sent; for an hour, it is ${how}`;
      this.#pool.notice(server, { kind: "corrected_field", message, subject: name });
    }
  }

  /** Handles the end of the stream. */
  #streamEnded(how: "done" | "ended", batch: EngineEvent[]): void {
    const isEnd = this.#answer.finish !== null || (how === "done" && this.#answer.hasText);
    if (!isEnd) throw brokenAnswer("its answer ended without a finish reason");
    this.#complete(batch);
  }

  #complete(batch: EngineEvent[], reason = this.#answer.finish ?? this.#answer.implyFinish()): void {
    const { job } = this;
    const promptTokens = this.#answer.complete(reason, batch);
    this.#recordSuccess();
    const { usage, paidTokens, notices } = this.#answer;
    if (this.#sent !== null) {
      const isCut = notices.some(({ kind }) => kind === "prompt_cut");
      job.onCompleted(this.#sent.server, { usage, promptTokens: isCut ? null : promptTokens, paidTokens });
      for (const notice of notices) this.#pool.notice(this.#sent.server, notice);
    }
    this.#sent?.exchange.release();
    this.#over();
  }

  /** Handles an answer that was ended here, although the upstream would continue. */
  #cutOff(): void {
    this.#recordSuccess();
    this.#end(null);
  }

  /** Reports a whole answer to the circuit breaker. */
  #recordSuccess(): void {
    this.#answered();
    this.#sent?.server.completed(this.accountId);
  }

  /** Sends the request again if that may help; otherwise ends the answer. */
  #retryOrFail(failure: UpstreamFailure, batch: EngineEvent[]): void {
    // The answer is whole. Only the usage is missing.
    if (this.#answer.finish !== null) this.#complete(batch);
    // The moderation withholds the rest.
    else if (this.#answer.hasText && failure.failure === "filtered") this.#complete(batch, "content_filter");
    else if (this.#answer.hasText) this.#fail(inMidAnswer(failure));
    else if (!this.#sendAgain(failure)) this.#fail(this.#callersOrOurs(failure));
  }

  /** A field that the caller did not send is not the caller's fault. */
  #callersOrOurs(failure: UpstreamFailure): UpstreamFailure {
    const { objection } = failure;
    if (failure.failure !== "rejected" || objection === undefined) return failure;
    if (!isAboutAdded(objection, this.job.added)) return failure;
    return new UpstreamFailure("failed", `it refused a field that Inkwell adds: ${failure.message}`);
  }

  #fail(failure: UpstreamFailure): void {
    const message = this.#reportFailure(failure, false);
    const { retryAfterSeconds } = failure;
    const reason = this.#pool.reasonOf(failure);
    this.#end(new EngineError(failure.failure, message, given({ retryAfterSeconds, reason })));
  }

  /** Reports the failure to the circuit breaker. Returns the message for the log. */
  #reportFailure(failure: UpstreamFailure, isAgain: boolean): string {
    if (this.#sent === null) return "";
    const { server, attempt } = this.#sent;
    const { request, forms } = this.job;
    const { user } = request;
    const failed = { attempt, inAnswer: this.#hasAnswered, isAgain, user, messages: forms.current };
    return this.#pool.failed(server, failure, failed);
  }

  #end(failure: EngineError | null): void {
    this.#failure = failure;
    // Set first, because the free slot is filled at once.
    this.#isOver = true;
    this.#sent?.exchange.abort();
    this.#over();
  }

  #over(): void {
    this.#isOver = true;
    this.#stopTimer();
    clearTimeout(this.#gathering);
    this.#answer.freeze();
    this.#pool.remove(this);
  }
}

function withoutText(ms: number): UpstreamFailure {
  const message = `it sent no text for ${ms / 1000} s (headers_seconds)`;
  return new UpstreamFailure("timeout", message, { elsewhere: true, isFault: true });
}
