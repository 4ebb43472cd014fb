/**
 * The ledger's rows, as the kernel sees them and as every store keeps them (store/migrations). Amounts are whole
 * micro-credits, times milliseconds since the epoch. The key of every table begins with the account.
 */
import type { EpochMs, MicroCredits } from "../units.ts";

/** One row holds all three buckets, so that one lock covers a decision. */
export interface AccountRow {
  id: string;
  plan: string;
  /** Of the last journal entry; gapless from 1. */
  seq: number;
  createdMs: EpochMs;

  base: MicroCredits;
  baseCap: MicroCredits;
  /** Where the window grid begins; windows are `anchor + n * period`. */
  baseAnchorMs: EpochMs;
  baseStartsMs: EpochMs;
  baseEndsMs: EpochMs;

  overage: MicroCredits;
  overageCap: MicroCredits;
  overageAnchorMs: EpochMs;
  overageStartsMs: EpochMs;
  overageEndsMs: EpochMs;

  additional: MicroCredits;

  /** Sums over the open holds, of what would come back today: parts taken from past windows are not in them. */
  heldBase: MicroCredits;
  heldOverage: MicroCredits;
  heldAdditional: MicroCredits;
  /** How many holds are open. */
  holds: number;

  /** GCRA: the theoretical arrival time of the plan's requests and tokens per minute; fractions of a millisecond count. */
  requestsTatMs: EpochMs;
  tokensTatMs: EpochMs;
}

/** Amounts in the three buckets, in the order in which they are spent. */
export interface BucketAmounts {
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
}

/** What has been made for a request so far; the checkpoint of a hold and the receipt of a usage row. */
export interface TokenCounts {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
}

/** Prices at the time of the hold; they stay with the request whatever the configuration becomes. */
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

  /** Taken from the windows that began at `baseStartsMs` and `overageStartsMs`; unspent, it goes back to them. */
  base: MicroCredits;
  overage: MicroCredits;
  additional: MicroCredits;
  baseStartsMs: EpochMs;
  overageStartsMs: EpochMs;
  /** Taken from windows that have since ended; spent first, never given back. */
  basePast: MicroCredits;
  overagePast: MicroCredits;
  /** Prompt tokens that were counted against tokens per minute when the hold was taken. */
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
  /** Operation id, unique per account; an operation that is sent again is found by it. */
  op: string;
  /** The request, payment, reason or plan behind it. */
  note: string | null;
  baseDelta: number;
  overageDelta: number;
  additionalDelta: number;
  baseAfter: MicroCredits;
  overageAfter: MicroCredits;
  additionalAfter: MicroCredits;
}

/** How a request ended; docs/ledger.md has the table of what each costs. */
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

/** One row per finished request: its charge can be recomputed from it. Found by the request id the client saw. */
export interface UsageRow extends TokenCounts, RowPrice {
  account: string;
  /** The hold, which is the request id. */
  id: string;
  /** Journal entry of the ending. */
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
  /** What nobody could pay. */
  shortfall: MicroCredits;
}

/** An API key. The key itself is never kept, only its SHA-256. */
export interface KeyRow {
  id: string;
  account: string;
  /** SHA-256 of the whole key, lower-case hex. */
  hash: string;
  name: string | null;
  /** Last four characters, so that people can tell their keys apart. */
  lastFour: string;
  /** Model ids or `*`; narrower than the plan's, never wider. */
  models: readonly string[];
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
  concurrent: number | null;
  createdMs: EpochMs;
  expiresMs: EpochMs | null;
  revokedMs: EpochMs | null;
  lastUsedMs: EpochMs | null;
  /** GCRA state (fractions of a millisecond count) and open holds of the key's own limits. */
  requestsTatMs: EpochMs;
  tokensTatMs: EpochMs;
  holds: number;
}
