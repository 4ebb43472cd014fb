/**
 * Columns of tables, and the type of the rows that they make. A row type follows from one
 * description, from which the stores derive their statements too. No code runs here.
 */
import type { Credits, EpochMs, MicroCredits } from "../units.ts";

/** The value of each type of column. */
interface Values {
  text: string;
  integer: number;
  micro: MicroCredits;
  credits: Credits;
  ms: EpochMs;
  /** A time with fractions of a millisecond. */
  real: EpochMs;
  boolean: boolean;
  /** A list in JSON. */
  texts: readonly string[];
}

/**
 * `?` allows null. A list stands for text that is one of its values, and null among them is
 * allowed. `items` are a list of rows in JSON.
 */
export type ColumnType =
  | keyof Values
  | `${Exclude<keyof Values, "real" | "texts">}?`
  | readonly (string | null)[]
  | { readonly items: Columns };

/** The columns of a nested object, after the name of its field. */
export interface Group {
  /** All columns are null if the object is, and the first of them is not null otherwise. */
  readonly isNullable?: boolean;
  readonly columns: Readonly<Record<string, ColumnType>>;
}

/** By the field of the row: the name of its column in camel case. Amounts also end in `Micro`. */
export interface Columns {
  readonly [field: string]: ColumnType | Group;
}

type ValueOf<T> = T extends keyof Values
  ? Values[T]
  : T extends `${infer Type extends keyof Values}?`
    ? Values[Type] | null
    : T extends readonly (infer Value)[]
      ? Value
      : T extends { readonly items: infer Item }
        ? readonly RowOf<Item>[]
        : T extends { readonly columns: infer C; readonly isNullable: true }
          ? RowOf<C> | null
          : T extends { readonly columns: infer C }
            ? RowOf<C>
            : never;

/** The row: `interface HoldRow extends RowOf<typeof holdColumns> {}`. */
export type RowOf<C> = { -readonly [Field in keyof C]: ValueOf<C[Field]> };
