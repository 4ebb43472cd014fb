/**
 * Extends the hold of a running generation slice by slice, keeps it alive, and records the usage
 * so far.
 *
 * A hold pays for one slice of 256 tokens. The next slice is requested when half of the current
 * one is left, in parallel with the generation, so that the engine does not wait for a disk. If it
 * cannot be paid, the answer ends there. If other requests hold the credits and may give some
 * back, the answer waits for them for a while. Each extension is also a checkpoint: if this
 * process dies, only the tokens since the last one are not charged.
 */

import { randomInt } from "node:crypto";
import { Refusal } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { AccountError, CapName, ExtendOutcome } from "../ledger/outcomes.ts";
import { completionTokensFor, costAtMost, costOf, type Price } from "../ledger/pricing.ts";
import type { Refused } from "../ledger/refusals.ts";
import { countsOf, noTokens, type TokenCounts } from "../ledger/rows.ts";
import type { MicroCredits } from "../units.ts";
import type { Generation, Usage } from "./engine.ts";

/** Completion tokens of one slice. */
export const sliceTokens = 256;

/**
 * An answer waits this long for credits that other requests hold: each another time, so that of
 * several that wait for each other one ends first, and the others get what it gives back.
 */
const othersWaitMsMin = 10_000;
const othersWaitMsMax = 30_000;

/** Pauses between attempts while it waits. The last one repeats. */
const othersRetriesMs = [100, 250, 500, 1000] as const;

/** Pause after a failure of the store. */
const retryMs = 500;

interface ExtendedRequest {
  accountId: string;
  requestId: string;
  price: Price;
  /** Most tokens of the prompt that are charged. */
  promptTokensMax: number;
  /** Limit of completion tokens in the request. */
  wantTokens: number;
  /** Amount that the hold requested. */
  wantMicro: MicroCredits;
  /** Lifetime of the hold without an extension. Extensions are written every third of it. */
  holdTtlMs: number;
  /** When the hold was asked for, by `performance.now()`. */
  askedMs: number;
}

/** Returns the completion tokens of the first slice, which the hold covers. */
export function firstSlice(wantTokens: number): number {
  return Math.min(wantTokens, sliceTokens);
}

export class HoldExtender {
  readonly #ledger: Ledger;
  readonly #request: ExtendedRequest;
  #timer: NodeJS.Timeout | undefined;
  #heldMicro: MicroCredits;
  #paidTokens: number;
  /** Known completion tokens. Some may not be paid for yet. */
  #madeTokens = 0;
  /** No more credits can come: `#paidTokens` is the limit of the answer. */
  #isLast: boolean;
  #generation: Generation | null = null;
  #failure: Refusal | null = null;
  #halted: Refused<"account_suspended"> | null = null;
  #cap: CapName | null;
  #underWay: Promise<void> | null = null;
  /** The wait for credits that other requests hold. Null: no wait. */
  #waiting: { sinceMs: number; limitMs: number; attempts: number } | null = null;
  /** Number of the last extension that was answered. */
  #n = 0;
  /** Fires when the hold may have expired, even if the store does not respond. */
  #deadline: NodeJS.Timeout;
  #lastError: unknown = "the store has not answered";
  /** No extensions are requested any more but the last. */
  #isStopped = false;
  #endPause: (() => void) | null = null;

  /** `held`: the open hold. It has just been taken. */
  constructor(
    ledger: Ledger,
    request: ExtendedRequest,
    held: { amountMicro: MicroCredits; reserved: boolean; cap?: CapName },
  ) {
    this.#ledger = ledger;
    this.#request = request;
    this.#heldMicro = held.amountMicro;
    this.#cap = held.cap ?? null;
    this.#paidTokens = this.#paidBy(held.amountMicro);
    const { wantTokens, wantMicro } = request;
    // The hold got less than it requested, and no other request will give credits back.
    const isSpent = held.amountMicro < wantMicro && !held.reserved;
    this.#isLast = isSpent || this.#paidTokens === wantTokens;
    this.#deadline = this.#deadlineAfter(request.askedMs);
  }

  /** Amount that the hold has now. */
  get heldMicro(): MicroCredits {
    return this.#heldMicro;
  }

  /** Completion tokens that are paid for. */
  get paidTokens(): number {
    return this.#paidTokens;
  }

  /** Limit of the answer, as far as is known. */
  get maxTokens(): number {
    return this.#isLast ? this.#paidTokens : this.#request.wantTokens;
  }

  /** Why the account pays for no further slice, or null. */
  get halted(): Refused<"account_suspended"> | null {
    return this.#halted;
  }

