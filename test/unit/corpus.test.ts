/**
 * Seeds of the fuzzer, and inputs that failed once, are accepted or refused as documented.
 * `npm run fuzz -- TARGET` goes on from them.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { corpusFolder, outcomeOf, targets } from "../fixtures/fuzz-targets.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell-corpus-"));
after(() => rmSync(folder, { recursive: true }));

test("every target of the fuzzer has a corpus", () => {
  assert.deepEqual(readdirSync(corpusFolder).sort(), Object.keys(targets).sort());
});

for (const [name, target] of Object.entries(targets)) {
  test(`reads the corpus of ${name}`, async () => {
    const outcomes = new Map<string, string>();
    for (const file of readdirSync(path.join(corpusFolder, name))) {
      const outcome = await outcomeOf(target, path.join(corpusFolder, name, file), folder);
      outcomes.set(file, outcome);
    }
    // A reader that refuses everything finds nothing.
    const isAccepted = /^(?:accepted|rendered|taken true)/;
    assert.ok(
      [...outcomes.values()].some((outcome) => isAccepted.test(outcome)),
      `${[...outcomes]}`,
    );
  });
}
