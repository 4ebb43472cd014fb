/**
 * Receipts as CSV (RFC 4180): a line of field names, as in the JSON, and a line for each receipt.
 */
import type { UsageRow } from "../ledger/rows.ts";
import { usageObject } from "./operator-objects.ts";

/** Yields the line of names, even if there are no receipts, and then a text for each page. */
export async function* usageCsv(
  pages: AsyncIterable<readonly UsageRow[]>,
): AsyncGenerator<string, void, undefined> {
  yield lineOf(Object.keys(usageObject.schema.properties));
  for await (const rows of pages) {
    yield rows.map((row) => lineOf(Object.values(usageObject.of(row)).map(textOf))).join("");
  }
}

function lineOf(fields: readonly string[]): string {
  return `${fields.map(fieldOf).join(",")}\r\n`;
}

/**
 * Puts an apostrophe before a text that a spreadsheet would run as a formula. Inkwell gives out no
 * such name, but the database may contain names from elsewhere.
 */
function textOf(value: unknown): string {
  return typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : String(value);
}

function fieldOf(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
