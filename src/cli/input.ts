/** Reads one line from stdin, for values that must not be arguments, such as secrets. */
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

/** Returns the first line without the space around it, or an empty text. */
export async function firstLine(input: Readable): Promise<string> {
  using reader = createInterface({ input });
  for await (const line of reader) return line.trim();
  return "";
}
