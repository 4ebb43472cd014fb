/**
 * The rows of the ledger. Every store has tables with these columns (store/migrations). Amounts
 * are whole micro-credits. Times are milliseconds since the epoch. Every row is of one account.
 */
import type { EpochMs, MicroCredits } from "../units.ts";

/** The buckets that refill in windows. */
export const windowBuckets = ["base", "overage"] as const;
export type WindowBucket = (typeof windowBuckets)[number];

/**
 * The fields of an account for each of them. An access takes 5 ns. With a name that is put
 * together at each use, it takes 35 ns.
 */
export const fieldOf = {
  base: {
    cap: "baseCap",
    held: "baseHeld",
    plan: "basePlan",
    version: "baseVersion",
    every: "baseEvery",
    anchorMs: "baseAnchorMs",
    startsMs: "baseStartsMs",
    endsMs: "baseEndsMs",
    grant: "baseGrant",
    since: "baseSince",
  },
  overage: {
    cap: "overageCap",
    held: "overageHeld",
    plan: "overagePlan",
    version: "overageVersion",
    every: "overageEvery",
    anchorMs: "overageAnchorMs",
    startsMs: "overageStartsMs",
    endsMs: "overageEndsMs",
    grant: "overageGrant",
    since: "overageSince",
  },
} as const satisfies Record<WindowBucket, Record<string, keyof AccountRow>>;

/** `closed` is final. A suspended account takes no new holds. */
export const accountStates = ["active", "suspended", "closed"] as const;
export type AccountState = (typeof accountStates)[number];

/**
 * A window that a change of the plan closed before its planned end. It resumes if the account
 * returns to a plan with that period. Until then it counts what is held and spent since its start.
 */
export interface KeptWindow {
  bucket: WindowBucket;
  /** The plan that the account had at its start, and its version then. */
  plan: string;
  version: number;
  /** ISO 8601 period. */
  every: string;
  anchorMs: EpochMs;
  startsMs: EpochMs;
  endsMs: EpochMs;
  /** Journal number from which takings and charges count in this window. */
  since: number;
  spent: MicroCredits;
  held: MicroCredits;
}

/**
 * The present state of an account. It is a cache: the audit recomputes it from grants, charges and
 * holds. All buckets are in one row, so that one lock protects a decision.
 */
export interface AccountRow {
  id: string;
  plan: string;
  /** The plan that takes effect at the end of the base window. */
  nextPlan: string | null;
  state: AccountState;
  /** The account closes at this time. */
  endsMs: EpochMs | null;
  /** Number of the last journal entry. Numbers have no gaps and start at 1. */
  seq: number;
  createdMs: EpochMs;

  /**
   * Credits of the grant - spent - held. Negative after a change to a smaller plan, and after a
   * hold of another plan was charged.
   */
  base: number;
  /** The credits of the current grant. */
  baseCap: MicroCredits;
  /** Sum over the open holds, without amounts of closed windows, which cannot be returned. */
  baseHeld: MicroCredits;
  /** The plan that the account had at the start of the current window, and its version then. */
  basePlan: string;
  baseVersion: number;
  /** ISO 8601 period of the current window. */
  baseEvery: string;
  /** Start of the window grid. Windows start at `anchor + n * period`. */
  baseAnchorMs: EpochMs;
  baseStartsMs: EpochMs;
  baseEndsMs: EpochMs;
  /** Journal number of the current grant. */
  baseGrant: number;
  /**
   * Journal number from which takings and charges count in the current window. It is that of an
   * earlier grant if the window resumed, or carries another window's amounts.
   */
  baseSince: number;

  overage: number;
  overageCap: MicroCredits;
  overageHeld: MicroCredits;
  overagePlan: string;
  overageVersion: number;
  overageEvery: string;
  overageAnchorMs: EpochMs;
  overageStartsMs: EpochMs;
  overageEndsMs: EpochMs;
  overageGrant: number;
  overageSince: number;

  kept: readonly KeptWindow[];

  additional: MicroCredits;
  additionalHeld: MicroCredits;
  /** Number of open holds. */
  holds: number;
  /** What the open holds have used, by their last checkpoints. */
  used: MicroCredits;

  /**
   * GCRA: theoretical arrival time of requests and tokens per minute, with fractions of a
   * millisecond.
   */
  requestsTatMs: EpochMs;
  tokensTatMs: EpochMs;
  /** The limit of tokens per minute with which `tokensTatMs` was counted. */
  tokensLimit: number | null;
}

