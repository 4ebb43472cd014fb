/**
 * Asks the child for the tokens of prompts, one at a time, accounts taking turns.
 *
 * One at a time because the child prepares on the thread that drives the decoder: between two prompts the running
 * generations get their step; after a long one they get as much time as it took. While generations of other accounts run, an
 * account's prompts take a tenth of the time at most (preparation-budget.ts); its next ones wait, and those of other accounts
 * go first. Guarantees: every call ends (answered, aborted, timed out or failed); a prompt that was under way when the child ended is tried once more with the next
 * child, if somebody still waits for it; a child that has a prompt and gives no answer for `stallMs` is reported.
 */
import { EngineError, type Prompt } from "../../../chat/engine.ts";
import { FairQueue } from "../../fair-queue.ts";
import type { FromChild, PromptPlan, ToChild } from "../protocol.ts";
import { ProgressWatch } from "./progress-watch.ts";
import { PromptBudget } from "./prompt-budget.ts";

export interface Prepared {
  promptTokens: number;
  prompt: PromptPlan | null;
}

export interface PromptQueueOptions {
  /** How long a prompt may wait for its turn and its answer. */
  waitMs: number;
  /** How long the child may take for one prompt. */
  stallMs: number;
  send: (message: ToChild) => void;
  /** The child has taken longer. */
  stalled: () => void;
  /** Whether generations of other accounts run. */
  disturbs: (accountId: string) => boolean;
  /** Default: the process's own clock. */
  nowMs?: () => number;
}

interface Pending {
  readonly id: number;
  readonly prompt: Prompt;
  readonly settle: (outcome: Prepared | EngineError) => void;
  attempts: number;
  /** Nobody waits for it any more. */
  isOver: boolean;
}

type Answer = Extract<FromChild, { type: "prepared" | "prepareFailed" }>;

/** Prompts that may wait; they are the callers' bodies, so this bounds memory too. */
const waitingMax = 256;
const attemptsMax = 2;
/** A prompt that took longer than this is followed by as long a rest: prompts take half of the child's time at most. */
const cooldownAfterMs = 20;
/** While prompts are held up: the others may have ended meanwhile. */
const lookMs = 100;
const retryAfterSeconds = 5;

export class PromptQueue {
  readonly #options: PromptQueueOptions;
  readonly #waiting = new FairQueue<Pending>(waitingMax);
  readonly #watch: ProgressWatch;
  readonly #budget = new PromptBudget();
  readonly #nowMs: () => number;
  #budgetTimer: NodeJS.Timeout | undefined;
  #asked: Pending | undefined;
  #askedMs = 0;
  #running = false;
  #isCoolingDown = false;
  #lastId = 0;

  constructor(options: PromptQueueOptions) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
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
    if (!this.#waiting.push(prompt.accountId, pending)) {
      throw new EngineError("overloaded", "too many prompts are waiting to be tokenized", {
        retryAfterSeconds,
      });
    }
    const abort = (): void => {
      this.#waiting.remove(prompt.accountId, pending);
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    const timer = setTimeout(() => this.#late(pending), this.#options.waitMs);
    this.#next();
    try {
      return await promise;
    } finally {
      pending.isOver = true;
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    }
  }

  receive(answer: Answer): void {
    const pending = this.#asked;
    if (pending?.id !== answer.id) return;
    this.#asked = undefined;
    this.#watch.heard();
    const { accountId } = pending.prompt;
    if (this.#options.disturbs(accountId)) this.#budget.spend(accountId, answer.workMs, this.#nowMs());
    pending.settle(answer.type === "prepared" ? answer : new EngineError("failed", answer.message));
    const tookMs = this.#nowMs() - this.#askedMs;
    if (tookMs < cooldownAfterMs) this.#next();
    else {
      this.#isCoolingDown = true;
      setTimeout(() => {
        this.#isCoolingDown = false;
        this.#next();
      }, tookMs).unref();
    }
  }

  /** The child is there (again). */
  resume(): void {
    this.#running = true;
    this.#next();
  }

  /** The child has ended. */
  suspend(): void {
    this.#running = false;
    const pending = this.#asked;
    this.#asked = undefined;
    this.#watch.stop();
    if (pending === undefined || pending.isOver) return;
    if (pending.attempts < attemptsMax) this.#waiting.putBack(pending.prompt.accountId, pending);
    else pending.settle(new EngineError("failed", "the engine's process ended twice over this prompt"));
  }

  failAll(failure: EngineError): void {
    clearTimeout(this.#budgetTimer);
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

  /** The next prompt of the first account that may prepare now. Asks again later if none may. */
  #take(): Pending | undefined {
    clearTimeout(this.#budgetTimer);
    const nowMs = this.#nowMs();
    let soonestMs = lookMs;
    for (const accountId of this.#waiting.accounts()) {
      const waitMs = this.#options.disturbs(accountId) ? this.#budget.waitMs(accountId, nowMs) : 0;
      if (waitMs === 0) return this.#waiting.take(accountId);
      soonestMs = Math.min(soonestMs, waitMs);
    }
    if (this.#waiting.size > 0) this.#budgetTimer = setTimeout(() => this.#next(), soonestMs).unref();
    return undefined;
  }

  #late(pending: Pending): void {
    const { accountId } = pending.prompt;
    const isHeldUp = this.#waiting.remove(accountId, pending) && this.#isOverBudget(accountId);
    if (!this.#running) {
      pending.settle(
        new EngineError("unavailable", "the engine's process is not running", { retryAfterSeconds }),
      );
      return;
    }
    if (isHeldUp) {
      const why = "prompts of this account have used up their share of the time while others are answered";
      pending.settle(new EngineError("overloaded", why, { retryAfterSeconds }));
      return;
    }
    pending.settle(new EngineError("timeout", "the prompt was not tokenized in time"));
  }

  #isOverBudget(accountId: string): boolean {
    return this.#options.disturbs(accountId) && this.#budget.waitMs(accountId, this.#nowMs()) > 0;
  }
}
