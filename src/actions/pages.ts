/**
 * Pages of lists: `?limit&after` in, `{ data, next }` out. `next` is null on the last page and
 * only there.
 */
import Type, { type TSchema } from "typebox";
import { closed, orNull } from "../accounts/json-objects.ts";
import { invalidValue } from "../accounts/refusals.ts";
import { rowsDefault } from "./page-fields.ts";

export interface Page<Row> {
  data: Row[];
  /** The cursor of the next page; null on the last one. */
  next: string | null;
}

export function pageSchema<S extends TSchema>(item: S) {
  return closed({ data: Type.Array(item), next: orNull(Type.String({ description: "a cursor" })) });
}

/** Reads one row more than the page shows, to know whether another page follows. */
export async function pageOf<Row, Shown>(
  limit: number | undefined,
  read: (rows: number) => Promise<readonly Row[]>,
  show: (row: Row) => Shown,
  cursorOf: (row: Row) => string,
): Promise<Page<Shown>> {
  const size = limit ?? rowsDefault;
  const rows = await read(size + 1);
  const shown = rows.slice(0, size);
  const last = rows.length > size ? shown.at(-1) : undefined;
  return { data: shown.map(show), next: last === undefined ? null : cursorOf(last) };
}

/** Pages through a list in memory. The cursor is the id of a row. */
export async function pageIn<Row extends { id: string }, Shown>(
  rows: readonly Row[],
  { limit, after }: { limit?: number | undefined; after?: string | undefined },
  show: (row: Row) => Shown,
): Promise<Page<Shown>> {
  const last = after === undefined ? -1 : rows.findIndex(({ id }) => id === after);
  if (after !== undefined && last === -1) throw wrongCursor();
  const read = async (count: number) => rows.slice(last + 1, last + 1 + count);
  return pageOf(limit, read, show, ({ id }) => id);
}

/** Returns the cursor of a list over several accounts. Account names have no colon. */
export function placeCursor(account: string, rest: string | number): string {
  return `${account}:${rest}`;
}

export function placeIn(cursor: string | undefined): { account: string; rest: string } | undefined {
  if (cursor === undefined) return undefined;
  const [, account, rest] = /^([^:]+):(.+)$/.exec(cursor) ?? [];
  if (account === undefined || rest === undefined) throw wrongCursor();
  return { account, rest };
}

export function seqIn(cursor: string): number {
  if (!/^\d{1,16}$/.test(cursor)) throw wrongCursor();
  return Number(cursor);
}

export function wrongCursor() {
  return invalidValue("after", "after must be the `next` of the page before, unchanged.");
}

/** Reads the cursor of a list in the order of journal numbers. */
export function afterSeqIn(cursor: string | undefined): number | undefined {
  return cursor === undefined ? undefined : seqIn(cursor);
}
