/** The recorded audit in the operator API, the metrics and the overview. */
import assert from "node:assert/strict";
import { type Fields, fieldsOf, operatorTests, type TestOperator } from "../fixtures/operator.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();
const checkedMs = Date.UTC(2027, 0, 1);
const sound = { checkedMs, journalRows: 5, broken: [] };
const unsound = {
  checkedMs: checkedMs + 86_400_000,
  journalRows: 7,
  broken: [
    { invariant: "the journal is the balance", rows: [{ account: "test", base: 5, note: null }] },
    { invariant: "every grant has its entry", rows: [] },
  ],
};

/** What needs attention in an overview that has read the database. */
async function attentionIn(operator: TestOperator): Promise<unknown> {
  let overview: Fields = {};
  await until("the database is read", async () => {
    overview = (await operator.get("/admin/overview")).body;
    return overview.usage !== null;
  });
  return overview.attention;
}

operatorTest("shows no audit before the first one was recorded", async (operator, service) => {
  assert.deepEqual((await operator.get("/admin/audit")).body, { last: null });
  const text = await service.metrics.text();
  assert.match(text, /^inkwell_audit_problems nan$/im);
  assert.match(text, /^inkwell_audit_timestamp_seconds nan$/im);
});

operatorTest("shows the last audit", async (operator, service) => {
  await service.store.recordAudit(sound);
  assert.deepEqual((await operator.get("/admin/audit")).body.last, {
    sound: true,
    checked_at: "2027-01-01T00:00:00.000Z",
    journal_entries: 5,
    problems: 0,
    first_problem: null,
  });
  assert.match(await service.metrics.text(), /^inkwell_audit_problems 0$/m);
  assert.deepEqual(await attentionIn(operator), []);
});

operatorTest(
  "shows the first problem of an unsound ledger, and the overview warns",
  async (operator, service) => {
    await service.store.recordAudit(sound);
    await service.store.recordAudit(unsound);
    assert.deepEqual((await operator.get("/admin/audit")).body.last, {
      sound: false,
      checked_at: "2027-01-02T00:00:00.000Z",
      journal_entries: 7,
      problems: 2,
      first_problem: "the journal is the balance",
    });
    assert.deepEqual(await attentionIn(operator), [
      { text: "The last recorded audit found broken rules.", page: "health" },
    ]);
  },
);

operatorTest("the metrics keep the last audit while the store does not respond", async (_, service) => {
  await service.store.recordAudit(unsound);
  const told = async () => (await service.metrics.text()).match(/^inkwell_audit_.+$/gm);
  const expected = ["inkwell_audit_problems 2", "inkwell_audit_timestamp_seconds 1798848000"];
  assert.deepEqual(await told(), expected);
  service.store.lastAudit = () => Promise.reject(new Error("no such disk"));
  assert.deepEqual(await told(), expected);
});

operatorTest("starts no audit", async (operator) => {
  const { status, body } = await operator.post("/admin/audit", undefined);
  assert.deepEqual([status, fieldsOf(body.error).code], [405, "method_not_allowed"]);
});
