/** Metrics that match the requests made, and a log without keys and texts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { amountOf } from "../../src/ledger/grants.ts";
import { operatorTests, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { samplesOf } from "../fixtures/samples.ts";
import { babble, say, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();

async function samples(operator: TestOperator): Promise<Map<string, number>> {
  return samplesOf((await operator.get("/metrics")).text);
}

async function gone(service: TestService): Promise<void> {
  const going = new AbortController();
  const answer = await service.chat({ stream: true }, { signal: going.signal });
  const reader = answer.body?.getReader();
  await reader?.read();
  const before = service.finished.length;
  going.abort();
  await until("it is reported", () => service.finished.length > before);
}

operatorTest("counts requests by endpoint, status and code", async (operator, service) => {
  await (await service.chat()).text();
  await (await service.chat({ stream: true })).text();
  await (await service.chat({ model: "none" })).text();
  await (await service.chat({ temperature: 9 })).text();
  await (await service.request("GET", "/v1/balance")).text();
  await (await service.request("GET", "/somewhere/else")).text();
  await (await service.request("GET", "/v1/models", { headers: { authorization: undefined } })).text();
  const found = await samples(operator);
  const requests = (endpoint: string, status: string, code = "") =>
    found.get(`inkwell_requests_total{endpoint="${endpoint}",status="${status}",code="${code}"}`);
  assert.equal(requests("/v1/chat/completions", "200"), 2);
  assert.equal(requests("/v1/chat/completions", "404", "model_not_found"), 1);
  assert.equal(requests("/v1/chat/completions", "400", "invalid_value"), 1);
  assert.equal(requests("/v1/balance", "200"), 1);
  assert.equal(requests("/v1/models", "401", "missing_api_key"), 1);
  assert.equal(requests("other", "404", "unknown_path"), 1);
  const chats = 'endpoint="/v1/chat/completions",model="small"';
  assert.equal(found.get(`inkwell_request_duration_seconds_count{${chats}}`), 2);
  assert.equal(found.get('inkwell_time_to_first_token_seconds_count{model="small"}'), 1);
});

operatorTest("shows the delays of the event loop since the last reading", async (operator) => {
  const longest = async () => (await samples(operator)).get("nodejs_eventloop_lag_max_seconds") ?? 0;
  // A reading without a turn of the loop before it has none.
  await until("a delay is shown", async () => (await longest()) > 0);
});

operatorTest(
  "counts the tokens and credits of the receipts",
  async (operator, service) => {
    for (let n = 0; n < 3; n += 1) await (await service.chat({ max_tokens: 20 + n })).text();
    await gone(service);
    const found = await samples(operator);
    const rows = await service.store.usage({ limit: 10 });
    const sum = (of: (row: (typeof rows)[number]) => number) =>
      rows.reduce((total, row) => total + of(row), 0);
    const counts: Record<string, (row: (typeof rows)[number]) => number> = {
      prompt: (row) => row.promptTokens - row.cachedTokens,
      cached_prompt: (row) => row.cachedTokens,
      completion: (row) => row.completionTokens - row.reasoningTokens,
      reasoning: (row) => row.reasoningTokens,
    };
    for (const [kind, of] of Object.entries(counts)) {
      assert.equal(found.get(`inkwell_tokens_total{model="small",kind="${kind}"}`), sum(of), kind);
    }
    assert.ok(sum((row) => row.cachedTokens) > 0 && sum((row) => row.reasoningTokens) > 0);
    for (const ending of ["length", "client_gone"]) {
      const of = rows.filter((row) => row.ending === ending);
      assert.equal(found.get(`inkwell_settled_requests_total{model="small",ending="${ending}"}`), of.length);
      for (const bucket of ["base", "overage", "additional"] as const) {
        const paid = of.reduce((total, row) => total + row[`${bucket}Micro` as const], 0) / 1e6;
        const counted =
          found.get(`inkwell_charged_credits_total{bucket="${bucket}",ending="${ending}"}`) ?? 0;
        assert.ok(
          Math.abs(counted - paid) < 1e-9,
          `${bucket} paid ${paid} for ${ending}, counted ${counted}`,
        );
      }
    }
    assert.ok(
      rows.some((row) => row.overageMicro > 0),
      "more than one bucket pays",
    );
  },
  {
    plan: {
      base: { credits: 1, every: "P1D", align: "opening" },
      overage: { credits: 200, every: "P1M", align: "opening" },
    },
    price: { prompt: 10_000, completion: 30_000 },
    script: babble("word ", { reasoningTokens: 2, cachedTokens: 1 }),
  },
);

operatorTest("records the sizes of the engine's batches", async (operator, service) => {
  for (const answers of [1, 1, 3, 5]) service.metrics.decoded("small", answers);
  const found = await samples(operator);
  const upTo = (most: string) =>
    found.get(`inkwell_engine_batch_requests_bucket{le="${most}",model="small"}`);
  assert.deepEqual([upTo("1"), upTo("2"), upTo("4"), upTo("6")], [2, 2, 3, 4]);
  assert.equal(found.get('inkwell_engine_batch_requests_sum{model="small"}'), 10);
});

operatorTest(
  "reports running requests and held credits at that moment",
  async (operator, service) => {
    const before = await samples(operator);
    assert.equal(before.get("inkwell_open_holds"), 0);
    const going = new AbortController();
    const answer = await service.chat({ stream: true, max_tokens: 1000 }, { signal: going.signal });
    const reader = answer.body?.getReader();
    await reader?.read();
    const found = await samples(operator);
    const [hold] = await service.store.holds({ limit: 1 });
    assert.ok(hold !== undefined);
    assert.equal(found.get("inkwell_open_holds"), 1);
    assert.equal(found.get("inkwell_held_credits"), amountOf(hold.takings) / 1e6);
    assert.equal(found.get("inkwell_running_requests"), 1);
    assert.equal(found.get('inkwell_engine_running_requests{model="small"}'), 1);
    assert.equal(found.get('inkwell_engine_waiting_requests{model="small"}'), 0);
    assert.equal(found.get('inkwell_engine_paused_requests{model="small"}'), 0);
    assert.equal(found.get('inkwell_queue_oldest_wait_seconds{model="small"}'), 0);
    assert.equal(found.get('inkwell_queue_starved_seconds{model="small"}'), 0);
    assert.equal(found.get('inkwell_model_ready{model="small"}'), 1);
    going.abort();
    await reader?.cancel().catch(() => {});
    await until("it is reported", () => service.finished.length > 0);
    assert.equal((await samples(operator)).get("inkwell_open_holds"), 0);
  },
  // The hold is not extended between the two reads.
  { script: babble("word ", { tokenDelayMs: 100 }) },
);

operatorTest(
  "measures commits, process and build, without names of accounts or keys",
  async (operator, service) => {
    await (await service.chat()).text();
    const found = await samples(operator);
    const commits = found.get("inkwell_ledger_commit_duration_seconds_count") ?? 0;
    assert.ok(commits >= 3, "the account, the hold, the settlement");
    assert.equal(found.get('inkwell_ledger_commit_operations_bucket{le="+Inf"}'), commits);
    assert.equal(found.get('inkwell_build_info{version="0.0.0"}'), 1);
    assert.ok(found.has("process_cpu_seconds_total") && found.has("nodejs_eventloop_lag_seconds"));
    const { text } = await operator.get("/metrics");
    assert.doesNotMatch(text, new RegExp(`"(${service.account}|key1)"`));
    for (const [, name = "", kind] of text.matchAll(/^# TYPE (inkwell_\w+) (\w+)$/gm)) {
      assert.equal(name.endsWith("_total"), kind === "counter", `${name} is a ${kind}`);
    }
  },
);

operatorTest(
  "probes and scrapes call no model and cost nothing (BerriAI/litellm /health)",
  async (operator, service) => {
    for (const path of ["/healthz", "/readyz", "/metrics"]) {
      for (let n = 0; n < 3; n += 1) assert.equal((await operator.get(path)).status, 200);
    }
    assert.deepEqual([service.engine.prompts.length, service.engine.tokensMade], [0, 0]);
    assert.deepEqual(await service.store.usage({ limit: 1 }), []);
    assert.deepEqual(
      (await service.store.journal("test", { limit: 10 })).map(({ kind }) => kind),
      ["open", "window", "window", "key"],
    );
  },
);

operatorTest("reports the other metrics without the store", async (operator, service) => {
  const { holdTotals } = service.store;
  service.store.holdTotals = () => Promise.reject(new Error("no such disk"));
  const found = await samples(operator);
  assert.ok(Number.isNaN(found.get("inkwell_open_holds")));
  assert.equal(found.get("inkwell_running_requests"), 0);
  service.store.holdTotals = holdTotals;
});

const asked = "a question that nobody else may read";
const answered = "an answer that nobody else may read";

test("logs a line for each request, without keys and texts", async () => {
  await using service = await startService({ script: say(...answered.split(/(?= )/)) });
  await using operator = await startOperator(service);
  service.log.length = 0;
  const messages = [{ role: "user", content: asked }];
  const headers = { authorization: "Bearer ink_thisisnokeyatallbutsomebodysentit12345678" };

  // All that clients do.
  await (await service.chat({ messages })).text();
  await (await service.chat({ messages, stream: true })).text();
  await (await service.chat({ messages, model: asked })).text();
  await (await service.chat({ messages, temperature: asked })).text();
  await (await service.chat({ messages: [{ role: "user", content: asked, [asked]: 1 }] })).text();
  await (await service.request("POST", "/v1/chat/completions", { body: `{"${asked}` })).text();
  await (await service.chat({ messages }, { headers })).text();
  await (await service.request("GET", `/v1/${encodeURIComponent(asked)}`)).text();
  await (await service.request("GET", `/v1/models?key=${service.key}`)).text();
  service.engine.script = () => ({ ...say(answered), failure: { afterTokens: 1, kind: "failed" } });
  await (await service.chat({ messages, stream: true })).text();
  await (await service.chat({ messages })).text();
  const clients = 11;

  // All that operators do, their slips included.
  const made = await operator.post("/admin/accounts/test/keys", { operation_id: "k", name: asked });
  const { key, id } = made.body;
  await operator.post("/admin/accounts/test/topups", { payment_id: "p", credits: 5 });
  await operator.post("/admin/accounts", { id: asked, plan: "test" });
  await operator.get(`/admin/keys/${key}`);
  await operator.delete(`/admin/keys/${service.key}`);
  await operator.get(`/admin/usage?key=${service.key}`);
  await operator.ask("GET", "/admin/accounts", { headers });
  await operator.ask("GET", `/${key}`);
  await operator.delete(`/admin/keys/${id}`);
  const operators = 9;

  const log = JSON.stringify(service.log);
  assert.doesNotMatch(log, /nobody else may read/);
  assert.doesNotMatch(log, /ink_/);
  for (const secret of [key, service.key]) assert.ok(!log.includes(String(secret).slice(4, 20)));
  const lines = service.log.filter((line) => "durationMs" in line);
  assert.equal(
    lines.filter(({ path }) => !String(path).startsWith("/admin")).length,
    clients + 1,
    "and one with no path",
  );
  assert.equal(lines.length, clients + operators);
  assert.equal(new Set(lines.map(({ requestId }) => requestId)).size, lines.length);
});
