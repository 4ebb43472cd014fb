/**
 * Outcomes of the operations of the ledger. A repetition has the outcome of the first execution,
 * with the present credits and without rates. A refused hold is decided anew.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { Operation } from "./operations.ts";
import type { Rates } from "./rate-limits.ts";
import type { Refused } from "./refusals.ts";
import type { BucketAmounts, ChargeRow, KeyRow } from "./rows.ts";

/** A refresh of base, overage or a cap. */
export interface Refresh {
  atMs: EpochMs;
  /** Credits that can be spent then, if nothing is spent until then. */
  amountMicro: MicroCredits;
}

/** The cap of a plan, or of a key. */
export interface CapName {
  of: "plan" | "key";
  name: string;
}

/** A hold that credits or a cap cannot pay. The caller knows what it was for. */
export interface Unpaid {
  kind: "insufficient_credits" | "cap_reached";
  /** The short cap that refreshes last. Null: credits are short. */
  cap: (CapName & { every: string; amountMicro: MicroCredits }) | null;
  /** What the cap, or the credits, have left. */
  leftMicro: MicroCredits;
  /** The most that a hold can take now: what is left of the credits and of every cap. */
  mostMicro: MicroCredits;
  /** Refreshes after which more can be spent than before, soonest first. */
  refreshes: readonly Refresh[];
  rates: Rates;
}

export type RateRefused = Refused<"rate_limit_exceeded" | "concurrency_limit_exceeded"> & { rates: Rates };

export type HoldOutcome =
  | {
      kind: "held";
      amountMicro: MicroCredits;
      /** Both as in the outcome of an extension. */
      reserved: boolean;
      cap?: CapName;
      rates: Rates;
    }
  | Unpaid
  | (Refused<"credits_reserved"> & { rates: Rates })
  | RateRefused
  | Refused<"account_suspended" | "invalid_api_key">
  /** The hold was taken earlier and has ended. A new request needs a new id. */
  | { kind: "ended" };

export type ExtendOutcome =
  | {
      kind: "extended";
      amountMicro: MicroCredits;
      /**
       * Less than asked for was taken, and the rest is held by other requests. Some of it may come
       * back when they end.
       */
      reserved: boolean;
      /** Less than asked for was taken, and this cap has less left than the credits. */
      cap?: CapName;
      /** Nothing was taken, whatever is left. */
      halted?: Refused<"account_suspended">;
    }
  /** The hold expired or was settled before. Nothing was taken. */
  | { kind: "ended" };

export type SettleOutcome =
  | {
      kind: "settled";
      /** The sum of `paid` and `shortfall`. */
      costMicro: MicroCredits;
      paid: BucketAmounts;
      shortfallMicro: MicroCredits;
      /** What is left of the account, as a balance shows it: running requests are not deducted. */
      left: BucketAmounts;
      /**
       * The part of `paid` that an earlier expiry of the hold took. Absent if the hold had not
       * expired.
       */
      paidBefore?: BucketAmounts;
      /** The part of `shortfall` that this expiry recorded. Absent if `paidBefore` is absent. */
      shortfallBeforeMicro?: MicroCredits;
    }
  /** The hold was never taken. Nothing was charged. */
  | { kind: "unknown_hold" };

export type ExpireOutcome = { kind: "expired" } | { kind: "alive" } | { kind: "ended" };

export type TopupOutcome =
  | { kind: "added"; additionalMicro: MicroCredits; replayed: boolean }
  | Refused<"payment_differs" | "payment_used" | "account_closed" | "too_many_credits">;

export type PromoteOutcome =
  | { kind: "added"; additionalMicro: MicroCredits; replayed: boolean }
  | Refused<"operation_differs" | "account_closed" | "promotion_over" | "too_many_credits">
  /** Of a memo. */
  | Refused<"request_not_found" | "request_running" | "memo_too_large">;

export type AdjustOutcome =
  | { kind: "adjusted"; additionalMicro: MicroCredits; replayed: boolean }
  | Refused<"operation_differs" | "grant_not_found" | "too_few_credits">;

export type RefundOutcome =
  | {
      kind: "refunded";
      amountMicro: MicroCredits;
      /** The part that running requests hold. It can be refunded when they have ended. */
      restMicro: MicroCredits;
      additionalMicro: MicroCredits;
      replayed: boolean;
    }
  | Refused<"refund_differs" | "refund_used" | "payment_not_found" | "refund_too_large">;

export type PlanRefused = Refused<"unknown_plan" | "retired_plan">;
export type OpenOutcome =
  | { kind: "opened" }
  | { kind: "exists"; plan: string }
  | PlanRefused
  | Refused<"payment_used">;

export type PlanOutcome = StateOutcome | Refused<"window_differs"> | PlanRefused;

export type StateOutcome =
  | { kind: "changed"; replayed: boolean }
  | Refused<"operation_differs" | "account_closed">;

export type IssueOutcome =
  | { kind: "issued"; key: KeyRow }
  /** A key with this id was issued before, with another secret. */
  | { kind: "key_exists"; key: KeyRow }
  | Refused<"operation_differs" | "too_many_keys" | "key_changed" | "no_calendar_period" | "cap_twice">;

export type RevokeOutcome = { kind: "revoked"; key: KeyRow; replayed: boolean } | Refused<"key_not_found">;

export type KeyOutcome =
  | { kind: "changed"; key: KeyRow; replayed: boolean }
  | Refused<"operation_differs" | "key_not_found" | "key_expired" | "key_revoked" | "key_changed">
  | Refused<"too_many_keys" | "no_calendar_period" | "cap_twice">;

/** Possible outcome of any operation. */
export type AccountError = Refused<"account_not_found" | "balance_unavailable">;

interface Outcomes {
  open: OpenOutcome;
  hold: HoldOutcome;
  extend: ExtendOutcome;
  settle: SettleOutcome;
  expire: ExpireOutcome;
  stop: ExpireOutcome;
  topup: TopupOutcome;
  promote: PromoteOutcome;
  adjust: AdjustOutcome;
  refund: RefundOutcome;
  plan: PlanOutcome;
  state: StateOutcome;
  key: KeyOutcome;
  issue: IssueOutcome;
  revoke: RevokeOutcome;
}

/**
 * Receipts of the overdue holds that the operation ended. Absent if it ended none, which includes
 * a repetition.
 */
interface Findings {
  expired?: readonly ChargeRow[];
}

export type OutcomeOf<O extends Operation> = (Outcomes[O["kind"]] | AccountError) & Findings;
export type Outcome = OutcomeOf<Operation>;

/**
 * Replaces an outcome: this operation and all later operations on its account must be sent again.
 */
export interface DeferredOutcome extends Findings {
  /**
   * `locked`: another session of the database has locked a row of the account, and nothing was
   * changed. `more_overdue`: the account has more overdue holds than a commit ends, and some of
   * them were ended.
   */
  kind: "locked" | "more_overdue";
}

export type Decision = Outcome | DeferredOutcome;
