/**
 * The ledger's rows as SQLite keeps them: the columns of each table, in one order for reading and writing, and the
 * two directions.
 */
import type { SQLInputValue } from "node:sqlite";
import {
  type AccountRow,
  endings,
  type HoldRow,
  type JournalRow,
  journalKinds,
  type KeyRow,
  type RowPrice,
  type TokenCounts,
  type UsageRow,
} from "../../ledger/rows.ts";
import {
  type Cell,
  misread,
  numeric,
  numericOrNull,
  oneOf,
  type Query,
  type Row,
  text,
  textOrNull,
} from "./query.ts";

export const accountColumns = [
  "id",
  "plan",
  "seq",
  "created_ms",
  "base",
  "base_cap",
  "base_anchor_ms",
  "base_starts_ms",
  "base_ends_ms",
  "overage",
  "overage_cap",
  "overage_anchor_ms",
  "overage_starts_ms",
  "overage_ends_ms",
  "additional",
  "held_base",
  "held_overage",
  "held_additional",
  "holds",
  "requests_tat_ms",
  "tokens_tat_ms",
] as const;

export function accountOf(row: Row): AccountRow {
  return {
    id: text(row[0]),
    plan: text(row[1]),
    seq: numeric(row[2]),
    createdMs: numeric(row[3]),
    base: numeric(row[4]),
    baseCap: numeric(row[5]),
    baseAnchorMs: numeric(row[6]),
    baseStartsMs: numeric(row[7]),
    baseEndsMs: numeric(row[8]),
    overage: numeric(row[9]),
    overageCap: numeric(row[10]),
    overageAnchorMs: numeric(row[11]),
    overageStartsMs: numeric(row[12]),
    overageEndsMs: numeric(row[13]),
    additional: numeric(row[14]),
    heldBase: numeric(row[15]),
    heldOverage: numeric(row[16]),
    heldAdditional: numeric(row[17]),
    holds: numeric(row[18]),
    requestsTatMs: numeric(row[19]),
    tokensTatMs: numeric(row[20]),
  };
}

/**
 * The row that the query finds for the id, whatever a hand has written into it: an amount that is too large to be
 * exact is not an error of the driver but a number that no check of the ledger lets pass.
 */
