/** The log in the operator API: each change as a sentence, with present names. */
import assert from "node:assert/strict";
import { type Fields, operatorTests, type TestOperator } from "../fixtures/operator.ts";

const operatorTest = operatorTests();

async function sentencesOf(operator: TestOperator, path: string): Promise<unknown[]> {
  return (await operator.all(path, 100)).map(({ sentence }) => sentence);
}

operatorTest("a change is a sentence with names, in the log and in the journal", async (operator) => {
  const role = { operation_id: "o1", name: "reports", role: "support" };
  const made = (await operator.post("/admin/operator-keys", role)).body;
  const key = { operation_id: "k1", name: "desk" };
  const { id } = (await operator.post("/admin/accounts/test/keys", key)).body;
  await operator.patch(`/admin/keys/${id}`, { operation_id: "k2", name: "lab" });
  const gift = { operation_id: "g1", credits: 40, reason: "a thank-you" };
  const authorization = `Bearer ${made.key}`;
  const given = await operator.ask("POST", "/admin/accounts/test/adjustments", {
    headers: { authorization },
    body: JSON.stringify(gift),
  });
  assert.equal(given.status, 200, given.text);
  const told = [
    "reports (operator key) gave test 40 credits: a thank-you",
    "The owner changed key lab of test: name: desk → lab",
    "The owner made key lab of test",
  ];
  const log = await sentencesOf(operator, "/admin/log?account=test");
  assert.deepEqual(log.slice(0, 3), told);
  const journal = await sentencesOf(operator, "/admin/accounts/test/journal?order=newest");
  assert.deepEqual(journal.slice(0, 3), told);
  const [first]: Fields[] = await operator.all("/admin/log?kind=operator_key", 100);
  assert.partialDeepStrictEqual(first, {
    by: "owner",
    by_name: null,
    subject: made.id,
    subject_name: "reports",
  });
});
