/**
 * Suggestions for misspelled names: commands, settings, plans and models.
 * A suggestion never changes what is done; it only completes an error message.
 */

/**
 * Returns the message for a name that is not defined: with the closest defined name, or else with
 * all of them.
 */
export function unknownName(kind: string, name: string, defined: readonly string[]): string {
  const near = nearest(name, defined);
  const others = defined.length === 0 ? "There are none." : `Defined: ${defined.join(", ")}.`;
  const help = near === undefined ? others : `Did you mean ${near}?`;
  return `There is no ${kind} ${JSON.stringify(name)}. ${help}`;
}

/** Returns the closest candidate, if it differs in at most two letters of five. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: { candidate: string; distance: number } | undefined;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    const close = distance <= Math.floor(Math.max(word.length, candidate.length) / 2.5);
    if (close && (best === undefined || distance < best.distance)) best = { candidate, distance };
  }
  return best?.candidate;
}

/**
 * Number of letters to insert, drop, change or swap with a neighbour (optimal string alignment).
 */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let least = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (same ? 0 : 1));
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) least = Math.min(least, (beforeLast[j - 2] ?? 0) + 1);
      row.push(least);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
