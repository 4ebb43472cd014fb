/** Ids that make changes safe to repeat. A form makes its id when it opens. */

/** Returns an id with 96 random bits. `kind` makes it readable in the journal. */
export function newOperationId(kind: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `${kind}-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
