/** Ids of payments, refunds, operations and other systems. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { idProblem } from "../../src/accounts/value-rules.ts";
import { clearIds, unclearIds } from "../fixtures/unclear-ids.ts";

describe("an id", () => {
  for (const id of clearIds) {
    test(`may be ${id}`, () => {
      assert.equal(idProblem(id), null);
    });
  }

  for (const [what, id, character] of unclearIds) {
    test(`may not have ${what}, and the character is named`, () => {
      assert.ok(idProblem(id)?.includes(character), `${idProblem(id)}`);
    });
  }

  test("is refused with the reason", () => {
    assert.match(idProblem("pi_1 ") ?? "", /begins or ends with white space, U\+0020/);
    assert.match(idProblem("pi_\u200b1") ?? "", /U\+200B, which cannot be told from other characters/);
    assert.match(idProblem("Ru\u0308ck") ?? "", /NFC: it has U\+0075 U\+0308 in place of U\+00FC/);
  });
});
