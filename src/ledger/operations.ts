/**
 * Operations of the ledger and their outcomes. Every operation changes one account and may be
 * repeated: its id (or the id of its hold) finds the first execution, and nothing changes again.
 * The outcome is then that of the first execution, with the present credits and without rates. A
 * refused hold is decided anew.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { BalancesRefused, OpeningBalances } from "./opening.ts";
import type { Price } from "./pricing.ts";
import type {
  BucketAmounts,
  ChargeRow,
  Ending,
  KeyAuthority,
  KeyRow,
  LimitRow,
  PortalRights,
  TokenCounts,
  WindowBucket,
} from "./rows.ts";
import type { WindowRule } from "./windows.ts";

export interface OpenOperation {
  kind: "open";
  account: string;
  plan: string;
  /** Absent: nothing is brought along. */
  balances?: OpeningBalances;
  firstKey?: NewKey;
  by: string;
}

/**
 * Takes up to `wantMicro` of the available credits, and is refused below `minMicro`. Checks key
 * and limits under the same lock.
 */
export interface HoldOperation {
  kind: "hold";
  account: string;
  /** The request id, which identifies the hold. */
  hold: string;
  key: string;
  model: string;
  price: Price;
  /** Counted against tokens per minute. An expiry before the first checkpoint charges nothing. */
  promptTokens: number;
  minMicro: MicroCredits;
  wantMicro: MicroCredits;
  ttlMs: number;
}

/** Heartbeat, checkpoint and next slice in one. */
export interface ExtendOperation {
  kind: "extend";
  account: string;
  hold: string;
  /** Number of the extension of this hold: 1, 2, 3 ... */
  n: number;
  moreMicro: MicroCredits;
  usage: TokenCounts;
  ttlMs: number;
}

/** Ends a hold and charges its tokens. A settlement of zero tokens is a void. */
export interface SettleOperation {
  kind: "settle";
  account: string;
  hold: string;
  usage: TokenCounts;
  ending: Ending;
  /** The operator who stopped the request. */
  by: string | null;
  estimated: boolean;
}

/** Ends an overdue hold and charges its last checkpoint. Any process may send it. */
interface ExpireOperation {
  kind: "expire";
  account: string;
  hold: string;
}

/** Ends a hold whose node is gone, at its last checkpoint, before it is overdue. */
export interface StopOperation {
  kind: "stop";
  account: string;
  hold: string;
  by: string;
}

/** An operation that the journal records. */
interface Recorded {
  account: string;
  /** Who does it. */
  by: string;
}

/** Adds credits that were paid for, once per payment id. */
export interface TopupOperation extends Recorded {
  kind: "topup";
  payment: string;
  amountMicro: MicroCredits;
}

/**
 * Adds promotional credits. A promotion without an end, or with the end of an open one, adds to
 * that grant.
 */
export interface PromoteOperation extends Recorded {
  kind: "promote";
  op: string;
  amountMicro: MicroCredits;
  untilMs: EpochMs | null;
  reason: string;
  /** A memo: the request that it makes up for. It is a grant of its own. */
  request: string | null;
}

/** Takes promotional credits that are not held, newest first. All of the amount, or nothing. */
export interface AdjustOperation extends Recorded {
  kind: "adjust";
  op: string;
  amountMicro: MicroCredits;
  /** Number of the grant to take from. Null: any promotion. */
  grant: number | null;
  reason: string;
}

/** Returns what is neither spent nor held of a payment, up to an amount. */
export interface RefundOperation extends Recorded {
  kind: "refund";
  refund: string;
  payment: string;
  amountMicro: MicroCredits;
}

/** Changes the plan at the end of the base window, or now. */
export interface PlanOperation extends Recorded {
  kind: "plan";
  op: string;
  plan: string;
  /** `new_window`: now, and a bucket whose windows differ gets a new one. */
  at: "refresh" | "now" | "new_window";
}

/**
 * Suspends, resumes or closes the account, or sets the time at which it closes. To close is final.
 */
export interface StateOperation extends Recorded {
  kind: "state";
  op: string;
  to: { kind: "suspend" | "resume" | "close" } | { kind: "end"; endsMs: EpochMs | null };
}

/** Adds a key. Its id identifies it. */
export interface IssueOperation extends Recorded {
  kind: "issue";
  key: string;
  /** The operation id from which the id of the key follows. It counts once in the installation. */
  op?: string | undefined;
  row: NewKey;
  budget: BudgetSettings | null;
  /** The account has fewer keys, ended ones included. Null: it may have any number. */
  keysMax: number | null;
  /** The key that creates it: nothing changes unless it is as the caller has seen it. */
  creator: KeyAuthority | null;
}

/** What its creator chooses of a key. */
export type NewKey = Pick<
  KeyRow,
  ("id" | "account" | "hash" | "lastFour" | "name" | "models" | "expiresMs" | "portal") | keyof LimitRow
>;

