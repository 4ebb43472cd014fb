/**
 * Receipts as CSV: a line of field names, as in the JSON, and a line for each receipt.
 */
import type { Receipt } from "../store/store.ts";
import { csvOf } from "./csv.ts";
import { usageObject } from "./operator-objects.ts";

/** Yields the line of names, even if there are no receipts, and then a text for each page. */
export async function* usageCsv(
  pages: AsyncIterable<readonly Receipt[]>,
): AsyncGenerator<string, void, undefined> {
  yield csvOf([Object.keys(usageObject.schema.properties)]);
  for await (const rows of pages) yield csvOf(rows.map((row) => Object.values(usageObject.of(row))));
}
