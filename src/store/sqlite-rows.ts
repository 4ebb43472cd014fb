/**
 * The ledger's rows as SQLite keeps them: the columns of each table, in one order for reading and writing, and the
 * two directions. A value of another type than the schema says is a defect and throws; integers beyond 2^53 are
 * refused by the driver.
 */
import type { SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import type {
  AccountRow,
  Ending,
  HoldRow,
  JournalKind,
  JournalRow,
  KeyRow,
  UsageRow,
} from "../credits/rows.ts";

/** A row as `get` and `all` return it, by column. */
export type Row = Record<string, SQLOutputValue>;

type Cell = SQLOutputValue | undefined;

function misread(cell: Cell, expected: string): Error {
  return new Error(`the database holds ${String(cell)} where ${expected} should be`);
}

function text(cell: Cell): string {
  if (typeof cell !== "string") throw misread(cell, "text");
  return cell;
}

function textOrNull(cell: Cell): string | null {
  return cell === null ? null : text(cell);
}

function numeric(cell: Cell): number {
  if (typeof cell !== "number") throw misread(cell, "a number");
  return cell;
}

function numericOrNull(cell: Cell): number | null {
  return cell === null ? null : numeric(cell);
}

function oneOf<T extends string>(values: readonly T[], cell: Cell): T {
  const found = values.find((value) => value === cell);
  if (found === undefined) throw misread(cell, values.join(" or "));
  return found;
}

function modelsOf(cell: Cell): string[] {
  const models: unknown = JSON.parse(text(cell));
  if (!Array.isArray(models) || !models.every((model) => typeof model === "string")) {
    throw misread(cell, "a list of model names");
  }
  return models;
}

const kinds = [
  "hold",
  "settle",
  "void",
  "extend",
  "expire",
  "refresh",
  "topup",
  "adjust",
  "plan",
  "open",
] as const satisfies readonly JournalKind[];

const endings = [
  "stop",
  "length",
  "credits",
  "client_gone",
  "engine_failed",
  "refused",
  "shutdown",
  "expired",
] as const satisfies readonly Ending[];

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
    id: text(row.id),
    plan: text(row.plan),
    seq: numeric(row.seq),
    createdMs: numeric(row.created_ms),
    base: numeric(row.base),
    baseCap: numeric(row.base_cap),
    baseAnchorMs: numeric(row.base_anchor_ms),
    baseStartsMs: numeric(row.base_starts_ms),
    baseEndsMs: numeric(row.base_ends_ms),
    overage: numeric(row.overage),
    overageCap: numeric(row.overage_cap),
    overageAnchorMs: numeric(row.overage_anchor_ms),
    overageStartsMs: numeric(row.overage_starts_ms),
    overageEndsMs: numeric(row.overage_ends_ms),
    additional: numeric(row.additional),
    heldBase: numeric(row.held_base),
    heldOverage: numeric(row.held_overage),
    heldAdditional: numeric(row.held_additional),
    holds: numeric(row.holds),
    requestsTatMs: numeric(row.requests_tat_ms),
    tokensTatMs: numeric(row.tokens_tat_ms),
  };
}

/**
 * The row that the statement finds for the id, whatever a hand has written into it: an amount that is too large to be
 * exact is not an error of the driver but a number that no check of the ledger lets pass.
 */
