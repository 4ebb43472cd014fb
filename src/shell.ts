/** Words of a command line. Pages bundle this file. */

/** Returns a text as one word of a shell. */
export function shellWordOf(text: string): string {
  return /^[\w./:@+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
