/** What runs now in the operator API, and stopping a request: here and on another node. */
import assert from "node:assert/strict";
import { RequestStops } from "../../src/accounts/request-stops.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { type Fields, fieldsOf, operatorTests, refused, type TestOperator } from "../fixtures/operator.ts";
import { babble, errorOf, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const endless = { script: babble("word ", { tokenDelayMs: 5 }) };
const operatorTest = operatorTests(endless);

/** Starts a streamed answer. Resolves when a token has arrived. */
async function startStream(service: TestService) {
  const answer = await service.chat({ stream: true });
  assert.ok(answer.body);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  await reader.read();
  return { id: answer.headers.get("x-request-id") ?? "", reader };
}

async function textOf(reader: ReadableStreamDefaultReader<string>): Promise<string> {
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return text;
    text += value;
  }
}

async function running(operator: TestOperator, path = "/admin/requests"): Promise<Fields[]> {
  return await operator.all(path, 1);
}

operatorTest("lists the requests that run, with their tokens so far", async (operator, service) => {
  const one = await startStream(service);
  const two = await startStream(service);
  const rows = await running(operator);
  assert.deepEqual(
    rows.map(({ request_id, account, key, model, state, stream }) => [
      request_id,
      account,
      key,
      model,
      state,
      stream,
    ]),
    [one.id, two.id].map((id) => [id, "test", "key1", "small", "running", true]),
  );
  for (const row of rows) {
    assert.ok(Number(row.prompt_tokens) > 0 && Number(row.completion_tokens) > 0);
    assert.ok(Number(row.held_micro) > 0);
    assert.ok(Math.abs(Date.now() - Date.parse(String(row.since))) < 60_000);
  }
  assert.equal((await running(operator, "/admin/requests?account=test")).length, 2);
  assert.deepEqual(await running(operator, "/admin/requests?account=ada"), []);
  service.server.requests.stop();
  await until("both have ended", async () => (await running(operator)).length === 0);
});

operatorTest(
  "a request that waits for a slot is listed as waiting",
  async (operator, service) => {
    const { reader } = await startStream(service);
    const waiting = service.chat();
    // Before that it is listed too, while its credits are held.
    await until("it waits", () => service.engine.load().waiting === 1);
    const [, row] = await running(operator);
    assert.deepEqual([row?.state, row?.completion_tokens, row?.stream], ["waiting", 0, false]);
    const stop = await operator.post(`/admin/requests/${row?.request_id}/stop`, undefined);
    assert.deepEqual([stop.status, stop.body.stopped], [202, true]);
    const answer = await waiting;
    assert.equal(answer.status, 403);
    assert.equal((await errorOf(answer)).code, "request_stopped");
    const receipt = await service.receipt(String(row?.request_id));
    assert.deepEqual([receipt?.ending, receipt?.by, receipt?.costMicro], ["stopped", "owner", 0]);
    service.server.requests.stop();
    await textOf(reader);
  },
  { engine: { parallel: 1 } },
);

operatorTest(
  "a stopped stream ends with the error and is charged as it stands",
  async (operator, service) => {
    const { id, reader } = await startStream(service);
    const path = `/admin/requests/${id}/stop`;
    const stop = await operator.post(path, undefined);
    assert.deepEqual([stop.status, stop.body], [202, { request_id: id, stopped: true }]);
    const text = await textOf(reader);
    const last = text.trim().split("\n\n").at(-1) ?? "";
    const { error } = JSON.parse(last.replace(/^data: /, ""));
    assert.match(String(fieldsOf(error).message), /^An operator stopped this request\./);
    assert.deepEqual([fieldsOf(error).code, text.includes("[DONE]")], ["request_stopped", false]);
    const receipt = await service.receipt(id);
    assert.deepEqual([receipt?.ending, receipt?.by], ["stopped", "owner"]);
    assert.ok(receipt && receipt.completionTokens > 0 && receipt.costMicro > 0);
    refused(await operator.post(path, undefined), 404, "request_not_found");
    const line = service.log.find(({ requestId, code }) => requestId === id && code !== undefined);
    assert.equal(line?.code, "request_stopped");
  },
);

operatorTest("a stopped answer that is not streamed is charged too", async (operator, service) => {
  const waiting = service.chat();
  await until("tokens are made", async () => Number((await running(operator))[0]?.completion_tokens) > 2);
  const [row] = await running(operator);
  await operator.post(`/admin/requests/${row?.request_id}/stop`, undefined);
  const answer = await waiting;
  assert.deepEqual([answer.status, (await errorOf(answer)).code], [403, "request_stopped"]);
  const receipt = await service.receipt(String(row?.request_id));
  assert.deepEqual([receipt?.ending, receipt?.by], ["stopped", "owner"]);
  assert.ok(receipt && receipt.completionTokens > 2 && receipt.costMicro > 0);
});

operatorTest("stops a request that another process on the database answers", async (_operator, service) => {
  const { id, reader } = await startStream(service);
  const store = await openSqliteStore({ path: service.databaseFile, plans: service.plans });
  const idle = { count: 0, stopOne: () => false };
  const stops = new RequestStops({ store, ledger: service.ledger }, idle, {
    jobs: testJobs(),
    everyMs: 1000,
    onError: assert.fail,
  });
  try {
    assert.deepEqual(await stops.stopRequest({ id, by: "owner" }), { requestId: id, isStopped: false });
    assert.match(await textOf(reader), /request_stopped/);
    await assert.rejects(stops.stopRequest({ id, by: "owner" }), { code: "request_not_found" });
  } finally {
    await stops.close();
    await store.close();
  }
});