/** Amounts in the three buckets, in spending order. */
export interface BucketAmounts {
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
}

/** Tokens of a request: the checkpoint of a hold, or the final counts of a receipt. */
export interface TokenCounts {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
}

export const noTokens: TokenCounts = {
  promptTokens: 0,
  cachedTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
};

/** Returns the counts alone, without the other fields of a row or a usage. */
export function countsOf(used: TokenCounts): TokenCounts {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = used;
  return { promptTokens, cachedTokens, completionTokens, reasoningTokens };
}

/** Prices at the time of the hold. A later change of the configuration does not affect them. */
export interface RowPrice {
  pricePrompt: number;
  priceCompletion: number;
  priceCachedPrompt: number;
}

/** What a hold took from the windows of base and overage, at one journal number. */
export interface Taking {
  seq: number;
  base: MicroCredits;
  overage: MicroCredits;
}

/** An open hold. Ending one deletes the row and writes a charge. */
export interface HoldRow extends TokenCounts, RowPrice {
  account: string;
  /** The request id that the client sees. */
  id: string;
  key: string;
  model: string;
  createdMs: EpochMs;
  expiresMs: EpochMs;

  /** The latest takings. Unspent amounts return to the windows that count them. */
  base: MicroCredits;
  overage: MicroCredits;
  /** All that was taken from the additional credits. */
  additional: MicroCredits;
  /** Journal number of the first of the latest takings. */
  takenSeq: number;
  /** What was taken before the last grant of base or overage, oldest first. It is spent first. */
  earlier: readonly Taking[];
  /** Prompt tokens that the hold counted against tokens per minute. */
  meteredTokens: number;
}

export const journalKinds = [
  "open",
  "refresh",
  "plan",
  "topup",
  "hold",
  "extend",
  "settle",
  "void",
  "expire",
  "adjust",
  "refund",
  "suspend",
  "resume",
  "end",
  "close",
  "key",
  "reverse",
] as const;
export type JournalKind = (typeof journalKinds)[number];

/** Append-only. The sum of an account's deltas is its buckets, at any time. */
export interface JournalRow {
  account: string;
  seq: number;
  atMs: EpochMs;
  kind: JournalKind;
  /** Operation id, unique per account. It identifies repeated operations. */
  op: string;
  /** The request, payment, reason or plan that caused the entry. */
  note: string | null;
  baseDelta: number;
  overageDelta: number;
  additionalDelta: number;
  baseAfter: number;
  overageAfter: number;
  additionalAfter: MicroCredits;
}

export const grantCauses = [
  /** The account was opened. */
  "open",
  /** A window ended, and the next one started. */
  "window",
  "plan",
  "close",
  /** A window that a wrong clock had opened was taken back. */
  "reversal",
  "payment",
  "refund",
  "adjustment",
] as const;
export type GrantCause = (typeof grantCauses)[number];

/**
 * Why an account has credits. Immutable. Each change of a window starts a grant, which ends the
 * one before.
 */
export interface GrantRow {
  account: string;
  /** Number of the journal entry that made it. */
  seq: number;
  bucket: WindowBucket | "additional";
  cause: GrantCause;
  atMs: EpochMs;
  /** The credits of the window. Negative only for refunds and adjustments. */
  amount: number;
  /** Id of the payment, refund or adjustment. Payments are unique in the installation. */
  ref: string | null;
  /** The payment that a refund returns. */
  payment: string | null;

  /** The plan version that gives the credits. The fields from here on are null for additional. */
  plan: string | null;
  version: number | null;
  anchorMs: EpochMs | null;
  startsMs: EpochMs | null;
  /** The planned end of the window. */
  endsMs: EpochMs | null;
  /** Journal number from which takings and charges count. */
  since: number | null;
  /** Spent and held amounts that were carried in. */
  spent: MicroCredits | null;
  held: MicroCredits | null;
}

/** The grant of a window of base or overage. */
interface WindowGrant {
  plan: string;
  version: number;
  amount: MicroCredits;
  anchorMs: EpochMs;
  startsMs: EpochMs;
  endsMs: EpochMs;
  since: number;
}

/** An earlier window, and what was spent and is held since its `since`. */
export interface PastWindow {
  grant: WindowGrant;
  spent: MicroCredits;
  held: MicroCredits;
}

/** The window of a key's budget at the present time, and what was charged since its start. */
export interface PastBudget {
  key: string;
  startsMs: EpochMs;
  endsMs: EpochMs;
  spent: MicroCredits;
  /** Journal number of the first of these charges, or null if there are none. */
  since: number | null;
}

