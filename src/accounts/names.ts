/** What operators may write: names of accounts and plans, labels of keys, notes in the journal. Decides form only. */

/** Names of plans and accounts: they stand in addresses, file names and shells, so they are plain. */
export const namePattern = /^[a-z0-9][a-z0-9._-]{0,63}$/;
export const nameRule =
  "1 to 64 characters: lower-case letters, digits, dots, dashes and underscores, the first a letter or a digit";

/** Payment ids, operation ids and reasons: they stand in the journal for ever. */
export const notePattern = plainText(200);
export const noteRule = "a text of 1 to 200 characters on one line";

/** What people call a key. */
export const labelPattern = plainText(64);
export const labelRule = "a text of 1 to 64 characters on one line";

/** Not blank, without control characters, and without halves of characters: no database keeps those as they are. */
function plainText(charactersMax: number): RegExp {
  return new RegExp(`^(?=.*\\S)[^\\p{Cc}\\p{Cs}]{1,${charactersMax}}$`, "u");
}
