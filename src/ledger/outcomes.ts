/**
 * Outcomes of the operations of the ledger. A repetition has the outcome of the first execution,
 * with the present credits and without rates. A refused hold is decided anew.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { Operation } from "./operations.ts";
import type { RateName, Rates } from "./rate-limits.ts";
import type { BucketAmounts, ChargeRow, JournalRow, KeyRow, WindowBucket } from "./rows.ts";

/** A refresh of base, overage or a budget. */
export interface Refresh {
  atMs: EpochMs;
  /** Credits that can be spent then, if nothing is spent until then. */
  amountMicro: MicroCredits;
}

/** The account gives no more credits. One whose end has passed is closed. */
export type Halted = "account_suspended" | "account_closed";

export type HoldOutcome =
  | {
      kind: "held";
      amountMicro: MicroCredits;
      /** As in the outcome of an extension. */
      reserved: boolean;
      rates: Rates;
    }
  | {
      kind: "refused";
      /** Too few credits in the account, or too little left of the budget of the key. */
      reason: "insufficient_credits" | "key_budget_exceeded";
      /** Credits that a hold can take now. */
      leftMicro: MicroCredits;
      /** Refreshes after which more can be spent than before, soonest first. */
      refreshes: readonly Refresh[];
      rates: Rates;
    }
  | {
      kind: "refused";
      reason: "credits_reserved";
      /** The holder of the rest: requests of the account, or those of the key's budget. */
      scope: "account" | "key";
      retryAfterMs: number;
      rates: Rates;
    }
  | {
      kind: "refused";
      reason: "rate_limit_exceeded";
      /** The limit that was reached. */
      of: RateName;
      scope: "account" | "key";
      /** Null if this request alone exceeds the limit, so waiting does not help. */
      retryAfterMs: number | null;
      rates: Rates;
    }
  | {
      kind: "refused";
      reason: "concurrency_limit_exceeded";
      scope: "account" | "key";
      limit: number;
      rates: Rates;
    }
  | { kind: "refused"; reason: Halted }
  | { kind: "refused"; reason: "key_revoked" | "key_expired" | "key_unknown" }
  /** The hold was taken earlier and has ended. A new request needs a new id. */
  | { kind: "refused"; reason: "hold_ended" };

export type ExtendOutcome =
  | {
      kind: "extended";
      amountMicro: MicroCredits;
      /**
       * Less than asked for was taken, and the rest is held by other requests. Some of it may come
       * back when they end.
       */
      reserved: boolean;
      /** Why nothing was taken, whatever is left. */
      halted?: Halted;
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

/** The operation was executed before with other values: this entry has them. */
type Conflict = { kind: "conflict"; entry: JournalRow };

/** The operation id was used on this other account. */
type UsedElsewhere = { kind: "id_used"; account: string };

export type TopupOutcome =
  | { kind: "added"; additionalMicro: MicroCredits; replayed: boolean }
  | { kind: "conflict"; amountMicro: MicroCredits }
  | UsedElsewhere
  | { kind: "closed" }
  /** The bucket would exceed the safe integers. */
  | { kind: "too_much" };

export type PromoteOutcome =
  | { kind: "added"; additionalMicro: MicroCredits; replayed: boolean }
  | Conflict
  | UsedElsewhere
  | { kind: "closed" }
  | { kind: "ended" }
  /** Of a memo: the request has no charge, or is still running. */
  | { kind: "unknown_request" }
  | { kind: "hold_open" }
  /** Of a memo: only this much of what was paid for the request is left. Otherwise null. */
  | { kind: "too_much"; leftMicro: MicroCredits | null };

export type AdjustOutcome =
  | { kind: "adjusted"; additionalMicro: MicroCredits; replayed: boolean }
  | Conflict
  | UsedElsewhere
  /** No open promotion has this number. */
  | { kind: "unknown_grant" }
  /** The promotions have only this much that is neither spent nor held. */
  | { kind: "too_little"; freeMicro: MicroCredits };

export type RefundOutcome =
  | {
      kind: "refunded";
      amountMicro: MicroCredits;
      /** The part that running requests hold. It can be refunded when they have ended. */
      restMicro: MicroCredits;
      additionalMicro: MicroCredits;
      replayed: boolean;
    }
  | Conflict
  | UsedElsewhere
  /** The account has no such payment. */
  | { kind: "unknown_payment" }
  /** Only this much of the payment is not spent. */
  | { kind: "too_much"; refundableMicro: MicroCredits };

/** Accounts can only be put on a plan that the current plans section has. */
type PlanRefusal = { kind: "unknown_plan"; plans: readonly string[] } | { kind: "retired_plan" };

/** `id_used`: the payment was counted on another account. */
export type OpenRefusal = PlanRefusal | UsedElsewhere;
export type OpenOutcome = { kind: "opened" } | { kind: "exists"; plan: string } | OpenRefusal;

export type PlanOutcome =
  | { kind: "changed"; replayed: boolean }
  | Conflict
  | UsedElsewhere
  | { kind: "closed" }
  /** These buckets have other windows in the new plan. The base window ends then. */
  | { kind: "window_differs"; buckets: readonly WindowBucket[]; refreshMs: EpochMs }
  | PlanRefusal;

export type StateOutcome =
  | { kind: "changed"; replayed: boolean }
  | Conflict
  | UsedElsewhere
  | { kind: "closed" };

/** `no_budget`: there is none of which a part can change. */
type BudgetError =
  | { kind: "no_budget" }
  /** Windows of the calendar cannot have this period. */
  | { kind: "no_calendar_period"; every: string };

/** As many keys of the account work as may. */
type TooManyWork = { kind: "too_many_work" };

export type IssueOutcome =
  | { kind: "issued"; key: KeyRow }
  /** A key with this id was issued before, with another secret. */
  | { kind: "key_exists"; key: KeyRow }
  | Conflict
  | UsedElsewhere
  | { kind: "too_many_keys" }
  | TooManyWork
  /** The creator is not as the caller has seen it. */
  | { kind: "key_changed" }
  | BudgetError;

export type RevokeOutcome = { kind: "revoked"; key: KeyRow; replayed: boolean } | { kind: "key_unknown" };

export type KeyOutcome =
  | { kind: "changed"; key: KeyRow; replayed: boolean }
  | Conflict
  | UsedElsewhere
  | { kind: "key_unknown" }
  | BudgetError
  /** An expired key gets no new secret. */
  | { kind: "key_expired"; expiresMs: EpochMs }
  /** A revoked key does not change. */
  | { kind: "key_revoked" }
  | TooManyWork
  /** The key is not as the caller has seen it. */
  | { kind: "key_changed" };

/** Possible outcome of any operation. */
export type AccountError =
  | { kind: "no_account" }
  /**
   * The row of the account is invalid, or a hold needs a plan that the database does not have.
   * Nothing moves until an operator repairs it.
   */
  | { kind: "balance_invalid"; problem: string };

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
