/**
 * Pays for a running generation slice by slice, keeps its hold alive, and writes down what it has used so far.
 *
 * A long answer is not held for at its worst: each slice pays for some hundred tokens, and the next is asked for
 * while half of the last is still to be made, beside the generation, so that the decoder does not wait for a disk.
 * What cannot be paid for any more ends the answer there. Each of these is also a checkpoint: the death of this
 * process costs at most what was made since the last one.
 */

import { Refusal } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { completionTokensFor, costAtMost, type Price } from "../ledger/pricing.ts";
import type { MicroCredits } from "../units.ts";
import { type Generation, nothingMade } from "./engine.ts";

/** Completion tokens that one slice pays for. */
export const sliceTokens = 256;

/** After a store that failed. */
const retryMs = 500;

export interface ExtendedRequest {
  accountId: string;
  requestId: string;
  price: Price;
  promptTokens: number;
  /** Completion tokens that the request asked for, at most. */
  wantTokens: number;
  /** What the hold asked for. */
  wantMicro: MicroCredits;
  /** How long the hold lives without an extension; one is written in a third of it. */
  holdTtlMs: number;
}

/** Completion tokens of the first slice, which the hold asks for. */
export function firstSlice(wantTokens: number): number {
  return Math.min(wantTokens, sliceTokens);
}

export class HoldExtender {
  readonly #ledger: Ledger;
  readonly #request: ExtendedRequest;
  readonly #timer: NodeJS.Timeout;
  #heldMicro: MicroCredits;
  #paidTokens: number;
  /** As far as is known, some of them perhaps still to be paid for. */
  #madeTokens = 0;
  #isLast: boolean;
  #generation: Generation | null = null;
  #failure: Refusal | null = null;
  #underWay: Promise<void> | null = null;
  #n = 0;
  #deadline: NodeJS.Timeout;
  #lastError: unknown = "the store has not answered";
  #stopped = false;

  /** The hold has been taken, for `heldMicro`. */
  constructor(ledger: Ledger, request: ExtendedRequest, heldMicro: MicroCredits) {
    this.#ledger = ledger;
    this.#request = request;
    this.#heldMicro = heldMicro;
    this.#paidTokens = this.#paidBy(heldMicro);
    const { wantTokens, wantMicro, holdTtlMs } = request;
    // Less than was asked for: there was no more.
    this.#isLast = heldMicro < wantMicro || this.#paidTokens === wantTokens;
    this.#timer = setInterval(() => this.#extend(), holdTtlMs / 3);
    this.#deadline = this.#deadlineIn(holdTtlMs);
  }

  /** Completion tokens that are paid for. */
  get paidTokens(): number {
    return this.#paidTokens;
  }

  /** Most that the answer can have, as far as is known by now. */
  get maxTokens(): number {
    return this.#isLast ? this.#paidTokens : this.#request.wantTokens;
  }

  /** Why the generation was stopped for want of a hold; null where it was not. */
  get failure(): Refusal | null {
    return this.#failure;
  }

  /** From here on `generation` is told what is paid for. */
  watch(generation: Generation): void {
    this.#generation = generation;
  }

  /** To be called as tokens are made: asks for the next slice in time. */
  made(completionTokens: number): void {
    this.#madeTokens = Math.max(this.#madeTokens, completionTokens);
    if (this.#isLast || !this.#isNear()) return;
    this.#extend();
  }

  /**
   * No extension is asked for after this. One that is under way is not waited for: the ledger decides what is asked for
   * after it, the settlement, after it, and a store that stays away is waited for only once.
   */
  stop(): void {
    this.#stopped = true;
    clearInterval(this.#timer);
    clearTimeout(this.#deadline);
  }

  /** One at a time; beside the generation. */
  #extend(): void {
    const generation = this.#generation;
    if (this.#underWay !== null || this.#stopped || generation === null || this.#failure !== null) return;
    this.#underWay = this.#extendOnce(generation).finally(() => {
      this.#underWay = null;
      // Meanwhile it may have come near the end of this slice too.
      this.made(generation.usage.completionTokens);
    });
  }

  async #extendOnce(generation: Generation): Promise<void> {
    const { accountId, requestId, price, promptTokens, wantTokens, holdTtlMs } = this.#request;
    // While it waits in the engine's queue a request costs nothing, whatever the engine already knows of its prompt.
    const made = generation.started ? generation.usage : nothingMade;
    const askedMs = performance.now();
    const nextTokens = Math.min(wantTokens, this.#paidTokens + sliceTokens);
    const moreMicro =
      this.#isLast || !this.#isNear() ? 0 : costAtMost(price, promptTokens, nextTokens) - this.#heldMicro;
    try {
      const outcome = await this.#ledger.apply({
        kind: "extend",
        account: accountId,
        hold: requestId,
        n: this.#n + 1,
        more: Math.max(0, moreMicro),
        used: countsOf(made),
        ttlMs: holdTtlMs,
      });
      if (outcome.kind !== "extended") return await this.#lose(outcome.kind);
      // An answer that was lost is asked for again under the same number, so that a slice is taken once.
      this.#n += 1;
      clearTimeout(this.#deadline);
      if (!this.#stopped) this.#deadline = this.#deadlineIn(askedMs + holdTtlMs - performance.now());
      if (moreMicro <= 0) return;
      this.#heldMicro += outcome.amount;
      this.#paidTokens = this.#paidBy(this.#heldMicro);
      this.#isLast = outcome.amount < moreMicro || this.#paidTokens >= wantTokens;
      generation.extendBudget(this.#paidTokens, this.#isLast);
    } catch (error) {
      // A store that stays away is a reason to stop only when the hold may have run out meanwhile.
      this.#lastError = error;
      await new Promise((resolve) => setTimeout(resolve, retryMs));
    }
  }

  /** Whatever the store does or does not answer. */
  #deadlineIn(ms: number): NodeJS.Timeout {
    return setTimeout(() => void this.#lose(String(this.#lastError)), ms);
  }

  /** No engine works without an open hold. */
  async #lose(detail: string): Promise<void> {
    const { accountId, requestId } = this.#request;
    this.#failure = new Refusal(
      "internal_error",
      "What this request used could not be recorded in time, so it was stopped.",
      { detail: `hold ${requestId} of account ${accountId}: ${detail}` },
    );
    await this.#generation?.stop();
  }

  /** Whether what is paid for will soon be used up. */
  #isNear(): boolean {
    return this.#madeTokens + sliceTokens / 2 >= this.#paidTokens;
  }

  #paidBy(heldMicro: MicroCredits): number {
    const { price, promptTokens, wantTokens } = this.#request;
    return Math.min(wantTokens, completionTokensFor(price, promptTokens, heldMicro));
  }
}

function countsOf({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: Generation["usage"]) {
  return { promptTokens, cachedTokens, completionTokens, reasoningTokens };
}
