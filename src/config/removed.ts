/** Settings that a configuration of an earlier state may have, and what takes their place. */

/** By path, with `*` for a name that the operator chooses. Such a name may have dots. */
const removed: Readonly<Record<string, string>> = {
  "models.*.tokenizer": "servers that can count are asked, and other prompts are held by their bytes",
};

/** Returns the sentence about a setting that was removed. */
export function removedSetting(path: string): string | undefined {
  const match = Object.entries(removed).find(([pattern]) => {
    const [before = "", after] = pattern.split("*");
    return after === undefined ? path === before : path.startsWith(before) && path.endsWith(after);
  });
  return match?.[1];
}
