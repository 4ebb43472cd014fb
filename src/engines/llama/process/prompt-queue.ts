/**
 * Prompts that wait for the child to tokenize them. The child gets one at a time, and accounts
 * take turns.
 *
 * The child tokenizes on the thread that drives the decoder, so running answers get their step
 * between two prompts. After a long prompt they get as much time as it took. While answers of
 * other accounts run, an account's prompts take at most a tenth of the time and a burst, and
 * prompts of other accounts go first. An account without recent prompts never waits.
 *
 * Guarantees: every call ends: with a result, an abort, a timeout or a failure. If the child ends
 * during a prompt, the prompt gets a second attempt with the next child, unless its caller has
 * gone. A child that does not return a prompt within `stallMs` is reported.
 */
import { EngineError, type Prompt } from "../../../chat/engine.ts";
import { FairQueue } from "../../../collections.ts";
import { limits } from "../../../limits/limits.ts";
import { TokenBucket } from "../../../limits/token-bucket.ts";
import type { FromChild, Prepared, ToChild } from "../protocol.ts";
import { ProgressWatch } from "./progress-watch.ts";

interface PromptQueueOptions {
  /** Time limit of a call. */
  waitMs: number;
  /** Time limit of the child for one prompt. */
  stallMs: number;
  send: (message: ToChild) => void;
  /** Called if the child exceeds `stallMs`. */
  stalled: () => void;
  /** Whether answers of other accounts run. */
  disturbs: (accountId: string) => boolean;
  /** Default: the process's own clock. */
  nowMs?: () => number;
}

interface Pending {
  readonly id: number;
  readonly prompt: Prompt;
  readonly settle: (outcome: Prepared | EngineError) => void;
  attempts: number;
  /** The caller has a result or has gone. */
  isOver: boolean;
}

type PreparedReply = Extract<FromChild, { type: "prepared" | "prepareFailed" }>;

/** Limit of waiting prompts. They hold request bodies, so this also limits memory. */
const waitingMax = 256;
const attemptsMax = 2;
/** A cooldown of equal length follows a slower prompt, so prompts take at most half the time. */
const cooldownAfterMs = 20;
/**
 * Time in which a budget fills: an account gets a tenth of the time. For comparison: a prompt of
 * 8,000 tokens takes about 9 ms.
 */
const promptTimePerMs = 10 * limits.promptTime.most;
/** Interval of checks while prompts wait for their budget. */
const lookMs = 100;
const retryAfterSeconds = 5;

export class PromptQueue {
  readonly #options: PromptQueueOptions;
  readonly #waiting = new FairQueue<Pending>(waitingMax);
  readonly #watch: ProgressWatch;
  /** Milliseconds of the thread. */
  readonly #budget: TokenBucket;
  readonly #nowMs: () => number;
  #budgetTimer: NodeJS.Timeout | undefined;
  /** The prompt that the child has. */
  #asked: Pending | undefined;
  #askedMs = 0;
  #running = false;
  #isCoolingDown = false;
  #lastId = 0;

  constructor(options: PromptQueueOptions) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#budget = new TokenBucket(limits.promptTime, { perMs: promptTimePerMs, nowMs: this.#nowMs });
    this.#watch = new ProgressWatch({
      boundMs: options.stallMs,
      isDue: () => this.#asked !== undefined,
      stalled: options.stalled,
    });
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<Prepared> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Prepared>();
    const pending: Pending = {
      id: ++this.#lastId,
      prompt,
      attempts: 0,
      isOver: false,
      settle: (outcome) => (outcome instanceof EngineError ? reject(outcome) : resolve(outcome)),
    };
    if (!this.#waiting.push(prompt.accountId, pending))
      throw new EngineError("overloaded", "too many prompts wait to be tokenized", { retryAfterSeconds });
    const abort = (): void => {
      this.#waiting.remove(prompt.accountId, pending);
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    const timer = setTimeout(() => pending.settle(this.#late(pending)), this.#options.waitMs);
    this.#next();
    try {
      return await promise;
    } finally {
      pending.isOver = true;
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    }
  }

  receive(answer: PreparedReply): void {
    const pending = this.#asked;
    if (pending?.id !== answer.id) return;
    this.#asked = undefined;
    this.#watch.heard();
    const { accountId } = pending.prompt;
    if (this.#options.disturbs(accountId)) this.#budget.spend(accountId, answer.workMs);
    pending.settle(answer.type === "prepared" ? answer : new EngineError("failed", answer.message));
    const tookMs = this.#nowMs() - this.#askedMs;
    this.#isCoolingDown = tookMs >= cooldownAfterMs;
    if (this.#isCoolingDown) {
      setTimeout(() => {
        this.#isCoolingDown = false;
        this.#next();
      }, tookMs).unref();
    }
    this.#next();
  }

  /** Call this when a child is ready. */
  resume(): void {
    this.#running = true;
    this.#next();
  }

  /** Call this when the child has ended. */
  suspend(): void {
    this.#running = false;
    const pending = this.#asked;
    this.#asked = undefined;
    this.#watch.stop();
    if (pending === undefined || pending.isOver) return;
    if (pending.attempts < attemptsMax) this.#waiting.putBack(pending.prompt.accountId, pending);
    else pending.settle(new EngineError("failed", "the engine's process ended twice during this prompt"));
  }

  failAll(failure: EngineError): void {
    clearTimeout(this.#budgetTimer);
    this.#watch.stop();
    for (const pending of this.#waiting.takeAll()) pending.settle(failure);
    this.#asked?.settle(failure);
    this.#asked = undefined;
  }

  #next(): void {
    if (!this.#running || this.#isCoolingDown || this.#asked !== undefined) return;
    const pending = this.#take();
    if (pending === undefined) return;
    this.#asked = pending;
    this.#askedMs = this.#nowMs();
    pending.attempts += 1;
    const { messages, reasoning } = pending.prompt;
    this.#watch.look();
    this.#options.send({ type: "prepare", id: pending.id, messages, reasoning });
  }

  /** Takes the next prompt of the first account with a budget, or checks again later. */
  #take(): Pending | undefined {
    clearTimeout(this.#budgetTimer);
    let soonestMs = lookMs;
    for (const accountId of this.#waiting.accounts()) {
      const waitMs = this.#waitMs(accountId);
      if (waitMs === 0) return this.#waiting.take(accountId);
      soonestMs = Math.min(soonestMs, waitMs);
    }
    if (this.#waiting.size > 0) this.#budgetTimer = setTimeout(() => this.#next(), soonestMs).unref();
    return undefined;
  }

  /** Returns the error for a prompt that has reached its time limit. */
  #late(pending: Pending): EngineError {
    const { accountId } = pending.prompt;
    const wasWaiting = this.#waiting.remove(accountId, pending);
    if (!this.#running)
      return new EngineError("unavailable", "the engine's process is not running", { retryAfterSeconds });
    if (wasWaiting && this.#waitMs(accountId) > 0) {
      const why = "prompts of this account have used up their share of the time while others are answered";
      return new EngineError("overloaded", why, { retryAfterSeconds });
    }
    return new EngineError("timeout", "the prompt was not tokenized in time");
  }

  /** Returns the milliseconds until the account's budget allows another prompt. */
  #waitMs(accountId: string): number {
    return this.#options.disturbs(accountId) ? this.#budget.waitMs(accountId) : 0;
  }
}
