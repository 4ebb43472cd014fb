/**
 * The ledger's rows as PostgreSQL keeps them: the columns of each table in one order, read as arrays and written as
 * arrays, one for each column. A value of another type than the schema says is a defect and throws.
 *
 * A column is the name of its field in another case. Integers that a number cannot hold exactly are read as bigint,
 * which no row lets pass, except an account's: there they become a number that no check of the ledger lets pass.
 */

import { invariant } from "../../errors.ts";
import type {
  AccountRow,
  HoldRow,
  JournalRow,
  KeyRow,
  RowPrice,
  TokenCounts,
  UsageRow,
} from "../../ledger/rows.ts";

/** As the driver gives it. */
export type Cell = string | number | bigint | boolean | null | readonly (string | null)[];

type ColumnType = "text" | "bigint" | "double precision" | "boolean" | "text[]";
/** Null may stand there. */
type Column = ColumnType | `${ColumnType}?`;

export interface Table<R> {
  readonly name: string;
  readonly columns: readonly string[];
  /** Of a row, in the order of the columns. */
  readonly fields: readonly string[];
  /** The columns, for `select`; `of` stands before each. */
  list(of?: string): string;
  /** `from` unless it is 0: the cell that the row begins at. */
  rowOf(cells: readonly Cell[], from?: number): R;
  /** What `unnest` makes rows of: one array literal for each column. */
  arraysOf(rows: readonly R[]): string[];
  /** `unnest($1::text[], ...)`, for these arrays. */
  readonly unnest: string;
}

function tableOf<R extends object>(name: string, fields: Record<keyof R & string, Column>): Table<R> {
  const described = Object.entries<Column>(fields).map(([field, column]) => ({
    field,
    column: field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    type: column.replace("?", ""),
    nullable: column.endsWith("?"),
  }));
  const columns = described.map(({ column }) => column);
  return {
    name,
    columns,
    fields: described.map(({ field }) => field),
    list: (of) => columns.map((column) => (of === undefined ? column : `${of}.${column}`)).join(", "),
    rowOf(cells, from = 0) {
      const row: Record<string, Cell> = {};
      for (const [index, { field, type, nullable }] of described.entries()) {
        const cell = cells[from + index];
        if (cell === undefined || !(cell === null ? nullable : isOf(type, cell))) {
          throw new Error(`the database holds ${String(cell)} where ${field} of ${name} should be`);
        }
        row[field] = cell;
      }
      // Its fields are exactly those of R, which the type of `fields` makes sure of, and each was checked above.
      return row as R;
    },
    arraysOf(rows) {
      return described.map(({ field, type }) => {
        const cellIn = (row: object) => Reflect.get(row, field);
        const cells = rows.map(cellIn);
        return type === "text" ? textArray(cells) : `{${cells.map((cell) => cell ?? "null").join(",")}}`;
      });
    },
    unnest: `unnest(${described.map(({ type }, index) => `$${index + 1}::${type}[]`).join(", ")})`,
  };
}

function isOf(type: string, cell: Cell): boolean {
  switch (type) {
    case "text":
      return typeof cell === "string";
    case "boolean":
      return typeof cell === "boolean";
    case "text[]":
      return Array.isArray(cell) && cell.every((each) => typeof each === "string");
    default:
      return typeof cell === "number";
  }
}

/** A literal of an array of texts; null stays null. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? "null" : `"${value.replace(/["\\]/g, "\\$&")}"`)).join(",")}}`;
}

export const accountTable = tableOf<AccountRow>("account", {
  id: "text",
  plan: "text",
  seq: "bigint",
  createdMs: "bigint",
  base: "bigint",
  baseCap: "bigint",
  baseAnchorMs: "bigint",
  baseStartsMs: "bigint",
  baseEndsMs: "bigint",
  overage: "bigint",
  overageCap: "bigint",
  overageAnchorMs: "bigint",
  overageStartsMs: "bigint",
  overageEndsMs: "bigint",
  additional: "bigint",
  heldBase: "bigint",
  heldOverage: "bigint",
  heldAdditional: "bigint",
  holds: "bigint",
  requestsTatMs: "double precision",
  tokensTatMs: "double precision",
});

/** Whatever a hand has written into it: the kernel says what is wrong with the account, and nothing of it moves. */
export function accountOf(cells: readonly Cell[]): AccountRow {
  return accountTable.rowOf(cells.map((cell) => (typeof cell === "bigint" ? Number(cell) : cell)));
}

/** What was made for a request, and its prices: of a hold and of its receipt. */
const metered = {
  promptTokens: "bigint",
  cachedTokens: "bigint",
  completionTokens: "bigint",
  reasoningTokens: "bigint",
  pricePrompt: "bigint",
  priceCompletion: "bigint",
  priceCachedPrompt: "bigint",
} satisfies Record<keyof (TokenCounts & RowPrice), Column>;

export const holdTable = tableOf<HoldRow>("hold", {
  account: "text",
  id: "text",
  key: "text",
  model: "text",
  createdMs: "bigint",
  expiresMs: "bigint",
  base: "bigint",
  overage: "bigint",
  additional: "bigint",
  baseStartsMs: "bigint",
  overageStartsMs: "bigint",
  basePast: "bigint",
  overagePast: "bigint",
  meteredTokens: "bigint",
  ...metered,
});

export const journalTable = tableOf<JournalRow>("journal", {
  account: "text",
  seq: "bigint",
  atMs: "bigint",
  kind: "text",
  op: "text",
  note: "text?",
  baseDelta: "bigint",
  overageDelta: "bigint",
  additionalDelta: "bigint",
  baseAfter: "bigint",
  overageAfter: "bigint",
  additionalAfter: "bigint",
});

export const usageTable = tableOf<UsageRow>("usage", {
  account: "text",
  id: "text",
  seq: "bigint",
  atMs: "bigint",
  key: "text",
  model: "text",
  ending: "text",
  estimated: "boolean",
  ...metered,
  cost: "bigint",
  base: "bigint",
  overage: "bigint",
  additional: "bigint",
  shortfall: "bigint",
});

export const keyTable = tableOf<KeyRow>("api_key", {
  account: "text",
  id: "text",
  hash: "text",
  name: "text?",
  lastFour: "text",
  models: "text[]",
  requestsPerMinute: "bigint?",
  tokensPerMinute: "bigint?",
  concurrent: "bigint?",
  createdMs: "bigint",
  expiresMs: "bigint?",
  revokedMs: "bigint?",
  lastUsedMs: "bigint?",
  requestsTatMs: "double precision",
  tokensTatMs: "double precision",
  holds: "bigint",
});

/** The one value of a row that has one. */
export function onlyCell(rows: readonly (readonly Cell[])[]): Cell {
  const cell = rows[0]?.[0];
  invariant(cell !== undefined, "the statement answers with a row");
  return cell;
}
