/**
 * Stop sequences that almost match a repeating text, which is the worst case for their search: the
 * time per character for sequences of several lengths, and the longest time of one call. The floor
 * is the same text with short sequences.
 *
 *   npm run bench -- stops [--characters 1000000]
 */

import { StopFinder } from "../src/engines/text/stop-finder.ts";
import { optionsOf } from "./options.ts";

/** In characters; the last is what fits four times into a body of 4 MiB. */
const lengths = [4, 1_000, 77_000, 1_000_000];

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    characters: "1000000",
  });
  const characters = Number(values.characters);
  // Compiled code is measured, not its compilation.
  measure(1_000, characters);
  const floorNs = measure(lengths[0] ?? 1, characters).perCharacterNs;
  const rows = lengths.map((length) => {
    const { perCharacterNs, longestMs } = measure(length, characters);
    return {
      "characters of each of 4 sequences": length,
      "ns per character": perCharacterNs.toFixed(0),
      "of short sequences": (perCharacterNs / floorNs).toFixed(2),
      "longest call": `${longestMs.toFixed(1)} ms`,
    };
  });
  console.log(`${characters} characters of one repeated letter, one in each segment`);
  console.table(rows);
}

function measure(length: number, characters: number): { perCharacterNs: number; longestMs: number } {
  const finder = new StopFinder(["b", "c", "d", "e"].map((end) => "a".repeat(length - 1) + end));
  let longestMs = 0;
  const startedMs = performance.now();
  const push = (text: string): void => {
    const calledMs = performance.now();
    finder.push({ text, tokens: 1, logprobs: [] });
    longestMs = Math.max(longestMs, performance.now() - calledMs);
  };
  for (let made = 1; made < characters; made++) push("a");
  // Ends the longest match, so that all withheld text is released at once.
  push("x");
  return { perCharacterNs: ((performance.now() - startedMs) * 1e6) / characters, longestMs };
}
