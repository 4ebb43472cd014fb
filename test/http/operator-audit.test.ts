/** The audit as a job of the operator API: it runs in the background, and its result is kept. */
import assert from "node:assert/strict";
import { fieldsOf, operatorTests, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();
const audit = "/admin/audit";

async function ended(operator: TestOperator): Promise<void> {
  await until("the audit ends", async () => (await operator.get(audit)).body.running === null);
}

operatorTest("reports no audit before the first one", async (operator) => {
  assert.deepEqual((await operator.get(audit)).body, { running: null, last: null, failed: null });
});

operatorTest("runs an audit in the background and keeps its result", async (operator, service) => {
  await (await service.chat()).text();
  const begun = await operator.post(audit, undefined);
  assert.equal(begun.status, 202);
  assert.equal(typeof fieldsOf(begun.body.running).started_at, "string");
  await ended(operator);
  const { last, failed } = (await operator.get(audit)).body;
  const { sound, broken, journal_entries } = fieldsOf(last);
  assert.deepEqual([sound, broken, journal_entries, failed], [true, [], 5, null]);
  assert.match(await service.metrics.text(), /^inkwell_audit_problems 0$/m);
});

operatorTest("keeps the rows of a broken ledger, for a later start too", async (operator, service) => {
  const row = { account: "test", base: 5, note: null };
  const broken = [{ invariant: "the journal is the balance", rows: [row] }];
  service.store.audit = async () => ({ checkedMs: Date.UTC(2027, 0, 1), journalRows: 3, broken });
  await operator.post(audit, undefined);
  await ended(operator);
  await using next = await startOperator(service);
  const { last } = (await next.get(audit)).body;
  const { started_at: _started, ended_at: _ended, ...report } = fieldsOf(last);
  assert.deepEqual(report, {
    sound: false,
    checked_at: "2027-01-01T00:00:00.000Z",
    journal_entries: 3,
    broken,
  });
  assert.match(await service.metrics.text(), /^inkwell_audit_problems 1$/m);
});

operatorTest("a second request while an audit runs starts no other one", async (operator, service) => {
  const gate = Promise.withResolvers<void>();
  const { audit: read } = service.store;
  let audits = 0;
  service.store.audit = async () => {
    audits += 1;
    await gate.promise;
    return await read();
  };
  const first = await operator.post(audit, undefined);
  const second = await operator.post(audit, undefined);
  assert.deepEqual(second.body, first.body);
  gate.resolve();
  await ended(operator);
  assert.equal(audits, 1);
});

operatorTest("reports an audit that could not read all rows", async (operator, service) => {
  const { audit: read } = service.store;
  await operator.post(audit, undefined);
  await ended(operator);
  service.store.audit = () => Promise.reject(new Error("the disk is gone"));
  await operator.post(audit, undefined);
  await ended(operator);
  const { last, failed } = (await operator.get(audit)).body;
  assert.equal(fieldsOf(last).sound, true);
  assert.equal(fieldsOf(failed).reason, "the disk is gone");
  service.store.audit = read;
  await operator.post(audit, undefined);
  await ended(operator);
  assert.equal((await operator.get(audit)).body.failed, null);
});
