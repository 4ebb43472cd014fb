/**
 * The chat of the portal: the path, limits and charges of the public API, with the key of the
 * session, and answers that show what they cost.
 */

import assert from "node:assert/strict";
import { revokeKey } from "../fixtures/ledger-rows.ts";
import { refused } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import { babble, hello, say, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const portalTest = portalTests();

interface Event {
  id?: string;
  choices?: { delta: { content?: string }; finish_reason: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
  error?: { code: string };
  cost_micro?: number | null;
  shortfall_micro?: number | null;
}

function bodyOf(change: object = {}) {
  return { model: "small", messages: hello, stream: true, ...change };
}

function eventsIn(text: string): Event[] {
  const data = text.split("\n").filter((line) => line.startsWith("data: {"));
  return data.map((line) => JSON.parse(line.slice("data: ".length)));
}

async function chat(portal: TestPortal, cookie: string, change: object = {}) {
  return await portal.as(cookie, "POST", "/api/chat", bodyOf(change));
}

/** A stream that is read piece by piece. */
async function open(portal: TestPortal, cookie: string) {
  const controller = new AbortController();
  const response = await fetch(`${portal.url}/api/chat`, {
    method: "POST",
    headers: { cookie, ...pageHeader, "content-type": "application/json" },
    body: JSON.stringify(bodyOf()),
    signal: controller.signal,
  });
  assert.equal(response.status, 200);
  const reader = response.body?.getReader();
  assert.ok(reader !== undefined);
  await reader.read();
  return { id: response.headers.get("x-request-id") ?? "", reader, abort: () => controller.abort() };
}

async function receiptOf(service: TestService, id: string) {
  await until("the request is charged", async () => (await service.receipt(id)) !== undefined);
  const receipt = await service.receipt(id);
  assert.ok(receipt !== undefined);
  return receipt;
}

portalTest("the last chunk has the usage and exactly what the ledger charged", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const answer = await chat(portal, cookie);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.equal(answer.headers.get("cache-control"), "no-store");
  assert.ok(answer.text.endsWith("data: [DONE]\n\n"));
  const events = eventsIn(answer.text);
  assert.equal(events.map(({ choices }) => choices?.[0]?.delta.content ?? "").join(""), "Hello world");
  const receipt = await service.receipt(answer.headers.get("x-request-id") ?? "");
  assert.ok(receipt !== undefined && receipt.costMicro > 0);
  assert.deepEqual([receipt.account, receipt.key, receipt.ending], ["test", "key1", "stop"]);
  const last = events.at(-1);
  assert.equal(last?.id, `chatcmpl-${receipt.id}`);
  assert.deepEqual([last.cost_micro, last.shortfall_micro], [receipt.costMicro, 0]);
  assert.equal(last.usage?.completion_tokens, receipt.completionTokens);
  for (const event of events.slice(0, -1)) assert.ok(!("cost_micro" in event), "only the last chunk");
});

portalTest("the chunks of the public API show no cost", async (_portal, service) => {
  const answer = await service.chat({ stream: true, stream_options: { include_usage: true } });
  const chunks = (await answer.text()).split("\n").filter((line) => line.startsWith("data:"));
  assert.ok(chunks.length > 2);
  assert.doesNotMatch(chunks.join("\n"), /cost|shortfall/);
});

portalTest("a request without a session or its header reaches no engine", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  refused(await chat(portal, "inkwell_portal=wrong"), 401, "invalid_session");
  const body = JSON.stringify(bodyOf());
  const bare = { cookie, "x-inkwell-request": undefined };
  refused(await portal.ask("POST", "/api/chat", { headers: bare, body }), 403, "missing_request_header");
  const byKey = { authorization: `Bearer ${service.key}` };
  refused(await portal.ask("POST", "/api/chat", { headers: byKey, body }), 401, "invalid_session");
  refused(await portal.as(cookie, "GET", "/api/chat"), 405, "method_not_allowed");
  assert.equal(service.engine.prompts.length, 0);
});

portalTest(
  "bad bodies are refused as by the public API, and must ask for a stream",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    for (const change of [{ stream: false }, { stream: undefined }]) {
      const answer = await chat(portal, cookie, change);
      refused(answer, 400, "invalid_value");
      assert.match(answer.text, /"param":"stream"/);
    }
    refused(await chat(portal, cookie, { messages: "hello" }), 400, "invalid_type");
    refused(await chat(portal, cookie, { model: "nothing" }), 404, "model_not_found");
    const raw = (body: string, type = "application/json") =>
      portal.ask("POST", "/api/chat", { headers: { cookie, "content-type": type }, body });
    refused(await raw("{"), 400, "invalid_json");
    refused(await raw("{}", "text/plain"), 415, "unsupported_media_type");
    assert.equal(service.engine.prompts.length, 0);
  },
);

portalTest(
  "bodies have the limit of the public API, not that of the portal's other routes",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const long = [{ role: "user", content: "word ".repeat(20_000) }];
    refused(await chat(portal, cookie, { messages: long }), 400, "context_length_exceeded");
    refused(await chat(portal, cookie, { messages: [...long, ...long] }), 413, "request_too_large");
  },
  { bodyBytesMax: 150_000 },
);