export function readAccount(statement: StatementSync, id: string): AccountRow | undefined {
  try {
    const row = statement.get(id);
    return row === undefined ? undefined : accountOf(row);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  statement.setReadBigInts(true);
  try {
    const row = statement.get(id);
    const cells = Object.entries(row ?? {});
    return accountOf(
      Object.fromEntries(
        cells.map(([column, cell]) => [column, typeof cell === "bigint" ? Number(cell) : cell]),
      ),
    );
  } finally {
    statement.setReadBigInts(false);
  }
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
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "reasoning_tokens",
  "price_prompt",
  "price_completion",
  "price_cached_prompt",
] as const;

export function holdOf(row: Row): HoldRow {
  return {
    account: text(row.account),
    id: text(row.id),
    key: text(row.key),
    model: text(row.model),
    createdMs: numeric(row.created_ms),
    expiresMs: numeric(row.expires_ms),
    base: numeric(row.base),
    overage: numeric(row.overage),
    additional: numeric(row.additional),
    baseStartsMs: numeric(row.base_starts_ms),
    overageStartsMs: numeric(row.overage_starts_ms),
    basePast: numeric(row.base_past),
    overagePast: numeric(row.overage_past),
    meteredTokens: numeric(row.metered_tokens),
    promptTokens: numeric(row.prompt_tokens),
    cachedTokens: numeric(row.cached_tokens),
    completionTokens: numeric(row.completion_tokens),
    reasoningTokens: numeric(row.reasoning_tokens),
    pricePrompt: numeric(row.price_prompt),
    priceCompletion: numeric(row.price_completion),
    priceCachedPrompt: numeric(row.price_cached_prompt),
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
    row.promptTokens,
    row.cachedTokens,
    row.completionTokens,
    row.reasoningTokens,
    row.pricePrompt,
    row.priceCompletion,
    row.priceCachedPrompt,
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
    account: text(row.account),
    seq: numeric(row.seq),
    atMs: numeric(row.at_ms),
    kind: oneOf(kinds, row.kind),
    op: text(row.op),
    note: textOrNull(row.note),
    baseDelta: numeric(row.base_delta),
    overageDelta: numeric(row.overage_delta),
    additionalDelta: numeric(row.additional_delta),
    baseAfter: numeric(row.base_after),
    overageAfter: numeric(row.overage_after),
    additionalAfter: numeric(row.additional_after),
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
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "reasoning_tokens",
  "price_prompt",
  "price_completion",
  "price_cached_prompt",
  "cost",
  "base",
  "overage",
  "additional",
  "shortfall",
] as const;

export function usageOf(row: Row): UsageRow {
  return {
    account: text(row.account),
    id: text(row.id),
    seq: numeric(row.seq),
    atMs: numeric(row.at_ms),
    key: text(row.key),
    model: text(row.model),
    ending: oneOf(endings, row.ending),
    estimated: row.estimated === 1,
    promptTokens: numeric(row.prompt_tokens),
    cachedTokens: numeric(row.cached_tokens),
    completionTokens: numeric(row.completion_tokens),
    reasoningTokens: numeric(row.reasoning_tokens),
    pricePrompt: numeric(row.price_prompt),
    priceCompletion: numeric(row.price_completion),
    priceCachedPrompt: numeric(row.price_cached_prompt),
    cost: numeric(row.cost),
    base: numeric(row.base),
    overage: numeric(row.overage),
    additional: numeric(row.additional),
    shortfall: numeric(row.shortfall),
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
    row.promptTokens,
    row.cachedTokens,
    row.completionTokens,
    row.reasoningTokens,
    row.pricePrompt,
    row.priceCompletion,
    row.priceCachedPrompt,
    row.cost,
    row.base,
    row.overage,
    row.additional,
    row.shortfall,
  ];
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
    account: text(row.account),
    id: text(row.id),
    hash: text(row.hash),
    name: textOrNull(row.name),
    lastFour: text(row.last_four),
    models: modelsOf(row.models),
    requestsPerMinute: numericOrNull(row.requests_per_minute),
    tokensPerMinute: numericOrNull(row.tokens_per_minute),
    concurrent: numericOrNull(row.concurrent),
    createdMs: numeric(row.created_ms),
    expiresMs: numericOrNull(row.expires_ms),
    revokedMs: numericOrNull(row.revoked_ms),
    lastUsedMs: numericOrNull(row.last_used_ms),
    requestsTatMs: numeric(row.requests_tat_ms),
    tokensTatMs: numeric(row.tokens_tat_ms),
    holds: numeric(row.holds),
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
