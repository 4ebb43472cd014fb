/** Lists by the page: `?limit&after` in, `{ data, next }` out. `next` is null on the last page and only there. */
import { invalidValue } from "./refusals.ts";
import { listRowsDefault } from "./schemas.ts";

/** `read` is asked for one row more than is shown, by which it is known whether there is another page. */
export async function pageOf<Row, Shown>(
  limit: number | undefined,
  read: (rows: number) => Promise<readonly Row[]>,
  show: (row: Row) => Shown,
  cursorOf: (row: Row) => string,
): Promise<{ data: Shown[]; next: string | null }> {
  const size = limit ?? listRowsDefault;
  const rows = await read(size + 1);
  const shown = rows.slice(0, size);
  const last = rows.length > size ? shown.at(-1) : undefined;
  return { data: shown.map(show), next: last === undefined ? null : cursorOf(last) };
}

/** The last place of a page of what many accounts have; names of accounts have no colon. */
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
  if (!/^\d{1,15}$/.test(cursor)) throw wrongCursor();
  return Number(cursor);
}

export function wrongCursor() {
  return invalidValue("after", "after must be the `next` of the page before, as it was given.");
}
