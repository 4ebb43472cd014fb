/** Receipts as CSV (RFC 4180): one line each under one line of names, which are those of the JSON. */
import type { UsageRow } from "../../ledger/rows.ts";
import { usageObject } from "./objects.ts";
import { usageRecord } from "./schemas.ts";

/** The text in pieces, one for each page of rows; the names come first, even where there is nothing else. */
export async function* usageCsv(
  pages: AsyncIterable<readonly UsageRow[]>,
): AsyncGenerator<string, void, undefined> {
  const names = Object.keys(usageRecord.properties);
  yield lineOf(names);
  for await (const rows of pages) {
    yield rows
      .map((row) => {
        const fields = new Map<string, unknown>(Object.entries(usageObject(row)));
        return lineOf(names.map((name) => textOf(fields.get(name))));
      })
      .join("");
  }
}

function lineOf(fields: readonly string[]): string {
  return `${fields.map(fieldOf).join(",")}\r\n`;
}

/**
 * A text that a spreadsheet would take for a formula is made one that it does not, by an apostrophe. No name that
 * Inkwell gives out begins so; what stands in the database need not be of its making.
 */
function textOf(value: unknown): string {
  return typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : String(value);
}

function fieldOf(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
