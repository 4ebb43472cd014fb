/**
 * The ledger's rows as SQLite keeps them: the columns of each table, in one order for reading and writing, and the
 * two directions. A value of another type than the schema says is a defect and throws; integers beyond 2^53 are
 * refused by the driver.
 */
import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import type {
  AccountRow,
  Ending,
  HoldRow,
  JournalKind,
  JournalRow,
  KeyRow,
  UsageRow,
} from "../credits/rows.ts";
import { invariant } from "../errors.ts";

/** The cells of a row, in the order of its columns below. */
export type Row = readonly SQLOutputValue[];

/** A statement that returns rows as arrays: half the time of objects with a property for each column. */
export class Query {
  readonly #statement: StatementSync;

  constructor(db: DatabaseSync, sql: string) {
    this.#statement = db.prepare(sql);
    this.#statement.setReturnArrays(true);
  }

  get(...values: SQLInputValue[]): Row | undefined {
    const row = this.#statement.get(...values);
    return row === undefined ? undefined : cellsOf(row);
  }

  all(...values: SQLInputValue[]): Row[] {
    return this.#statement.all(...values).map(cellsOf);
  }

  /** Integers of any size, as bigints. */
  getExact(...values: SQLInputValue[]): Row | undefined {
    this.#statement.setReadBigInts(true);
    try {
      return this.get(...values);
    } finally {
      this.#statement.setReadBigInts(false);
    }
  }
}

function cellsOf(row: unknown): Row {
  invariant(Array.isArray(row), "the driver returns rows as arrays");
  return row;
}

/** All columns of a table, in the order in which its rows are read. */
export function select(table: string, columns: readonly string[]): string {
  return `select ${columns.join(", ")} from ${table}`;
}

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
    promptTokens: numeric(row[14]),
    cachedTokens: numeric(row[15]),
    completionTokens: numeric(row[16]),
    reasoningTokens: numeric(row[17]),
    pricePrompt: numeric(row[18]),
    priceCompletion: numeric(row[19]),
    priceCachedPrompt: numeric(row[20]),
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
    account: text(row[0]),
    seq: numeric(row[1]),
    atMs: numeric(row[2]),
    kind: oneOf(kinds, row[3]),
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
    account: text(row[0]),
    id: text(row[1]),
    seq: numeric(row[2]),
    atMs: numeric(row[3]),
    key: text(row[4]),
    model: text(row[5]),
    ending: oneOf(endings, row[6]),
    estimated: row[7] === 1,
    promptTokens: numeric(row[8]),
    cachedTokens: numeric(row[9]),
    completionTokens: numeric(row[10]),
    reasoningTokens: numeric(row[11]),
    pricePrompt: numeric(row[12]),
    priceCompletion: numeric(row[13]),
    priceCachedPrompt: numeric(row[14]),
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
