/**
 * One generation as the service sees it: buffers what the child sends, and grants it room as the reader reads.
 *
 * Guarantees: at most a window of events is buffered, and what it is let run ahead by (`runAhead`); `usage` never says less
 * than what was read; after `stop` nothing more is yielded. Knows nothing of processes: the supervisor feeds it and is told of its stop.
 */
import type { EngineError, EngineEvent, Generation, Usage } from "../../../chat/engine.ts";
import { EventQueue } from "../../event-queue.ts";
import type { JobEnding, JobProgress, JobSpec } from "../protocol.ts";

/** Events that a generation may be ahead of its reader. */
const windowEvents = 32;

export interface GenerationOwner {
  grant(id: number, events: number): void;
  pay(id: number, paidTokens: number, isLast: boolean): void;
  /** Brings the generation's `finish` about. */
  cancel(generation: LlamaGeneration): void;
  /** Texts and log-probabilities to be kept beyond the window; negative: given back. False where there is no room for them. */
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
  /** Events that it has been let run ahead by, beyond the window, and that the reader has not caught up with. */
  #ahead = 0;
  /** Of each event, as `reserve` counts them. */
  readonly #itemsPerEvent: number;

  constructor(
    job: Omit<JobSpec, "window">,
    owner: GenerationOwner,
    onTokens: (completionTokens: number) => void,
  ) {
    this.#job = { ...job, window: windowEvents };
    const { topLogprobs } = job.sampling;
    this.#itemsPerEvent = topLogprobs === undefined ? 1 : 2 + topLogprobs;
    this.#owner = owner;
    this.#onTokens = onTokens;
    this.#usage = {
      promptTokens: job.prompt.tokens.length,
      cachedTokens: 0,
      completionTokens: 0,
      reasoningTokens: 0,
      estimated: false,
    };
  }

  /** What the child is to do, or does. */
  get job(): JobSpec {
    return this.#job;
  }

  get usage(): Usage {
    return { ...this.#usage };
  }

  get started(): boolean {
    return this.#started;
  }

  /** True once it has been asked to stop. */
  get stopping(): boolean {
    return this.#stopped;
  }

  /** True until its first token: its prompt is being evaluated. */
  get isPrefilling(): boolean {
    return this.#usage.completionTokens === 0;
  }

  /** Whether the child has something to do for it: it waits neither for pay nor for its reader. */
  get isDue(): boolean {
    if (this.#done) return false;
    const { completionTokens } = this.#usage;
    const { maxTokens, paidTokens } = this.#job;
    // To be ended.
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

  pay(paidTokens: number, isLast: boolean): void {
    if (this.#done || this.#stopped) return;
    const maxTokens = isLast ? Math.min(this.#job.maxTokens, paidTokens) : this.#job.maxTokens;
    this.#job = { ...this.#job, paidTokens, maxTokens };
    this.#owner.pay(this.#job.id, paidTokens, isLast);
  }

  /**
   * To be called while others wait for its place: a reader that is behind does not hold it up then, and what is made waits
   * here. What is not paid for is not made either.
   */
  runAhead(): void {
    // A reader that keeps up leaves more than that.
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
    this.#fallBack(this.#ahead);
    return this.#finished.promise;
  }

  /** From the supervisor: what the child made. */
  receive(progress: JobProgress): void {
    const { cachedTokens, completionTokens, reasoningTokens, ending } = progress;
    if (ending?.type !== "stopped" || completionTokens > 0) this.#started = true;
    this.#usage = { ...this.#usage, cachedTokens, completionTokens, reasoningTokens };
    this.#onTokens(completionTokens);
    for (const event of progress.events) this.#events.push(event);
    this.#room -= progress.events.length;
    if (ending !== undefined) this.#end(ending);
  }

  /** From the supervisor: there will be no more. Without a failure only after a stop. */
  finish(failure?: EngineError): void {
    if (this.#done) return;
    this.#done = true;
    if (failure !== undefined) this.#events.fail(failure);
    this.#finished.resolve();
  }

  #end(ending: JobEnding): void {
    // Failures come through `finish`: what they are called is not this class's business.
    if (ending.type === "stop" || ending.type === "length")
      this.#events.push({ type: "end", finishReason: ending.type });
    if (ending.type !== "failed") this.finish();
  }

  #read(): void {
    this.#readSinceGrant += 1;
    if (this.#readSinceGrant < windowEvents / 2) return;
    const caughtUp = Math.min(this.#ahead, this.#readSinceGrant);
    const events = this.#readSinceGrant - caughtUp;
    this.#readSinceGrant = 0;
    this.#fallBack(caughtUp);
    if (events > 0 && !this.#done) this.#grant(events);
  }

  #grant(events: number): void {
    this.#room += events;
    this.#owner.grant(this.#job.id, events);
  }

  #fallBack(events: number): void {
    if (events === 0) return;
    this.#ahead -= events;
    this.#owner.reserve(-events * this.#itemsPerEvent);
  }
}
