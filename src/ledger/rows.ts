/**
 * The rows of the ledger. Every store has tables with these columns (store/migrations). Amounts
 * are whole micro-credits. Times are milliseconds since the epoch. Every row is of one account.
 *
 * The facts of an account are numbered without gaps: journal entries and charges. They never
 * change. All other rows are a cache of them, which the audit computes again.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { Alignment, Window } from "./windows.ts";

/** In spending order. */
export const buckets = ["base", "overage", "additional"] as const;
export type Bucket = (typeof buckets)[number];

/** The buckets that refill in windows. */
export const windowBuckets = ["base", "overage"] as const;
export type WindowBucket = (typeof windowBuckets)[number];

/** Amounts in the three buckets. */
export type BucketAmounts = Record<Bucket, MicroCredits>;

/** A grant that credits can be taken from. */
interface OpenGrant {
  /** Number of its journal entry. */
  seq: number;
  /** With its changes. */
  amount: MicroCredits;
  /** What is charged to it, and what it carried in from the window before. */
  spent: MicroCredits;
  /** What open holds have taken from it. */
  held: MicroCredits;
}

/** The open grant of base or overage. After a change to a smaller plan, it can lack credits. */
export interface WindowGrant extends OpenGrant, Window {
  /** The plan version whose rule the window follows. */
  plan: string;
  version: number;
}

/** Credits that were paid for, or given. */
export interface AdditionalGrant extends OpenGrant {
  isPayment: boolean;
  /** When it closes. Payments have no end. */
  untilMs: EpochMs | null;
}

/** Sums of the open additional grants that are not in the row of their account. */
export interface LaterGrants {
  count: number;
  /** Neither spent nor held. */
  free: MicroCredits;
  held: MicroCredits;
  /** The first end among them. */
  untilMs: EpochMs | null;
}

/** `closed` is final. A suspended account takes no new holds. */
export const accountStates = ["active", "suspended", "closed"] as const;
export type AccountState = (typeof accountStates)[number];

/**
 * The present state of an account. Its open grants are in one row, so that one lock protects a
 * decision.
 */
export interface AccountRow {
  id: string;
  plan: string;
  /** The plan that takes effect at the end of the base window. */
  nextPlan: string | null;
  state: AccountState;
  /** The account closes at this time. */
  endsMs: EpochMs | null;
  /** Number of the last fact. Numbers have no gaps and start at 1. */
  seq: number;
  /** The time of the last fact. No fact is dated earlier than the one before it. */
  atMs: EpochMs;
  createdMs: EpochMs;

  /** Null: the account is closed. */
  base: WindowGrant | null;
  overage: WindowGrant | null;
  /** The first ones in spending order. */
  additional: readonly AdditionalGrant[];
  later: LaterGrants;

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

/** An open additional grant beyond those in the row of its account. */
export interface LaterGrantRow extends AdditionalGrant {
  account: string;
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

/** What was taken from a grant. */
export interface Taking {
  /** Number of the grant. */
  grant: number;
  bucket: Bucket;
  amount: MicroCredits;
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
  /** One for each grant, in the order in which they were first taken from. */
  takings: readonly Taking[];
  /** Number of the last extension, and what it took. 0: none. */
  extension: number;
  extended: MicroCredits;
  /** Prompt tokens that the hold counted against tokens per minute. */
  meteredTokens: number;
}

export const journalKinds = [
  /** The account was opened on a plan. */
  "open",
  /** A window of base or overage began. */
  "window",
  /** The plan was changed, or a change was scheduled or cancelled. */
  "plan",
  /** A change of the plan changed the amount of an open grant. */
  "change",
  "payment",
  "promotion",
  "memo",
  "adjust",
  "refund",
  "suspend",
  "resume",
  /** The time at which the account closes was set. */
  "end",
  "close",
  /** A key was created, changed or revoked. */
  "key",
] as const;
export type JournalKind = (typeof journalKinds)[number];

/** A fact about an account, apart from charges. */
export interface JournalRow {
  account: string;
  seq: number;
  atMs: EpochMs;
  kind: JournalKind;
  /** Id of the operation, unique in the installation. Null: time or another entry caused it. */
  op: string | null;
  /** Who did it: an operator, the holder of a key, or the service. */
  by: string;
  /** The bucket that it changes, and by how much. */
  bucket: Bucket | null;
  amount: number | null;
  /** Number of the grant that it changes. */
  grantSeq: number | null;
  /** The plan, payment, request or reason; for keys, the settings. */
  note: string | null;
}

/** The beginning of a grant: more of its journal entry. */
export interface GrantRow {
  account: string;
  /** Number of the journal entry. */
  seq: number;
  bucket: Bucket;
  amount: MicroCredits;
  /** What a new window within a period carried in. */
  spent: MicroCredits;
  fromMs: EpochMs;
  untilMs: EpochMs | null;
  /** Null for additional, as the two fields after it. */
  anchorMs: EpochMs | null;
  plan: string | null;
  version: number | null;
  /** Id of the payment, unique in the installation. */
  payment: string | null;
  /** The request that a memo is about. */
  request: string | null;
}

/** How a request ended. docs/ledger.md lists the charge of each ending. */
export const endings = [
  "stop",
  "length",
  "credits",
  "client_gone",
  "stopped",
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
  seq: number;
  atMs: EpochMs;
  key: string;
  model: string;
  ending: Ending;
  /** Who stopped the request. */
  by: string | null;
  estimated: boolean;
  /** The line has the difference to a charge that an expiry made before. */
  late: boolean;
  /** tokens x prices = cost = paid + shortfall. */
  cost: MicroCredits;
  /** Sums of `paid` by bucket. */
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  paid: readonly Taking[];
  /** The part of the cost that the account could not pay. */
  shortfall: MicroCredits;
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
   * the fields after it are null too.
   */
  budget: MicroCredits | null;
  /** ISO 8601 period, alignment and time zone of the windows. */
  budgetEvery: string | null;
  budgetAlign: Alignment | null;
  budgetTimezone: string | null;
  budgetAnchorMs: EpochMs | null;
  budgetFromMs: EpochMs | null;
  budgetUntilMs: EpochMs | null;
  budgetSpent: MicroCredits | null;
  /** It was set by an operator: the holder may only lower the amount. */
  budgetByOperator: boolean | null;

  /** SHA-256 of the secret before the last rotation, and until when it is valid. */
  oldHash: string | null;
  oldUntilMs: EpochMs | null;

  portal: PortalRights;
}

/** The fields of a key that decide what its holder may do. */
const authority = [
  ...(["id", "account", "hash", "models", "requestsPerMinute", "tokensPerMinute", "concurrent"] as const),
  ...([
    "expiresMs",
    "revokedMs",
    "budget",
    "budgetEvery",
    "budgetAlign",
    "budgetTimezone",
    "budgetByOperator",
    "portal",
  ] as const),
] satisfies (keyof KeyRow)[];

export type KeyAuthority = Pick<KeyRow, (typeof authority)[number]>;

export function hasSameAuthority(one: KeyAuthority, other: KeyAuthority): boolean {
  const values = (key: KeyAuthority) => JSON.stringify(authority.map((field) => key[field]));
  return values(one) === values(other);
}
