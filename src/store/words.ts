/**
 * The words of names, addresses and ids, in lower case and without accents: `Müller-Lüdenscheidt`
 * has `muller` and `ludenscheidt`. The program writes them into the column `words` of a row, so
 * that both databases find the same rows.
 */

/** Letters that Unicode does not take apart. */
const plainLetters: Readonly<Record<string, string>> = {
  ß: "ss",
  æ: "ae",
  œ: "oe",
  ø: "o",
  đ: "d",
  ð: "d",
  ł: "l",
  ħ: "h",
  ı: "i",
  þ: "th",
};

/** A sign of a script without spaces is a word. */
const ownWord = /[\p{Ideographic}\p{Script=Hiragana}\p{Script=Katakana}]/gu;

export function wordsIn(text: string): string[] {
  const plain = text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/\p{M}/gu, "")
    .replace(/[ßæœøđðłħıþ]/g, (letter) => plainLetters[letter] ?? letter)
    .replace(ownWord, " $& ");
  return plain.match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** Returns the cell of these texts: each word after a space. */
export function wordsCell(...texts: readonly (string | null)[]): string {
  return texts
    .flatMap((text) => wordsIn(text ?? ""))
    .map((word) => ` ${word}`)
    .join("");
}
