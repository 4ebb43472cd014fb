/** Settings that a configuration of an earlier state may have, and what takes their place. */

/** By path, with `*` for a name that the operator chooses. */
const removed: Readonly<Record<string, string>> = {};

/** Returns the sentence about a setting that was removed. */
export function removedSetting(path: string): string | undefined {
  const match = Object.entries(removed).find(([pattern]) => {
    const parts = pattern.split(".");
    const named = path.split(".");
    return parts.length === named.length && parts.every((part, at) => part === "*" || part === named[at]);
  });
  return match?.[1];
}
