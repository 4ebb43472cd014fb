/**
 * Text from elsewhere (an upstream, a model, an archive, a person) for logs, terminals and pages.
 *
 * Guarantees: the result can neither command a terminal nor look like another text. Control
 * characters, invisible characters and characters that change the direction of text are written as
 * `\u202e`. These escapes are also valid in JSON, so a serialized line keeps its meaning.
 */

/** A joiner behind a letter beyond Latin, or in an emoji, changes its shape and stays. */
const hidden =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}](?<![\u0300-\u1fff\u2070-\u{3ffff}](?:\u200c|\u200d|\ufe0f))/gu;

/** Prose also has line ends and tabs. A streamed text may begin with a joiner. */
const hiddenInProse = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}](?<!\n|\t|\u200c|\u200d|\ufe0f)/gu;

/** For one line: a message, a name, a cell of a table. Line ends are escaped too. */
export function visibleLine(text: string): string {
  return text.replace(hidden, escaped);
}

/** For text of several lines, or a part of a streamed text. */
export function visibleText(text: string): string {
  return text.replace(hiddenInProse, escaped);
}

function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}