/** Revokes a key for good. */
export interface RevokeOperation extends Recorded {
  kind: "revoke";
  key: string;
}

/**
 * Parts of a budget. Another amount keeps the window. Other windows begin now, and carry what was
 * spent.
 */
export interface BudgetSettings {
  amountMicro?: MicroCredits;
  /** Without a zone, windows of the calendar have that of the account's plan. */
  rule?: Partial<WindowRule>;
  byOperator?: boolean;
}

/** Changes a key. Absent fields stay. */
export interface KeyOperation extends Recorded {
  kind: "key";
  key: string;
  op: string;
  set: KeySettings;
  /** Nothing changes unless the key is as the caller has seen it. */
  seen?: KeyAuthority;
}

export interface KeySettings extends Partial<LimitRow> {
  name?: string | null;
  models?: readonly string[];
  expiresMs?: EpochMs | null;
  portal?: PortalRights;
  /** An absent part stays. Amount and period are needed if the key has no budget. */
  budget?: BudgetSettings | null;
  /**
   * A new secret. The present one stays valid for the period `overlap`, or ends if it is null.
   * Older ones end.
   */
  rotation?: { hash: string; lastFour: string; overlap: string | null };
}

/** Operations that the journal identifies. */
export type PostedOperation =
  | TopupOperation
  | PromoteOperation
  | AdjustOperation
  | RefundOperation
  | PlanOperation
  | StateOperation
  | KeyOperation;

export type Operation =
  | OpenOperation
  | HoldOperation
  | ExtendOperation
  | SettleOperation
  | ExpireOperation
  | StopOperation
  | IssueOperation
  | RevokeOperation
  | PostedOperation;

/** State of a limit per minute after the decision, for `x-ratelimit-*`. */
export interface RateState {
  limit: number;
  remaining: number;
  /** Time until the limit is completely restored. */
  resetMs: number;
}

export interface Rates {
  requests?: RateState;
  tokens?: RateState;
}

/** A refresh of base, overage or a budget. */
export interface Refresh {
  atMs: EpochMs;
  /** Credits that can be spent then, if nothing is spent until then. */
  amountMicro: MicroCredits;
}

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
      of: "requests" | "tokens";
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
  | { kind: "refused"; reason: "account_suspended" | "account_closed" }
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
  /** The operation was executed before, with this other amount, end, reason or request. */
  | { kind: "conflict"; note: string }
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
  | { kind: "conflict"; note: string }
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
  /** The refund was executed before, of this payment with this amount. */
  | { kind: "conflict"; note: string }
  | UsedElsewhere
  /** The account has no such payment. */
  | { kind: "unknown_payment" }
  /** Only this much of the payment is not spent. */
  | { kind: "too_much"; refundableMicro: MicroCredits };

/** Accounts can only be put on a plan that the current plans section has. */
type PlanRefusal = { kind: "unknown_plan"; plans: readonly string[] } | { kind: "retired_plan" };

type OpenRefusal = PlanRefusal | BalancesRefused;
export type OpenOutcome = { kind: "opened" } | { kind: "exists"; plan: string } | OpenRefusal;

export type PlanOutcome =
  | { kind: "changed"; replayed: boolean }
  /** The operation was executed before with this other plan, or at another time. */
  | { kind: "conflict"; note: string }
  | UsedElsewhere
  | { kind: "closed" }
  /** These buckets have other windows in the new plan. The base window ends then. */
  | { kind: "window_differs"; buckets: readonly WindowBucket[]; refreshMs: EpochMs }
  | PlanRefusal;

export type StateOutcome =
  | { kind: "changed"; replayed: boolean }
  /** The operation was executed before with this other change. */
  | { kind: "conflict"; note: string }
  | UsedElsewhere
  | { kind: "closed" };

/** `no_budget`: there is none of which a part can change. */
type BudgetError =
  | { kind: "no_budget" }
  /** Windows of the calendar cannot have this period. */
  | { kind: "no_calendar_period"; every: string };

export type IssueOutcome =
  | { kind: "issued"; key: KeyRow }
  /** A key with this id was issued before, with another secret. */
  | { kind: "key_exists"; key: KeyRow }
  /** The operation was executed before, and changed a key. */
  | { kind: "conflict"; note: string }
  | UsedElsewhere
  | { kind: "too_many_keys" }
  /** The creator is not as the caller has seen it. */
  | { kind: "key_changed" }
  | BudgetError;

export type RevokeOutcome = { kind: "revoked"; key: KeyRow; replayed: boolean } | { kind: "key_unknown" };

export type KeyOutcome =
  | { kind: "changed"; key: KeyRow; replayed: boolean }
  /** The operation was executed before with this other change. */
  | { kind: "conflict"; note: string }
  | UsedElsewhere
  | { kind: "key_unknown" }
  | BudgetError
  /** An expired key gets no new secret. */
  | { kind: "key_expired"; expiresMs: EpochMs }
  /** A revoked key does not change. */
  | { kind: "key_revoked" }
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
