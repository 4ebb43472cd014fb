/**
 * Patterns of texts that operators choose: names of accounts and plans, labels of keys, notes in
 * the journal.
 */

/** For accounts and plans. Names are plain because paths, files and shells use them. */
export const namePattern = /^[a-z0-9][a-z0-9._-]{0,63}$/;
export const nameRule =
  "1 to 64 characters: lower-case letters, digits, dots, dashes and underscores, the first a letter or a digit";

/** For payment ids, operation ids and reasons, which the journal keeps. */
export const notePattern = plainText(200);
export const noteRule = "a text of 1 to 200 characters on one line";

/** For labels of keys. */
export const labelPattern = plainText(64);
export const labelRule = "a text of 1 to 64 characters on one line";

/**
 * Not blank, without control characters, and without lone surrogates, which no database returns
 * unchanged.
 */
function plainText(charactersMax: number): RegExp {
  return new RegExp(`^(?=.*\\S)[^\\p{Cc}\\p{Cs}]{1,${charactersMax}}$`, "u");
}
