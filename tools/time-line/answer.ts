/**
 * A running answer: which operations it sends to the ledger, and when. It does what the pipeline
 * of the service does (src/chat/hold-extender.ts), a quarter of an hour at a time.
 */
import type { ExtendOperation, HoldOperation, SettleOperation } from "../../src/ledger/operations.ts";
import type { Decision } from "../../src/ledger/outcomes.ts";
import { completionTokensFor, costAtMost } from "../../src/ledger/pricing.ts";
import type { TokenCounts } from "../../src/ledger/rows.ts";
import { quarterMs } from "./history.ts";
import {
  accountId,
  holdQuarters,
  keyId,
  price,
  promptTokens,
  quarterTokens,
  sliceTokens,
  waitQuartersMax,
} from "./world.ts";

const ttlMs = holdQuarters * quarterMs;

/** `refused`: the hold was refused. `died`: the process died, and the hold is still open. */
export type RunEnd = "stop" | "credits" | "refused" | "died";

/** The course of a request, for the picture. */
export interface Run {
  /** The quarter in which it ended. Null: it is running. */
  endedAt: number | null;
  end: RunEnd | null;
  madeTokens: number;
  /** The quarters of its extensions, each with a checkpoint. */
  checkpoints: number[];
  /** The quarters in which it waited for credits. */
  waited: number[];
  /** The quarter in which the hold of a dead process expired. */
  expiredAt: number | null;
}

export class Answer {
  readonly id: string;
  readonly run: Run = {
    ...{ endedAt: null, end: null, madeTokens: 0, checkpoints: [], waited: [], expiredAt: null },
  };
  readonly #wantTokens: number;
  #heldMicro = 0;
  /** No more credits can come. */
  #isLast = false;
  #waitsSince: number | null = null;

  constructor(id: string, length: number) {
    this.id = id;
    this.#wantTokens = length * quarterTokens;
  }

  get isRunning(): boolean {
    return this.run.end === null;
  }

  hold(): HoldOperation {
    return {
      ...{ kind: "hold", account: accountId, requestId: this.id, key: keyId, model: "model" },
      ...{ price, promptTokens, ttlMs },
      minMicro: costAtMost(price, promptTokens, 1),
      wantMicro: costAtMost(price, promptTokens, Math.min(this.#wantTokens, sliceTokens)),
    };
  }

  held(asked: HoldOperation, outcome: Decision, at: number): void {
    if (outcome.kind !== "held") {
      this.end("refused", at);
      return;
    }
    this.#heldMicro = outcome.amountMicro;
    const isShort = outcome.amountMicro < asked.wantMicro;
    this.#isLast = (isShort && !outcome.reserved) || this.#paidTokens === this.#wantTokens;
  }

  /** Makes the tokens of a quarter, and returns the operation that follows, if one does. */
  next(at: number): ExtendOperation | SettleOperation | null {
    const { run } = this;
    const before = run.madeTokens;
    run.madeTokens = Math.min(before + quarterTokens, this.#paidTokens);
    if (run.madeTokens === before) run.waited.push(at - 1);
    if (run.madeTokens === this.#wantTokens) return this.#settle("stop");
    if (run.madeTokens === this.#paidTokens && this.#isLast) return this.#settle("credits");
    return this.#isNear() && !this.#isLast ? this.#extend() : null;
  }

  extended(asked: ExtendOperation, outcome: Decision, at: number): SettleOperation | null {
    if (outcome.kind !== "extended") throw new Error(`the hold of ${this.id} is open`);
    this.#heldMicro += outcome.amountMicro;
    this.run.checkpoints.push(at);
    const isShort = outcome.amountMicro < asked.moreMicro;
    if (isShort && outcome.reserved) {
      // The time is counted anew when it got credits.
      if (this.#waitsSince === null || outcome.amountMicro > 0) this.#waitsSince = at;
      this.#isLast = at - this.#waitsSince >= waitQuartersMax;
    } else {
      this.#waitsSince = null;
      this.#isLast = isShort || this.#paidTokens === this.#wantTokens;
    }
    return this.#isLast && this.run.madeTokens === this.#paidTokens ? this.#settle("credits") : null;
  }

  end(end: RunEnd, at: number): void {
    Object.assign(this.run, { end, endedAt: at });
  }

  get #paidTokens(): number {
    return Math.min(this.#wantTokens, completionTokensFor(price, promptTokens, this.#heldMicro));
  }

  /** Half of the last slice that is paid for has been made. */
  #isNear(): boolean {
    return this.run.madeTokens + sliceTokens / 2 >= this.#paidTokens;
  }

  #extend(): ExtendOperation {
    const nextTokens = Math.min(this.#wantTokens, this.#paidTokens + sliceTokens);
    return {
      ...{ kind: "extend", account: accountId, requestId: this.id, ttlMs },
      n: this.run.checkpoints.length + 1,
      moreMicro: costAtMost(price, promptTokens, nextTokens) - this.#heldMicro,
      usage: this.#usage(),
    };
  }

  #settle(ending: "stop" | "credits"): SettleOperation {
    return {
      ...{ kind: "settle", account: accountId, requestId: this.id, usage: this.#usage() },
      ...{ ending, by: null, estimated: false },
    };
  }

  #usage(): TokenCounts {
    const { madeTokens: completionTokens } = this.run;
    return { promptTokens, completionTokens, cachedTokens: 0, reasoningTokens: 0 };
  }
}