export function readAccount(query: Query, id: string): AccountRow | undefined {
  try {
    const row = query.get(id);
    return row === undefined ? undefined : accountOf(row);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  const row = query.getExact(id);
  return row && accountOf(row.map((cell) => (typeof cell === "bigint" ? Number(cell) : cell)));
}

export function accountValues(row: AccountRow): SQLInputValue[] {
  return [
    row.id,
    row.plan,
    row.seq,
    row.createdMs,
    row.base,
    row.baseCap,
    row.baseAnchorMs,
    row.baseStartsMs,
    row.baseEndsMs,
    row.overage,
    row.overageCap,
    row.overageAnchorMs,
    row.overageStartsMs,
    row.overageEndsMs,
    row.additional,
    row.heldBase,
    row.heldOverage,
    row.heldAdditional,
    row.holds,
    row.requestsTatMs,
    row.tokensTatMs,
  ];
}

/** What was made for a request, and its prices: of a hold and of its receipt. */
const meteredColumns = [
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "reasoning_tokens",
  "price_prompt",
  "price_completion",
  "price_cached_prompt",
] as const;

/** `from`: where in the row they begin. */
function meteredOf(row: Row, from: number): TokenCounts & RowPrice {
  return {
    promptTokens: numeric(row[from]),
    cachedTokens: numeric(row[from + 1]),
    completionTokens: numeric(row[from + 2]),
    reasoningTokens: numeric(row[from + 3]),
    pricePrompt: numeric(row[from + 4]),
    priceCompletion: numeric(row[from + 5]),
    priceCachedPrompt: numeric(row[from + 6]),
  };
}

function meteredValues(row: TokenCounts & RowPrice): SQLInputValue[] {
  return [
    row.promptTokens,
    row.cachedTokens,
    row.completionTokens,
    row.reasoningTokens,
    row.pricePrompt,
    row.priceCompletion,
    row.priceCachedPrompt,
  ];
}

export const holdColumns = [
  "account",
  "id",
  "key",
  "model",
  "created_ms",
  "expires_ms",
  "base",
  "overage",
  "additional",
  "base_starts_ms",
  "overage_starts_ms",
  "base_past",
  "overage_past",
  "metered_tokens",
  ...meteredColumns,
] as const;

export function holdOf(row: Row): HoldRow {
  return {
    account: text(row[0]),
    id: text(row[1]),
    key: text(row[2]),
    model: text(row[3]),
    createdMs: numeric(row[4]),
    expiresMs: numeric(row[5]),
    base: numeric(row[6]),
    overage: numeric(row[7]),
    additional: numeric(row[8]),
    baseStartsMs: numeric(row[9]),
    overageStartsMs: numeric(row[10]),
    basePast: numeric(row[11]),
    overagePast: numeric(row[12]),
    meteredTokens: numeric(row[13]),
    ...meteredOf(row, 14),
  };
}

export function holdValues(row: HoldRow): SQLInputValue[] {
  return [
    row.account,
    row.id,
    row.key,
    row.model,
    row.createdMs,
    row.expiresMs,
    row.base,
    row.overage,
    row.additional,
    row.baseStartsMs,
    row.overageStartsMs,
    row.basePast,
    row.overagePast,
    row.meteredTokens,
    ...meteredValues(row),
  ];
}

export const journalColumns = [
  "account",
  "seq",
  "at_ms",
  "kind",
  "op",
  "note",
  "base_delta",
  "overage_delta",
  "additional_delta",
  "base_after",
  "overage_after",
  "additional_after",
] as const;

export function journalOf(row: Row): JournalRow {
  return {
    account: text(row[0]),
    seq: numeric(row[1]),
    atMs: numeric(row[2]),
    kind: oneOf(journalKinds, row[3]),
    op: text(row[4]),
    note: textOrNull(row[5]),
    baseDelta: numeric(row[6]),
    overageDelta: numeric(row[7]),
    additionalDelta: numeric(row[8]),
    baseAfter: numeric(row[9]),
    overageAfter: numeric(row[10]),
    additionalAfter: numeric(row[11]),
  };
}

export function journalValues(row: JournalRow): SQLInputValue[] {
  return [
    row.account,
    row.seq,
    row.atMs,
    row.kind,
    row.op,
    row.note,
    row.baseDelta,
    row.overageDelta,
    row.additionalDelta,
    row.baseAfter,
    row.overageAfter,
    row.additionalAfter,
  ];
}

export const usageColumns = [
  "account",
  "id",
  "seq",
  "at_ms",
  "key",
  "model",
  "ending",
  "estimated",
  ...meteredColumns,
  "cost",
  "base",
  "overage",
  "additional",
  "shortfall",
] as const;

export function usageOf(row: Row): UsageRow {
  return {
    account: text(row[0]),
    id: text(row[1]),
    seq: numeric(row[2]),
    atMs: numeric(row[3]),
    key: text(row[4]),
    model: text(row[5]),
    ending: oneOf(endings, row[6]),
    estimated: row[7] === 1,
    ...meteredOf(row, 8),
    cost: numeric(row[15]),
    base: numeric(row[16]),
    overage: numeric(row[17]),
    additional: numeric(row[18]),
    shortfall: numeric(row[19]),
  };
}

export function usageValues(row: UsageRow): SQLInputValue[] {
  return [
    row.account,
    row.id,
    row.seq,
    row.atMs,
    row.key,
    row.model,
    row.ending,
    row.estimated ? 1 : 0,
    ...meteredValues(row),
    row.cost,
    row.base,
    row.overage,
    row.additional,
    row.shortfall,
  ];
}

function modelsOf(cell: Cell): string[] {
  const models: unknown = JSON.parse(text(cell));
  if (!Array.isArray(models) || !models.every((model) => typeof model === "string")) {
    throw misread(cell, "a list of model names");
  }
  return models;
}

export const keyColumns = [
  "account",
  "id",
  "hash",
  "name",
  "last_four",
  "models",
  "requests_per_minute",
  "tokens_per_minute",
  "concurrent",
  "created_ms",
  "expires_ms",
  "revoked_ms",
  "last_used_ms",
  "requests_tat_ms",
  "tokens_tat_ms",
  "holds",
] as const;

export function keyOf(row: Row): KeyRow {
  return {
    account: text(row[0]),
    id: text(row[1]),
    hash: text(row[2]),
    name: textOrNull(row[3]),
    lastFour: text(row[4]),
    models: modelsOf(row[5]),
    requestsPerMinute: numericOrNull(row[6]),
    tokensPerMinute: numericOrNull(row[7]),
    concurrent: numericOrNull(row[8]),
    createdMs: numeric(row[9]),
    expiresMs: numericOrNull(row[10]),
    revokedMs: numericOrNull(row[11]),
    lastUsedMs: numericOrNull(row[12]),
    requestsTatMs: numeric(row[13]),
    tokensTatMs: numeric(row[14]),
    holds: numeric(row[15]),
  };
}

export function keyValues(row: KeyRow): SQLInputValue[] {
  return [
    row.account,
    row.id,
    row.hash,
    row.name,
    row.lastFour,
    JSON.stringify(row.models),
    row.requestsPerMinute,
    row.tokensPerMinute,
    row.concurrent,
    row.createdMs,
    row.expiresMs,
    row.revokedMs,
    row.lastUsedMs,
    row.requestsTatMs,
    row.tokensTatMs,
    row.holds,
  ];
}
