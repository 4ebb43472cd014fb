/** Receivers of events in the operator API: listed, and sent to again. */
import assert from "node:assert/strict";
import { operatorTests, refused } from "../fixtures/operator.ts";
import { minute, start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests({});

operatorTest("lists dead events with their reasons, and sends them again", async (operator, { store }) => {
  for (const account of ["ada", "bob"]) await operator.post("/admin/accounts", { id: account, plan: "test" });
  for (const account of ["ada", "bob", "ada"])
    await store.events.add({ type: "key.expiring", atMs: start, data: {}, account, cause: null });
  await store.events.queue([{ name: "hook", types: new Set(["key.expiring"]) }]);
  const numbers = (await store.events.firsts("hook", "", 9)).map(({ number }) => number);
  await store.events.claim("hook", numbers, start, start + minute);
  const [dead = 0, failed = 0] = numbers;
  const attempt = { attempts: 1, triedMs: start, status: 422, answer: "no such customer" };
  await store.events.record("hook", [
    { ...attempt, number: dead, state: "dead", nextMs: 0 },
    { ...attempt, number: failed, state: "pending", nextMs: start + minute },
  ]);
  const path = "/admin/events/endpoints";
  const time = new Date(start + minute).toISOString();
  assert.deepEqual((await operator.get(path)).body.data, [
    {
      name: "hook",
      state: "failing",
      pending: 2,
      dead: 1,
      failing_accounts: 1,
      next_attempt_at: time,
      problem: "422 no such customer",
    },
  ]);
  // The first snapshots come without the database if it takes longer than half a second.
  const attention = async () => (await operator.get("/admin/overview")).body.attention;
  await until("the overview warns", async () => JSON.stringify(await attention()) !== "[]");
  assert.deepEqual(await attention(), [
    { text: "The receiver hook fails: 422 no such customer.", page: "events" },
  ]);
  const [row] = await operator.all(`${path}/hook/deliveries?state=dead`, 1);
  assert.partialDeepStrictEqual(row, { account: "ada", status: 422, answer: "no such customer" });
  const send = (body: object, endpoint = "hook") => operator.post(`${path}/${endpoint}/send`, body);
  assert.deepEqual((await send({})).body, { endpoint: "hook", events: 2 });
  assert.deepEqual((await send({})).body, { endpoint: "hook", events: 0 });
  assert.deepEqual((await send({ event: row?.event_id })).body, { endpoint: "hook", events: 1 });
  const none = `evt_${"0".repeat(32)}`;
  assert.equal(
    refused(await send({ event: none }), 404, "event_not_found"),
    `The endpoint "hook" has no event "${none}".`,
  );
  refused(await send({}, "gone"), 404, "endpoint_not_found");
  assert.match(refused(await send({ event: "812" }), 400, "invalid_value"), /the id of an event: evt_/);
});