  /** The cap that pays for no further slice, or null. */
  get cap(): CapName | null {
    return this.#cap;
  }

  /** Reason if the generation was stopped because its hold was lost, or null. */
  get failure(): Refusal | null {
    return this.#failure;
  }

  /**
   * Returns the part of the usage that the hold pays for, after a last extension if the engine
   * generated more than was paid for. The account pays for no more than that.
   */
  async cover(usage: Usage): Promise<Usage> {
    const costMicro = costOf(this.#request.price, this.#withinBound(usage));
    if (costMicro > this.#heldMicro) await this.#takeRest(costMicro, usage);
    return this.#payable(usage);
  }

  /**
   * Extends the hold until it pays for the whole answer, for an engine that cannot be extended
   * while it generates. Resolves as soon as no more credits can come, or with a `failure` if the
   * hold may have expired.
   */
  async payInFull(signal: AbortSignal): Promise<void> {
    const stop = () => this.#end();
    signal.addEventListener("abort", stop, { once: true });
    while (!this.#isLast && !signal.aborted && this.#failure === null) {
      await this.#extendOnce(this.#request.wantTokens);
      await this.#pause();
    }
    signal.removeEventListener("abort", stop);
  }

  /** Starts to extend the hold for `generation`, which has just been started. */
  watch(generation: Generation): void {
    this.#generation = generation;
    const { holdTtlMs, askedMs } = this.#request;
    const everyMs = holdTtlMs / 3;
    this.#timer = setInterval(() => this.#extend(), everyMs);
    if (performance.now() - askedMs > everyMs) this.#extend();
  }

  /** Reports generated tokens. Requests the next slice in time. */
  made(completionTokens: number): void {
    this.#madeTokens = Math.max(this.#madeTokens, completionTokens);
    if (this.#isLast || !this.#isNear()) return;
    this.#extend();
  }

  /**
   * Stops requesting extensions. A pending one is not awaited, because the ledger decides it
   * before the settlement.
   */
  stop(): void {
    this.#end();
    clearInterval(this.#timer);
    clearTimeout(this.#deadline);
  }

  /** No further extension is requested. */
  #end(): void {
    this.#isStopped = true;
    this.#endPause?.();
  }

  /** Starts one extension at a time, in parallel with the generation. */
  #extend(): void {
    const isIdle = this.#underWay === null && !this.#isStopped && this.#failure === null;
    if (!isIdle || this.#generation === null) return;
    this.#underWay = this.#extendSlice(this.#generation).finally(() => {
      this.#underWay = null;
      // Meanwhile the generation may be near the end of this slice too.
      if (this.#generation !== null) this.made(this.#generation.usage.completionTokens);
    });
  }

  async #extendSlice(generation: Generation): Promise<void> {
    const { wantTokens } = this.#request;
    const before = this.#paidTokens;
    await this.#extendOnce(this.#isNear() ? Math.min(wantTokens, before + sliceTokens) : before);
    if (this.#paidTokens > before || this.#isLast) generation.extendBudget(this.#paidTokens, this.#isLast);
    await this.#pause();
  }

  /** Asks once for the amount that pays `nextTokens`, and writes a checkpoint. */
  async #extendOnce(nextTokens: number): Promise<void> {
    const { price, promptTokensMax, wantTokens } = this.#request;
    const generation = this.#generation;
    const askedMs = performance.now();
    try {
      // A request that waits in the engine's queue costs nothing, even if its prompt is counted.
      const usage = generation?.started === true ? countsOf(this.#payable(generation.usage)) : noTokens;
      const isMore = !this.#isLast && nextTokens > this.#paidTokens;
      const moreMicro = isMore ? costAtMost(price, promptTokensMax, nextTokens) - this.#heldMicro : 0;
      const outcome = await this.#ask(Math.max(0, moreMicro), usage);
      if (outcome.kind !== "extended") return await this.#lose(outcome.kind);
      clearTimeout(this.#deadline);
      if (!this.#isStopped) this.#deadline = this.#deadlineAfter(askedMs);
      if (moreMicro <= 0) return;
      this.#paidTokens = this.#paidBy(this.#heldMicro);
      const isShort = outcome.amountMicro < moreMicro;
      const waits = isShort && outcome.reserved && this.#waitsOn(outcome.amountMicro);
      if (!waits) this.#waiting = null;
      this.#halted = outcome.halted ?? null;
      this.#cap = outcome.cap ?? null;
      this.#isLast = (isShort && !waits) || this.#paidTokens >= wantTokens;
    } catch (error) {
      // An absent store ends the request only if the hold may have expired.
      this.#lastError = error;
      await new Promise((resolve) => setTimeout(resolve, retryMs));
    }
  }

  /**
   * Reports whether the answer goes on waiting for other requests. The time is counted anew when
   * it got credits.
   */
  #waitsOn(gotMicro: MicroCredits): boolean {
    const nowMs = performance.now();
    if (this.#waiting === null || gotMicro > 0) {
      const limitMs = randomInt(othersWaitMsMin, othersWaitMsMax);
      this.#waiting = { sinceMs: nowMs, limitMs, attempts: 0 };
    }
    return nowMs - this.#waiting.sinceMs < this.#waiting.limitMs;
  }

  /** Pauses before the next attempt to get credits that others hold. Ends early at the end. */
  async #pause(): Promise<void> {
    if (this.#waiting === null || this.#isStopped) return;
    const ms = othersRetriesMs[this.#waiting.attempts] ?? othersRetriesMs.at(-1);
    this.#waiting.attempts += 1;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    this.#endPause = resolve;
    await promise;
    clearTimeout(timer);
    this.#endPause = null;
  }

  /** Takes what is missing to the cost, or what the account has left. */
  async #takeRest(costMicro: MicroCredits, usage: Usage): Promise<void> {
    this.#end();
    await this.#underWay;
    try {
      // The first answer can be that of an extension whose answer was lost, and which asked for
      // less.
      while (costMicro > this.#heldMicro) {
        const outcome = await this.#ask(costMicro - this.#heldMicro, countsOf(this.#payable(usage)));
        if (outcome.kind !== "extended" || outcome.amountMicro === 0) return;
      }
    } catch (error) {
      // The settlement charges what is known to be held. It waits for the store, and reports a
      // defect.
      this.#lastError = error;
    }
  }

  /** Asks the ledger for more credits, and writes a checkpoint. */
  async #ask(moreMicro: MicroCredits, usage: TokenCounts): Promise<ExtendOutcome | AccountError> {
    const { accountId, requestId, holdTtlMs } = this.#request;
    const outcome = await this.#ledger.apply({
      kind: "extend",
      account: accountId,
      requestId,
      n: this.#n + 1,
      moreMicro,
      usage,
      ttlMs: holdTtlMs,
    });
    if (outcome.kind === "extended") {
      // After a lost answer the same number is used again, so that a slice is taken once.
      this.#n += 1;
      this.#heldMicro += outcome.amountMicro;
    }
    return outcome;
  }

  #payable(usage: Usage): Usage {
    const { price } = this.#request;
    const bounded = this.#withinBound(usage);
    const restMicro = this.#heldMicro - costOf(price, { ...bounded, completionTokens: 0 });
    const paidTokens =
      price.completion === 0 ? Number.POSITIVE_INFINITY : Math.floor(restMicro / price.completion);
    const completionTokens = Math.min(usage.completionTokens, paidTokens);
    const reasoningTokens = Math.min(usage.reasoningTokens, completionTokens);
    return { ...bounded, completionTokens, reasoningTokens };
  }

