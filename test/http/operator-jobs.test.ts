/** Jobs in the operator API, and the feed of live pages when its reads fail or hang. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  fieldsOf,
  listOf,
  operatorTests,
  operatorToken,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();

/** Opens a stream of an account. `next` returns its next event. */
async function follow(operator: TestOperator, path = "/admin/accounts/test/live/stream") {
  const headers = { authorization: `Bearer ${operatorToken}` };
  const answer = await fetch(operator.url + path, { headers });
  assert.equal(answer.status, 200);
  assert.ok(answer.body);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    async next() {
      for (;;) {
        const [event, data] = /^event: message\ndata: (.*)\n\n/m.exec(text) ?? [];
        if (event !== undefined) {
          text = text.slice(text.indexOf(event) + event.length);
          return fieldsOf(JSON.parse(data ?? ""));
        }
        const { value, done } = await reader.read();
        assert.ok(!done, "the stream goes on");
        text += value;
      }
    },
    cancel: () => reader.cancel(),
  };
}

async function jobOf(operator: TestOperator, name: string) {
  const job = listOf((await operator.get("/admin/jobs")).body.data).find((each) => each.name === name);
  assert.ok(job, `there is a job ${name}`);
  return job;
}

operatorTest("lists all jobs by name, with interval and last success", async (operator) => {
  await until("all have succeeded", async () =>
    (await operator.all("/admin/jobs", 2)).every((job) => job.last_success_at !== null),
  );
  const jobs = await operator.all("/admin/jobs", 2);
  assert.deepEqual(
    jobs.map(({ name, every_ms, state, last_error }) => [name, every_ms, state, last_error]),
    [
      ["stop_requests", 20, "ok", null],
      ["show_accounts", 1_000, "ok", null],
      ["check_operator_sessions", 400, "ok", null],
      ["show_overview", 1_000, "ok", null],
    ],
  );
});

operatorTest(
  "a job that fails is in the list, the overview and the metrics, until it works again",
  async (operator) => {
    let failure: Error | null = new Error("the disk is full");
    const job = operator.jobs.start({
      ...{ name: "count", everyMs: 3_600_000, failure: "rows could not be counted" },
      run: async () => {
        if (failure !== null) throw failure;
      },
    });
    await job.run();
    const failing = await jobOf(operator, "count");
    assert.deepEqual([failing.state, failing.last_success_at], ["failing", null]);
    assert.equal(fieldsOf(failing.last_error).message, "the disk is full");
    assert.equal(failing.since, fieldsOf(failing.last_error).at);
    const { body } = await operator.get("/admin/overview");
    assert.deepEqual(listOf(fieldsOf(body.health).jobs), [failing]);
    const { text } = await operator.get("/metrics");
    assert.match(text, /^inkwell_job_runs_total\{name="count",outcome="failed"\} 1$/m);
    failure = null;
    await job.run();
    const again = await jobOf(operator, "count");
    assert.deepEqual([again.state, again.last_error], ["ok", failing.last_error]);
    assert.equal(again.since, again.last_success_at);
    await until("the overview has none", async () => {
      const { health } = (await operator.get("/admin/overview")).body;
      return listOf(fieldsOf(health).jobs).length === 0;
    });
  },
);

operatorTest(
  "a stream goes on after the database was away, and its job says so",
  async (operator, service) => {
    const stream = await follow(operator);
    await stream.next();
    const { store } = service;
    const { accountMarks } = store;
    store.accountMarks = () => Promise.reject(new Error("connection lost"));
    await until("it fails", async () => (await jobOf(operator, "show_accounts")).state === "failing");
    const { last_error } = await jobOf(operator, "show_accounts");
    assert.equal(fieldsOf(last_error).message, "connection lost");
    const topup = {
      kind: "topup",
      account: "test",
      payment: "p1",
      amountMicro: 5_000_000,
      by: "test",
    } as const;
    await service.ledger.apply(topup);
    store.accountMarks = accountMarks;
    const { balance } = await stream.next();
    assert.equal(fieldsOf(fieldsOf(fieldsOf(balance).balances).additional).credits, 5);
    await until("it works", async () => (await jobOf(operator, "show_accounts")).state === "ok");
    await stream.cancel();
    const lines = service.log.filter(({ msg }) => String(msg).includes("live state of accounts"));
    assert.equal(lines.length, 1, "logged once");
  },
);

operatorTest("a read of accounts that hangs does not delay the overview", async (operator, service) => {
  const { store } = service;
  const { accountMarks } = store;
  const hangs = Promise.withResolvers<Map<string, string>>();
  store.accountMarks = () => hangs.promise;
  const ofAccount = await follow(operator);
  const overview = await follow(operator, "/admin/overview/stream");
  assert.equal(fieldsOf((await overview.next()).last_hour).requests, 0);
  await (await service.chat()).text();
  let now = await overview.next();
  while (fieldsOf(now.last_hour).requests !== 1) now = await overview.next();
  store.accountMarks = accountMarks;
  hangs.resolve(new Map());
  assert.equal((await ofAccount.next()).running, 0);
  await Promise.all([ofAccount.cancel(), overview.cancel()]);
});

test("pages that open while others follow an account read nothing within the same second", async (t) => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const nowMs = performance.now();
  t.mock.method(performance, "now", () => nowMs);
  const first = await follow(operator);
  const shown = await first.next();
  const { store } = service;
  store.accountMarks = () => Promise.reject(new Error("read again"));
  for (let n = 0; n < 5; n += 1) {
    const stream = await follow(operator);
    assert.deepEqual(await stream.next(), shown);
    await stream.cancel();
  }
  assert.equal((await jobOf(operator, "show_accounts")).state, "ok");
  await first.cancel();
});
