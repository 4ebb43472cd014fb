/**
 * The rows of the ledger. Every store has tables with these columns (store/migrations). Amounts
 * are whole micro-credits. Times are milliseconds since the epoch. The key of every table starts
 * with the account.
 */
import type { EpochMs, MicroCredits } from "../units.ts";

/** All three buckets are in one row, so that one lock protects a decision. */
export interface AccountRow {
  id: string;
  plan: string;
  /** Number of the last journal entry. Numbers have no gaps and start at 1. */
  seq: number;
  createdMs: EpochMs;

  base: MicroCredits;
  baseCap: MicroCredits;
  /** Start of the window grid. Windows start at `anchor + n * period`. */
  baseAnchorMs: EpochMs;
  baseStartsMs: EpochMs;
  baseEndsMs: EpochMs;

  overage: MicroCredits;
  overageCap: MicroCredits;
  overageAnchorMs: EpochMs;
  overageStartsMs: EpochMs;
  overageEndsMs: EpochMs;

  additional: MicroCredits;

  /** Sums over the open holds, without amounts from past windows, which cannot be returned. */
  heldBase: MicroCredits;
  heldOverage: MicroCredits;
  heldAdditional: MicroCredits;
  /** Number of open holds. */
  holds: number;

  /**
   * GCRA: theoretical arrival time of requests and tokens per minute, with fractions of a
   * millisecond.
   */
  requestsTatMs: EpochMs;
  tokensTatMs: EpochMs;
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

/** An open hold. Ending one deletes the row and writes its usage row. */
export interface HoldRow extends TokenCounts, RowPrice {
  account: string;
  /** The request id that the client sees. */
  id: string;
  key: string;
  model: string;
  createdMs: EpochMs;
  expiresMs: EpochMs;

  /**
   * Taken from the windows that started at `baseStartsMs` and `overageStartsMs`. Unspent amounts
   * return to them.
   */
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  baseStartsMs: EpochMs;
  overageStartsMs: EpochMs;
  /** Taken from windows that have ended. Spent first and never returned. */
  basePast: MicroCredits;
  overagePast: MicroCredits;
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
  baseAfter: MicroCredits;
  overageAfter: MicroCredits;
  additionalAfter: MicroCredits;
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
 * The receipt of a finished request, found by the request id that the client received. Its charge
 * can be recomputed.
 */
export interface UsageRow extends TokenCounts, RowPrice {
  account: string;
  /** The hold, which is the request id. */
  id: string;
  /** Number of the journal entry that ended the hold. */
  seq: number;
  atMs: EpochMs;
  key: string;
  model: string;
  ending: Ending;
  estimated: boolean;
  /** tokens x prices = cost = base + overage + additional + shortfall. */
  cost: MicroCredits;
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  /** The part of the cost that the account could not pay. */
  shortfall: MicroCredits;
}

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
  holds: number;
}