/** The last windows of an account that started at or before the present time. */
export interface PastWindows {
  base: PastWindow | null;
  overage: PastWindow | null;
  /** One for each key whose budget has a window of the future. */
  budgets: readonly PastBudget[];
  /** The plan that a scheduled change has put the account on since then. */
  scheduled: string | null;
}

/** How a request ended. docs/ledger.md lists the charge of each ending. */
export const endings = [
  "stop",
  "length",
  "credits",
  "client_gone",
  "engine_failed",
  "refused",
  "shutdown",
  "expired",
] as const;
export type Ending = (typeof endings)[number];

/**
 * One change of what a request cost, found by the request id that the client received. Appended
 * when a hold ends. A settlement after the expiry appends another line with the difference.
 * Reports and receipts add the lines up.
 */
export interface ChargeRow extends TokenCounts, RowPrice {
  account: string;
  /** The hold, which is the request id. */
  id: string;
  /** Number of the journal entry of this change. */
  seq: number;
  atMs: EpochMs;
  key: string;
  model: string;
  ending: Ending;
  estimated: boolean;
  /** The line has the difference to a charge that an expiry made before. */
  late: boolean;
  /** tokens x prices = cost = base + overage + additional + shortfall. */
  cost: MicroCredits;
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  /** The part of the cost that the account could not pay. */
  shortfall: MicroCredits;
  /** Journal numbers of the grants that were current. */
  baseGrant: number;
  overageGrant: number;
  /** The parts of `base` and `overage` that windows paid which had been closed before. */
  basePast: MicroCredits;
  overagePast: MicroCredits;
}

/** A payment, and how much of it was returned by refunds. */
export interface PaymentRow {
  id: string;
  account: string;
  amount: MicroCredits;
  refunded: MicroCredits;
}

/** What a key may do in the portal: see itself, or manage all keys of its account. */
export const portalRights = ["own", "account"] as const;
export type PortalRights = (typeof portalRights)[number];

/** An API key. Only the SHA-256 of the key is stored. */
export interface KeyRow {
  id: string;
  account: string;
  /** SHA-256 of the whole key, lower-case hex. */
  hash: string;
  name: string | null;
  /** Last four characters, so that people can recognise their keys. */
  lastFour: string;
  /** Model ids or `*`. They restrict the models of the plan. */
  models: readonly string[];
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
  concurrent: number | null;
  createdMs: EpochMs;
  expiresMs: EpochMs | null;
  revokedMs: EpochMs | null;
  lastUsedMs: EpochMs | null;
  /** GCRA state, with fractions of a millisecond, and open holds, for the limits of the key. */
  requestsTatMs: EpochMs;
  tokensTatMs: EpochMs;
  /** The limit of tokens per minute with which `tokensTatMs` was counted. */
  tokensLimit: number | null;
  holds: number;
  /** Everything that the open holds of the key hold. */
  held: MicroCredits;
  /** What they have used, by their last checkpoints. */
  used: MicroCredits;

  /**
   * What the key may spend in each of its windows, whatever bucket pays. Null: no budget, and then
   * the five fields after it are null too.
   */
  budget: MicroCredits | null;
  /** ISO 8601 period. */
  budgetEvery: string | null;
  budgetAnchorMs: EpochMs | null;
  budgetStartsMs: EpochMs | null;
  budgetEndsMs: EpochMs | null;
  budgetSpent: MicroCredits | null;
  /** Journal number of the account from which charges count in the window. 0 without a budget. */
  budgetSince: number;

  /** SHA-256 of the secret before the last rotation, and until when it is valid. */
  oldHash: string | null;
  oldUntilMs: EpochMs | null;

  portal: PortalRights;
}

/** The fields of a key that decide what its holder may do. */
const authority = [
  ...(["id", "account", "hash", "models", "requestsPerMinute", "tokensPerMinute", "concurrent"] as const),
  ...(["expiresMs", "revokedMs", "budget", "budgetEvery", "portal"] as const),
] satisfies (keyof KeyRow)[];

export const keyAuthority: ReadonlySet<string> = new Set(authority);
export type KeyAuthority = Pick<KeyRow, (typeof authority)[number]>;

export function hasSameAuthority(one: KeyAuthority, other: KeyAuthority): boolean {
  const values = (key: KeyAuthority) => JSON.stringify(authority.map((field) => key[field]));
  return values(one) === values(other);
}
