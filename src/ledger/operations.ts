/**
 * Operations of the ledger. Every operation changes one account and may be repeated: its id (or
 * that of its request) finds the first execution, and nothing changes again.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { Price } from "./pricing.ts";
import type { Ending, KeyAuthority, KeyRow, SettingRow, TokenCounts } from "./rows.ts";
import type { Alignment } from "./windows.ts";

export interface OpenOperation {
  kind: "open";
  account: string;
  plan: string;
  /** Additional credits: of a payment, or promotional without a payment id. */
  additional?: OpeningCredits | undefined;
  by: string;
}

export interface OpeningCredits {
  amountMicro: MicroCredits;
  payment: string | null;
}

/**
 * Takes up to `wantMicro` of the available credits, and is refused below `minMicro`. Checks key
 * and limits under the same lock.
 */
export interface HoldOperation {
  kind: "hold";
  account: string;
  /** The request id, which identifies the hold. */
  requestId: string;
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
  requestId: string;
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
  requestId: string;
  usage: TokenCounts;
  ending: Ending;
  /** The operator who stopped the request. */
  by: string | null;
  estimated: boolean;
  /** Something odd about the counts, for the receipt. */
  note?: string;
}

/** Ends an overdue hold and charges its last checkpoint. Any process may send it. */
interface ExpireOperation {
  kind: "expire";
  account: string;
  requestId: string;
}

/** Ends a hold whose node is gone, at its last checkpoint, before it is overdue. */
export interface StopOperation {
  kind: "stop";
  account: string;
  requestId: string;
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
  requestId: string | null;
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
  reason?: string | undefined;
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
  caps: readonly CapSettings[];
  /** The account has fewer keys, ended ones included. Null: it may have any number. */
  keysMax: number | null;
  /** Fewer of its keys work. Absent: any number may. */
  workingMax?: number | undefined;
  /** The key that creates it: nothing changes unless it is as the caller has seen it. */
  creator: KeyAuthority | null;
}

/** What its creator chooses of a key. */
export type NewKey = Pick<KeyRow, "id" | "account" | "hash" | "lastFour" | "actsFor" | keyof SettingRow>;

/** Revokes a key for good. */
export interface RevokeOperation extends Recorded {
  kind: "revoke";
  key: string;
}

/** What a cap of a key is to be. */
export interface CapSettings {
  amountMicro: MicroCredits;
  /** ISO 8601 period. */
  every: string;
  /** By default from the opening. */
  align?: Alignment;
  /** Without a zone, windows of the calendar have that of the account's plan. */
  timezone?: string;
  /** By default the period. */
  name?: string;
  /** By default every model. */
  models?: readonly string[];
  byOperator: boolean;
}

/** Changes a key. Absent fields stay. */
export interface KeyOperation extends Recorded {
  kind: "key";
  key: string;
  op: string;
  set: KeySettings;
  /** Nothing changes unless the key is as the caller has seen it. */
  seen?: KeyAuthority | undefined;
  /** A key that does not work gets a later end only if fewer work. Absent: any number may. */
  workingMax?: number | undefined;
}

export interface KeySettings extends Partial<SettingRow> {
  /** All caps. Those that count the same keep their windows, and what was spent. */
  caps?: readonly CapSettings[];
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
