/**
 * One generation on the service's side: buffers the child's output, and grants room as it is read.
 *
 * Guarantees: the buffer holds at most a window of events, plus those of `runAhead`. `usage` never
 * counts less than the reader got. Nothing is yielded after `stop`. The engine passes the child's
 * output in and carries out the stop.
 */
import {
  type EngineError,
  type EngineEvent,
  type Generation,
  nothingMade,
  type Usage,
} from "../../../chat/engine.ts";
import { alternativesOf } from "../../sampling-limits.ts";
import type { JobProgress, JobSpec, ToChild } from "../protocol.ts";
import { EventQueue } from "./event-queue.ts";

/** Events that a generation may be ahead of its reader. */
const windowEvents = 32;

export interface GenerationOwner {
  send(message: Extract<ToChild, { type: "grant" | "extendBudget" }>): void;
  /** Stops the generation, and then calls its `finish`. */
  cancel(generation: LlamaGeneration): void;
  /**
   * Reserves memory for texts and log-probabilities beyond the window. Returns false if the memory
   * is used up. Negative: returns memory.
   */
  reserve(items: number): boolean;
}

export class LlamaGeneration implements Generation {
  readonly #owner: GenerationOwner;
  readonly #onTokens: (completionTokens: number) => void;
  #job: JobSpec;
  readonly #events = new EventQueue();
  readonly #finished = Promise.withResolvers<void>();
  #usage: Usage;
  #started = false;
  #done = false;
  #stopped = false;
  #readSinceGrant = 0;
  /** Events that the child may still send before the next grant. */
  #room = windowEvents;
  /** Reserved events beyond the window that the reader has not caught up with. */
  #ahead = 0;
  /** Items to reserve for each event. */
  readonly #itemsPerEvent: number;

  constructor(
    job: Omit<JobSpec, "window">,
    owner: GenerationOwner,
    onTokens: (completionTokens: number) => void,
  ) {
    this.#job = { ...job, window: windowEvents };
    const alternatives = alternativesOf(job.sampling);
    this.#itemsPerEvent = alternatives === null ? 1 : 2 + alternatives;
    this.#owner = owner;
    this.#onTokens = onTokens;
    this.#usage = { ...nothingMade, promptTokens: job.prompt.tokens.length };
  }

  get job(): JobSpec {
    return this.#job;
  }

  get usage(): Usage {
    return { ...this.#usage };
  }

  get started(): boolean {
    return this.#started;
  }

  /** `stop` has been called. */
  get stopping(): boolean {
    return this.#stopped;
  }

  /** Its prompt is being evaluated. */
  get isPrefilling(): boolean {
    return this.#usage.completionTokens === 0;
  }

  /** The child has work for it: it waits neither for its budget nor for its reader. */
  get isDue(): boolean {
    if (this.#done) return false;
    const { completionTokens } = this.#usage;
    const { maxTokens, paidTokens } = this.#job;
    // The remaining work is its end.
    if (this.#stopped || completionTokens >= maxTokens) return true;
    return completionTokens < paidTokens && this.#room > 0;
  }

  [Symbol.asyncIterator](): AsyncGenerator<EngineEvent[], void, undefined> {
    return this.#events.drain(
      (event) => {
        if (event.type === "text") this.#read();
      },
      () => this.stop(),
    );
  }

  extendBudget(paidTokens: number, isLast: boolean): void {
    if (this.#done || this.#stopped) return;
    const maxTokens = isLast ? Math.min(this.#job.maxTokens, paidTokens) : this.#job.maxTokens;
    this.#job = { ...this.#job, paidTokens, maxTokens };
    this.#owner.send({ type: "extendBudget", id: this.#job.id, paidTokens, isLast });
  }

  /**
   * Lets the child run ahead of a slow reader, within the paid tokens. Called while others wait
   * for the generation's slot.
   */
  runAhead(): void {
    // A reader that keeps up leaves more room.
    if (this.#done || this.#stopped || this.#room > windowEvents / 2) return;
    if (!this.#owner.reserve(windowEvents * this.#itemsPerEvent)) return;
    this.#ahead += windowEvents;
    this.#grant(windowEvents);
  }

  stop(): Promise<void> {
    if (!this.#done && !this.#stopped) {
      this.#stopped = true;
      this.#owner.cancel(this);
      this.#events.close();
    }
    this.#release(this.#ahead);
    return this.#finished.promise;
  }

  /**
   * Takes the child's output. The owner calls `finish` after a failure, which has a text for it.
   */
  receive({ cachedTokens, completionTokens, reasoningTokens, ending, events }: JobProgress): void {
    if (ending?.type !== "stopped" || completionTokens > 0) this.#started = true;
    this.#usage = { ...this.#usage, cachedTokens, completionTokens, reasoningTokens };
    this.#onTokens(completionTokens);
    for (const event of events) this.#events.push(event);
    this.#room -= events.length;
    if (ending?.type === "stop" || ending?.type === "length")
      this.#events.push({ type: "end", finishReason: ending.type });
    if (ending !== undefined && ending.type !== "failed") this.finish();
  }

  /** No more output follows. Without a failure only after a stop or an end. */
  finish(failure?: EngineError): void {
    if (this.#done) return;
    this.#done = true;
    if (failure !== undefined) this.#events.fail(failure);
    this.#finished.resolve();
  }

  #read(): void {
    this.#readSinceGrant += 1;
    if (this.#readSinceGrant < windowEvents / 2) return;
    const caughtUp = Math.min(this.#ahead, this.#readSinceGrant);
    const events = this.#readSinceGrant - caughtUp;
    this.#readSinceGrant = 0;
    this.#release(caughtUp);
    if (events > 0 && !this.#done) this.#grant(events);
  }

  #grant(events: number): void {
    this.#room += events;
    this.#owner.send({ type: "grant", id: this.#job.id, events });
  }

  /** Returns reserved memory. */
  #release(events: number): void {
    if (events === 0) return;
    this.#ahead -= events;
    this.#owner.reserve(-events * this.#itemsPerEvent);
  }
}
