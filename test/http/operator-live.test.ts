/** Speed, errors and servers of models, the last errors, and refusals of an account. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, listOf, operatorTests, startOperator } from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";
import { startFront } from "../fixtures/upstream.ts";
import { done, finish, text, usage } from "../fixtures/upstream-events.ts";

const operatorTest = operatorTests();

operatorTest("counts the requests of a model with their speed", async (operator, service) => {
  await (await service.chat({ stream: true })).text();
  await (await service.chat({ max_tokens: 0 })).text();
  await (await service.chat({ model: "nothing" })).text();
  const [model] = listOf((await operator.get("/admin/models")).body.data);
  const day = fieldsOf(model?.last_day);
  assert.deepEqual([day.requests, day.errors, day.refused, model?.servers], [1, 0, 0, null]);
  assert.ok(Number(fieldsOf(day.first_token_ms).median) > 0);
  assert.ok(Number(day.cost_micro) > 0 && Number(day.completion_tokens) > 0);
});

operatorTest("lists the last refusals of an account, newest first", async (operator, service) => {
  await (await service.chat({ model: "nothing" })).text();
  const last = await service.chat({ temperature: 7 });
  await last.text();
  await (await service.chat()).text();
  const path = "/admin/accounts/test/refusals";
  const rows = await operator.all(path, 1);
  assert.deepEqual(
    rows.map(({ code, model, key }) => [code, model, key]),
    [
      ["invalid_value", null, "key1"],
      ["model_not_found", null, "key1"],
    ],
  );
  assert.equal(rows[0]?.request_id, last.headers.get("x-request-id"));
});

operatorTest("lists the last errors", async (operator, service) => {
  service.live.errors.logged(50, [{ requestId: "r1", code: "internal_error" }, "a request failed"]);
  const [row] = await operator.all("/admin/errors", 10);
  const { level, message, code, request_id, model, count } = row ?? {};
  assert.deepEqual(
    [level, message, code, request_id, model, count],
    ["error", "a request failed", "internal_error", "r1", null, 1],
  );
});

test("shows the servers of a model with their state and last error", async (t) => {
  const now = performance.now.bind(performance);
  let aheadMs = 0;
  t.mock.method(performance, "now", () => now() + aheadMs);
  await using front = await startFront();
  await using service = await startService({ otherEngines: { remote: front.engine } });
  await using operator = await startOperator(service);
  const server = async () => {
    const [, model] = listOf((await operator.get("/admin/models")).body.data);
    return listOf(model?.servers)[0];
  };
  const before = await server();
  assert.deepEqual([before?.state, before?.last_error, before?.running], ["ok", null, 0]);
  const { play } = front.upstream;
  front.upstream.play = (call) => call.answer(500, '{"error":{"message":"out of memory"}}');
  for (let n = 0; n < 5; n += 1) await (await service.chat({ model: "remote" })).text();
  const paused = await server();
  assert.deepEqual([paused?.state, paused?.paused_accounts], ["ok", 1]);
  assert.match(String(fieldsOf(paused?.last_error).message), /500.*out of memory/);
  aheadMs = 6000;
  front.upstream.play = (call) =>
    call.stream(
      text("Hello"),
      finish("odd"),
      usage(5, 1, { total_tokens: 7, completion_tokens_details: { reasoning_tokens: 0 } }),
      done,
    );
  await (await service.chat({ model: "remote" })).text();
  const noticed = await server();
  assert.deepEqual(
    [noticed?.paused_accounts, listOf(noticed?.notices).map(({ kind }) => kind)],
    [0, ["unknown_ending", "odd_total"]],
  );
  front.upstream.play = (call) => call.socket.destroy();
  for (let n = 0; n < 5; n += 1) await (await service.chat({ model: "remote" })).text();
  const resting = await server();
  assert.equal(resting?.state, "resting");
  assert.ok(String(resting?.since) >= String(before?.since));
  front.upstream.play = play;
  aheadMs = 12_000;
  await (await service.chat({ model: "remote" })).text();
  const again = await server();
  assert.equal(again?.state, "ok");
  assert.deepEqual(again?.last_error, resting?.last_error);
});
