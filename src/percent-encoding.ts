/** Text in URLs and headers whose bytes are written as `%XX`. */

/** Decodes `%XX`. Undefined if a `%` begins no valid escape. */
export function tryDecode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
