/** CSV (RFC 4180). Pages bundle this file. */

/** Formats lines of fields. Null is an empty field. */
export function csvOf(lines: readonly (readonly unknown[])[]): string {
  return lines.map((fields) => `${fields.map((value) => fieldOf(textOf(value))).join(",")}\r\n`).join("");
}

/**
 * Puts an apostrophe before a text that a spreadsheet would run as a formula. Inkwell gives out no
 * such name, but the database may contain names from elsewhere.
 */
function textOf(value: unknown): string {
  if (value === null) return "";
  return typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : String(value);
}

function fieldOf(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