portalTest(
  "both listeners count against the same limits of the key",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    await (await service.chat()).text();
    const answer = await chat(portal, cookie);
    refused(answer, 429, "rate_limit_exceeded");
    assert.equal(answer.headers.get("x-ratelimit-limit-requests"), "1");
    assert.ok(Number(answer.headers.get("retry-after")) >= 1);
  },
  { key: { requestsPerMinute: 1 } },
);

portalTest(
  "refused work on the portal counts against the allowance of the key",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    refused(await chat(portal, cookie, { model: "x".repeat(2000) }), 404, "model_not_found");
    refused(await chat(portal, cookie), 429, "too_many_refusals");
    assert.equal((await service.chat()).status, 429);
  },
  { refusedBytesPerMinute: 1000 },
);

portalTest(
  "a model that the key may not use is refused",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    refused(await chat(portal, cookie, { model: "other" }), 403, "model_not_allowed");
    assert.equal((await chat(portal, cookie)).status, 200);
  },
  { otherModels: ["other"], key: { models: ["small"] } },
);

portalTest("a suspended account may look, but not generate", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  await service.ledger.apply({
    kind: "state",
    account: "test",
    op: "s",
    to: { kind: "suspend" },
    by: "test",
  });
  refused(await chat(portal, cookie), 403, "account_suspended");
  assert.equal((await portal.as(cookie, "GET", "/api/account")).body.state, "suspended");
});

portalTest(
  "without credits nothing is generated",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    refused(await chat(portal, cookie), 402, "insufficient_credits");
    assert.equal(service.engine.tokensMade, 0);
  },
  {
    plan: {
      base: { credits: 0, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1D", align: "opening" },
    },
  },
);

portalTest(
  "an answer that spends the last credits ends with them, and costs all of them",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const answer = await chat(portal, cookie);
    const events = eventsIn(answer.text);
    assert.equal(events.at(-2)?.choices?.[0]?.finish_reason, "length");
    const receipt = await receiptOf(service, answer.headers.get("x-request-id") ?? "");
    assert.equal(receipt.ending, "credits");
    assert.equal(events.at(-1)?.cost_micro, receipt.costMicro);
    assert.ok(receipt.costMicro > 900_000 && receipt.costMicro <= 1_000_000, `${receipt.costMicro}`);
  },
  {
    script: babble("word "),
    price: { prompt: 1000, completion: 30_000 },
    plan: {
      base: { credits: 1, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1D", align: "opening" },
    },
  },
);

portalTest(
  "an engine that fails after tokens were sent: the error has the charge of these tokens",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const answer = await chat(portal, cookie);
    assert.equal(answer.status, 200);
    assert.doesNotMatch(answer.text, /\[DONE\]/);
    const last = eventsIn(answer.text).at(-1);
    assert.equal(last?.error?.code, "upstream_error");
    const receipt = await receiptOf(service, answer.headers.get("x-request-id") ?? "");
    assert.deepEqual([receipt.ending, receipt.completionTokens], ["engine_failed", 2]);
    assert.ok(receipt.costMicro > 0);
    assert.deepEqual([last.cost_micro, last.shortfall_micro], [receipt.costMicro, 0]);
  },
  { script: { ...say("one ", "two ", "three"), failure: { afterTokens: 2, kind: "failed" } } },
);

portalTest(
  "an engine that fails before the first token costs nothing",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    refused(await chat(portal, cookie), 502, "upstream_error");
    assert.equal((await service.balance()).base.remainingMicro, 1_000_000_000);
  },
  { script: { ...say("one"), failure: { afterTokens: 0, kind: "failed" } } },
);

portalTest(
  "a client that aborts stops the engine, and pays for what was generated",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const stream = await open(portal, cookie);
    assert.equal(service.server.requests.count, 1);
    stream.abort();
    const receipt = await receiptOf(service, stream.id);
    assert.equal(receipt.ending, "client_gone");
    assert.ok(receipt.completionTokens > 0 && receipt.costMicro > 0);
    assert.equal(service.engine.open, 0);
  },
  { script: babble("word ", { tokenDelayMs: 5 }) },
);

for (const [what, end] of [
  ["its key is revoked", (service: TestService) => revokeKey(service.store, "key1")],
  [
    "its session signs out",
    (_service: TestService, portal: TestPortal, cookie: string) =>
      portal.as(cookie, "DELETE", "/api/session"),
  ],
] as const) {
  portalTest(
    `an answer ends within a second when ${what}, and its tokens are charged`,
    async (portal, service) => {
      const cookie = await portal.signIn(service.key);
      const stream = await open(portal, cookie);
      await end(service, portal, cookie);
      const passedMs = startOwnTime();
      await assert.rejects(async () => {
        while (!(await stream.reader.read()).done);
      });
      assert.ok(passedMs() < 1500);
      assert.equal((await receiptOf(service, stream.id)).ending, "client_gone");
    },
    { script: babble("word ", { tokenDelayMs: 5 }) },
  );
}

portalTest("a service that stops ends answers of the portal, and takes no more", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  void service.server.requests.drain();
  const answer = await chat(portal, cookie);
  refused(answer, 503, "shutting_down");
  assert.equal(answer.headers.get("connection"), "close");
});
