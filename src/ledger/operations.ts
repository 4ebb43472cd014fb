/**
 * What the ledger can be asked, and what it answers. Every operation touches one account and may be sent any
 * number of times: `op` (or the hold's id) finds what was already done, and the first answer is given again.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { Price } from "./pricing.ts";
import type { BucketAmounts, Ending, TokenCounts, UsageRow } from "./rows.ts";

export interface OpenOperation {
  kind: "open";
  account: string;
  /** Name of a plan of the configuration. */
  plan: string;
}

/** Takes `min(want, what is there)`; refused if that is less than `min`. Checks key and limits under the same lock. */
export interface HoldOperation {
  kind: "hold";
  account: string;
  /** The hold's id, which is the request id; also the operation id. */
  hold: string;
  key: string;
  model: string;
  price: Price;
  /** Counted against tokens per minute. Until the first checkpoint is written, an expiry charges nothing. */
  promptTokens: number;
  min: MicroCredits;
  want: MicroCredits;
  ttlMs: number;
}

/** Heartbeat, checkpoint and next slice in one. */
export interface ExtendOperation {
  kind: "extend";
  account: string;
  hold: string;
  /** Which extension of this hold: 1, 2, 3 ...; the operation id is `<hold>/<n>`. */
  n: number;
  more: MicroCredits;
  used: TokenCounts;
  ttlMs: number;
}

/** Ends a hold with what it used. All zero tokens: a void. */
export interface SettleOperation {
  kind: "settle";
  account: string;
  hold: string;
  used: TokenCounts;
  ending: Ending;
  estimated: boolean;
}

/** Ends a hold with its last checkpoint, if its time has run out; any process may ask. */
export interface ExpireOperation {
  kind: "expire";
  account: string;
  hold: string;
}

/** Additional credits, once per payment id, ever. */
export interface TopupOperation {
  kind: "topup";
  account: string;
  payment: string;
  amount: MicroCredits;
}

/** A correction of the additional credits by hand, up or down. */
export interface AdjustOperation {
  kind: "adjust";
  account: string;
  op: string;
  /** Signed. Below zero, never more than there is. */
  amount: number;
  reason: string;
}

/** An upgrade counts at once, a downgrade at the next refresh. */
export interface PlanOperation {
  kind: "plan";
  account: string;
  op: string;
  plan: string;
}

export type Operation =
  | OpenOperation
  | HoldOperation
  | ExtendOperation
  | SettleOperation
  | ExpireOperation
  | TopupOperation
  | AdjustOperation
  | PlanOperation;

/** State of one per-minute limit after the decision; for `x-ratelimit-*`. */
export interface RateState {
  limit: number;
  remaining: number;
  /** Until the limit is whole again. */
  resetMs: number;
}

export interface Rates {
  requests?: RateState;
  tokens?: RateState;
}

export type HoldOutcome =
  | { kind: "held"; amount: MicroCredits; rates: Rates }
  | {
      kind: "refused";
      reason: "insufficient_credits";
      /** When credits next come back by themselves; null where the plan never refills any. */
      refreshesAtMs: EpochMs | null;
      rates: Rates;
    }
  | { kind: "refused"; reason: "credits_reserved"; retryAfterMs: number; rates: Rates }
  | {
      kind: "refused";
      reason: "rate_limit_exceeded";
      /** Which limit it was and whose. */
      of: "requests" | "tokens";
      scope: "account" | "key";
      /** `null`: this request alone is over the limit, waiting does not help. */
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
  | { kind: "refused"; reason: "key_revoked" | "key_expired" | "key_unknown" }
  /** The hold was taken earlier and has ended since; a new request needs a new id. */
  | { kind: "refused"; reason: "hold_ended" };

export type ExtendOutcome =
  | { kind: "extended"; amount: MicroCredits }
  /** The hold ended first (it expired, or was settled); nothing was taken. */
  | { kind: "ended" };

export type SettleOutcome =
  | {
      kind: "settled";
      /** What each bucket paid + shortfall. */
      cost: MicroCredits;
      paid: BucketAmounts;
      shortfall: MicroCredits;
      /** Of `paid`, what the expiry of the hold had taken before its settlement came. Absent where it had not expired. */
      paidBefore?: BucketAmounts;
      /** Of `shortfall`, what the expiry had recorded. Absent with `paidBefore`. */
      shortfallBefore?: MicroCredits;
    }
  /** No such hold was ever taken; nothing was charged. */
  | { kind: "unknown_hold" };

export type ExpireOutcome = { kind: "expired" } | { kind: "alive" } | { kind: "ended" };

export type TopupOutcome =
  | { kind: "added"; additional: MicroCredits; replayed: boolean }
  | { kind: "conflict"; amount: MicroCredits }
  /** The bucket would no longer be a safe integer. */
  | { kind: "too_much" };

export type AdjustOutcome =
  | { kind: "adjusted"; additional: MicroCredits; replayed: boolean }
  /** The operation was done before, with another of the two. */
  | { kind: "conflict"; amount: number; reason: string }
  | { kind: "too_little"; additional: MicroCredits }
  | { kind: "too_much" };

export type OpenOutcome = { kind: "opened" } | { kind: "exists"; plan: string };

export type PlanOutcome =
  | { kind: "changed"; replayed: boolean }
  /** The operation was done before, with this other plan. */
  | { kind: "conflict"; plan: string };

/** Any operation on an account may be answered so. */
export type AccountError =
  | { kind: "no_account" }
  /** The account's row or plan is missing or contradicts itself; nothing is moved until an operator mends it. */
  | { kind: "balance_invalid"; problem: string };

interface Outcomes {
  open: OpenOutcome;
  hold: HoldOutcome;
  extend: ExtendOutcome;
  settle: SettleOutcome;
  expire: ExpireOutcome;
  topup: TopupOutcome;
  adjust: AdjustOutcome;
  plan: PlanOutcome;
}

/** Receipts of the holds whose time was found to have run out; absent where there are none. An operation that is sent again finds none. */
interface Findings {
  expired?: readonly UsageRow[];
}

export type OutcomeOf<O extends Operation> = (Outcomes[O["kind"]] | AccountError) & Findings;
export type Outcome = OutcomeOf<Operation>;

/** Instead of an outcome: the operation must be sent again, and so must those that follow it on its account. */
export interface PutOffOutcome extends Findings {
  /**
   * `locked`: another session of the database has locked a row of the account, and nothing was done. `unfinished`: the
   * account has more overdue holds than one commit ends; some were ended.
   */
  kind: "locked" | "unfinished";
}

export type Decision = Outcome | PutOffOutcome;
