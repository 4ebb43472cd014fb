/** Ids of payments, refunds, operations and other systems. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { idProblem } from "../../src/accounts/fields.ts";

describe("an id", () => {
  for (const id of ["pi_1", "inv 2041", "Rechnung-Ä-7", "支払い1", "a:b/c#d"]) {
    test(`may be ${id}`, () => {
      assert.equal(idProblem(id), null);
    });
  }

  const refused: [id: string, named: RegExp][] = [
    ["pi_1 ", /begins or ends with white space, U\+0020/],
    ["\tpi_1", /begins or ends with white space, U\+0009/],
    ["pi\u00a01", /U\+00A0/],
    ["pi\u2009_1", /U\+2009/],
    ["pi_\u200b1", /U\+200B/],
    ["pi_1\ufeff", /white space, U\+FEFF/],
    ["pi_\u00ad1", /U\+00AD/],
    ["pi_\u202e1", /U\+202E/],
    ["pi_\u0000", /U\+0000/],
    ["pi_\u3164", /U\+3164/],
    ["Ru\u0308ckzahlung", /NFC: it has U\+0075 U\+0308 in place of U\+00FC/],
  ];
  for (const [id, named] of refused) {
    test(`may not be ${JSON.stringify(id)}, and the character is named`, () => {
      assert.match(idProblem(id) ?? "", named);
    });
  }
});
