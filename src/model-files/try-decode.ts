/** The text that `%XX` in an address stands for; undefined where a `%` is none of those. */
export function tryDecode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