  /** No prompt has more tokens than its bound, so a report of more is wrong. */
  #withinBound(usage: Usage): Usage {
    const promptTokens = Math.min(usage.promptTokens, this.#request.promptTokensMax);
    return { ...usage, promptTokens, cachedTokens: Math.min(usage.cachedTokens, promptTokens) };
  }

  /** The database may have decided at once, and its answer may have been lost several times. */
  #deadlineAfter(askedMs: number): NodeJS.Timeout {
    const leftMs = askedMs + this.#request.holdTtlMs - performance.now();
    return setTimeout(() => void this.#lose(String(this.#lastError)), Math.max(0, leftMs));
  }

  /** Stops the generation: no engine works without an open hold. */
  async #lose(detail: string): Promise<void> {
    const { accountId, requestId } = this.#request;
    this.#failure = new Refusal(
      "internal_error",
      "The usage could not be recorded in time, so the request was stopped.",
      { detail: `hold ${requestId} of account ${accountId}: ${detail}` },
    );
    await this.#generation?.stop();
  }

  /** Returns whether the paid tokens will soon be used up. */
  #isNear(): boolean {
    return this.#madeTokens + sliceTokens / 2 >= this.#paidTokens;
  }

  #paidBy(heldMicro: MicroCredits): number {
    const { price, promptTokensMax, wantTokens } = this.#request;
    return Math.min(wantTokens, completionTokensFor(price, promptTokensMax, heldMicro));
  }
}
