/** Settings that a configuration of an earlier state may have, and what takes their place. */

/** By path, with `*` for a name that the operator chooses. */
const removed: Readonly<Record<string, string>> = {
  "models.*.tokenizer": "servers that can count are asked, and other prompts are held by their bytes",
};

/** Returns the sentence about a setting that was removed. */
export function removedSetting(names: readonly string[]): string | undefined {
  const match = Object.entries(removed).find(([pattern]) => {
    const parts = pattern.split(".");
    return parts.length === names.length && parts.every((part, n) => part === "*" || part === names[n]);
  });
  return match?.[1];
}
