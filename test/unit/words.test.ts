/** The words by which accounts, people and keys are found. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { wordsCell, wordsIn } from "../../src/store/words.ts";

test("words have neither accents nor capital letters, in every script and form", () => {
  for (const [text, words] of [
    ["Hans Müller-Lüdenscheidt", "hans muller ludenscheidt"],
    ["Hans Mu\u0308ller", "hans muller"],
    ["ŁUKASZ Żółć, Øre & Straße ẞ", "lukasz zolc ore strasse ss"],
    ["İbrahim Ilıca, Nguyễn Văn", "ibrahim ilica nguyen van"],
    ["Àdá.O'Brien+x@Example.COM", "ada o brien x example com"],
    ["Ελένη Ёлкин", "ελενη елкин"],
    ["田中Taro ﾀﾛｳ", "田 中 taro タ ロ ウ"],
    ["℡ ﬁrst Ⅳ", "tel first iv"],
    [" \t-%_'\\ ", ""],
  ] as const) {
    assert.equal(wordsIn(text).join(" "), words, text);
    assert.equal(wordsIn(words).join(" "), words, "they are their own words");
  }
});

test("a cell has each word after a space", () => {
  assert.equal(wordsCell("Ada Lovelace", null, "CRM-1"), " ada lovelace crm 1");
  assert.equal(wordsCell(null, null), "");
});
