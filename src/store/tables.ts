/**
 * Describes each table of the ledger once, for both stores: its columns, their types, and the
 * conversions between a row and the cells of a database.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws. Only an account is read with amounts beyond 2^53, and the kernel then reports the
 * damage.
 */
import type { AcceptedClock } from "../ledger/clock.ts";
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
} from "../ledger/rows.ts";
import type { ClockRow } from "./clock.ts";

/**
 * `?` allows null. A list stands for text that is one of its values. SQLite keeps booleans as 0
 * and 1.
 */
type ColumnType =
  | "text"
  | "text?"
  | "integer"
  | "integer?"
  | "real"
  | "boolean"
  | "texts"
  | readonly string[];

export interface Column {
  /** The field in snake case. */
  readonly name: string;
  readonly field: string;
  readonly table: string;
  readonly type: ColumnType;
}

/** A cell as both databases accept it. */
export type Value = string | number | null;

export interface Table<R> {
  readonly name: string;
  readonly columns: readonly Column[];
  /** The columns for `select`, each after the alias `of`. */
  list(of?: string): string;
  /** Reads the row that begins at cell `from`, by default the first. */
  rowOf(cells: readonly unknown[], from?: number): R;
  /** The cells in the order of the columns. `listOf` writes a list of texts. */
  valuesOf(row: R, listOf: (texts: readonly string[]) => string): Value[];
}

/**
 * Compiles the two conversions from the description, because they run for every row of a commit.
 * The compiled literals take 20 to 50 ns for a row; a loop over the columns takes 200 to 400 ns
 * (docs/decisions/0033).
 */
function tableOf<R extends object>(name: string, types: Record<keyof R & string, ColumnType>): Table<R> {
  const columns = Object.entries<ColumnType>(types).map(([field, type]) => ({
    name: field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    field,
    table: name,
    type,
  }));
  const reads = columns.map(
    ({ field, type }, n) => `${field}: read["${decoderOf(type)}"](cells[from + ${n}], columns[${n}])`,
  );
  const writes = columns.map(({ field, type }) => {
    if (type === "boolean") return `row.${field} ? 1 : 0`;
    return type === "texts" ? `listOf(row.${field})` : `row.${field}`;
  });
  return {
    name,
    columns,
    list: (of) =>
      columns.map((column) => (of === undefined ? column.name : `${of}.${column.name}`)).join(", "),
    rowOf: new Function("read", "columns", `return (cells, from = 0) => ({ ${reads.join(", ")} })`)(
      decoders,
      columns,
    ),
    valuesOf: new Function(`return (row, listOf) => [${writes.join(", ")}]`)(),
  };
}

const decoders = {
  text(cell: unknown, column: Column): string {
    if (typeof cell !== "string") throw misread(cell, column);
    return cell;
  },
  "text?": (cell: unknown, column: Column) => (cell === null ? null : decoders.text(cell, column)),
  /** The database keeps fractions out of its integer columns. */
  number(cell: unknown, column: Column): number {
    if (typeof cell !== "number") throw misread(cell, column);
    return cell;
  },
  "number?": (cell: unknown, column: Column) => (cell === null ? null : decoders.number(cell, column)),
  boolean(cell: unknown, column: Column): boolean {
    if (typeof cell !== "boolean" && cell !== 0 && cell !== 1) throw misread(cell, column);
    return cell === true || cell === 1;
  },
  /** An array, or the JSON of one. */
  texts(cell: unknown, column: Column): string[] {
    const texts: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
    if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string"))
      throw misread(cell, column);
    return texts;
  },
  oneOf(cell: unknown, column: Column): string {
    if (typeof cell !== "string" || !column.type.includes(cell)) throw misread(cell, column);
    return cell;
  },
};

function decoderOf(type: ColumnType): keyof typeof decoders {
  switch (type) {
    case "integer":
    case "real":
      return "number";
    case "integer?":
      return "number?";
    case "text":
    case "text?":
    case "boolean":
    case "texts":
      return type;
    default:
      return "oneOf";
  }
}

function misread(cell: unknown, { table, field }: Column): Error {
  return new Error(`the database holds ${String(cell)} where ${field} of ${table} should be`);
}

export const accountTable = tableOf<AccountRow>("account", {
  id: "text",
  plan: "text",
  seq: "integer",
  createdMs: "integer",
  base: "integer",
  baseCap: "integer",
  baseAnchorMs: "integer",
  baseStartsMs: "integer",
  baseEndsMs: "integer",
  overage: "integer",
  overageCap: "integer",
  overageAnchorMs: "integer",
  overageStartsMs: "integer",
  overageEndsMs: "integer",
  additional: "integer",
  heldBase: "integer",
  heldOverage: "integer",
  heldAdditional: "integer",
  holds: "integer",
  requestsTatMs: "real",
  tokensTatMs: "real",
});

/** Reads amounts beyond 2^53 as inexact numbers, which no check of the ledger accepts. */
export function accountOf(cells: readonly unknown[]): AccountRow {
  return accountTable.rowOf(cells.map((cell) => (typeof cell === "bigint" ? Number(cell) : cell)));
}

/** Tokens and prices of a request: part of its hold and of its receipt. */
const metered = {
  promptTokens: "integer",
  cachedTokens: "integer",
  completionTokens: "integer",
  reasoningTokens: "integer",
  pricePrompt: "integer",
  priceCompletion: "integer",
  priceCachedPrompt: "integer",
} as const satisfies Record<keyof (TokenCounts & RowPrice), ColumnType>;

export const holdTable = tableOf<HoldRow>("hold", {
  account: "text",
  id: "text",
  key: "text",
  model: "text",
  createdMs: "integer",
  expiresMs: "integer",
  base: "integer",
  overage: "integer",
  additional: "integer",
  baseStartsMs: "integer",
  overageStartsMs: "integer",
  basePast: "integer",
  overagePast: "integer",
  meteredTokens: "integer",
  ...metered,
});

/** Identifies a hold, for deletion. */
export const holdKeyTable = tableOf<Pick<HoldRow, "account" | "id">>("hold", { account: "text", id: "text" });

export const journalTable = tableOf<JournalRow>("journal", {
  account: "text",
  seq: "integer",
  atMs: "integer",
  kind: journalKinds,
  op: "text",
  note: "text?",
  baseDelta: "integer",
  overageDelta: "integer",
  additionalDelta: "integer",
  baseAfter: "integer",
  overageAfter: "integer",
  additionalAfter: "integer",
});

export const usageTable = tableOf<UsageRow>("usage", {
  account: "text",
  id: "text",
  seq: "integer",
  atMs: "integer",
  key: "text",
  model: "text",
  ending: endings,
  estimated: "boolean",
  ...metered,
  cost: "integer",
  base: "integer",
  overage: "integer",
  additional: "integer",
  shortfall: "integer",
});

/** The part of a key that commits change, after the two columns that identify it. */
const keyState = {
  account: "text",
  id: "text",
  requestsTatMs: "real",
  tokensTatMs: "real",
  holds: "integer",
  lastUsedMs: "integer?",
} as const;

export const keyStateTable = tableOf<Pick<KeyRow, keyof typeof keyState>>("api_key", keyState);

export const keyTable = tableOf<KeyRow>("api_key", {
  ...keyState,
  hash: "text",
  name: "text?",
  lastFour: "text",
  models: "texts",
  requestsPerMinute: "integer?",
  tokensPerMinute: "integer?",
  concurrent: "integer?",
  createdMs: "integer",
  expiresMs: "integer?",
  revokedMs: "integer?",
});

export const clockTable = tableOf<ClockRow>("clock", {
  trustedMs: "integer",
  clockMs: "integer",
  isTrusted: "boolean",
  bootId: "text?",
  bootMs: "integer?",
  accepts: "integer",
});

export const clockAcceptTable = tableOf<AcceptedClock>("clock_accept", {
  number: "integer",
  by: "text",
  trustedMs: "integer",
  clockMs: "integer",
});
