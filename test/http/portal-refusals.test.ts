/** What was refused, and what is left of each limit, as the holder of a key sees them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { refusalWords } from "../../src/accounts/refused-requests.ts";
import { catalogue } from "../../src/errors.ts";
import { type Fields, listOf } from "../fixtures/operator.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import type { Script } from "../fixtures/scripted-engine.ts";
import { babble, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

/** The time of the store stands, however slow the machine is, until a test advances it. */
const clock = new BigInt64Array(new SharedArrayBuffer(8));
clock[0] = BigInt(Date.now());

const portalTest = portalTests({ otherModels: ["large"], clock });

async function refusedIn(portal: TestPortal, cookie: string, query = ""): Promise<Fields[]> {
  const answer = await portal.as(cookie, "GET", `/api/refusals${query}`);
  assert.equal(answer.status, 200, answer.text);
  return listOf(answer.body.data);
}

/** Sends a request and returns its id. */
async function ask(service: TestService, body: object, status: number, key = service.key): Promise<string> {
  const answer = await service.chat(body, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(answer.status, status, await answer.text());
  return answer.headers.get("x-request-id") ?? "";
}

portalTest(
  "each refused request is listed, with who refused it and what to do, and no word of it",
  async (portal, service) => {
    const text = "a secret prompt";
    const bad = await ask(service, { messages: [{ role: "user", content: text }], temperature: text }, 400);
    const unknown = await ask(service, { model: text }, 404);
    const foreign = await ask(service, { model: "large" }, 403);
    await ask(service, {}, 200);
    const fast = await ask(service, {}, 429);
    const cookie = await portal.signIn(service.key);
    const rows = await refusedIn(portal, cookie);
    assert.deepEqual(
      rows.map(({ request_id, code, refused_by, model, key }) => [request_id, code, refused_by, model, key]),
      [
        [fast, "rate_limit_exceeded", "limit", "small", "key1"],
        [foreign, "model_not_allowed", "plan or key", "large", "key1"],
        [unknown, "model_not_found", "request", null, "key1"],
        [bad, "invalid_type", "request", null, "key1"],
      ],
    );
    assert.match(String(rows[0]?.message), /in a minute.* Send fewer/);
    assert.doesNotMatch(JSON.stringify(rows), new RegExp(text));
    const [second] = await refusedIn(portal, cookie, `?limit=1&after=${fast}`);
    assert.equal(second?.request_id, foreign);
  },
  { plan: { limits: { requestsPerMinute: 1 }, models: ["small"] } },
);

portalTest("a session sees what its key may see", async (portal, service) => {
  await service.ledger.apply({ kind: "open", account: "other", plan: "test", by: "test" });
  const boss = await service.addKey({ id: "boss", portal: "account" });
  const foreign = await service.addKey({ id: "foreign", account: "other", portal: "account" });
  const ids = [];
  for (const key of [service.key, boss, foreign]) ids.push(await ask(service, { model: "no" }, 404, key));
  const [own, ofBoss, ofOther] = ids;
  const seen = async (key: string) =>
    (await refusedIn(portal, await portal.signIn(key))).map(({ request_id }) => request_id);
  assert.deepEqual(await seen(service.key), [own]);
  assert.deepEqual(await seen(boss), [ofBoss, own]);
  assert.deepEqual(await seen(foreign), [ofOther]);
});

portalTest("a request that had begun has a receipt, and is not listed", async (portal, service) => {
  const failing: Script = { tokens: ["Hello", " you"], failure: { afterTokens: 1, kind: "failed" } };
  service.engine.script = () => failing;
  await ask(service, {}, 502);
  await ask(service, { max_tokens: -1 }, 400);
  const cookie = await portal.signIn(service.key);
  const codes = (await refusedIn(portal, cookie)).map(({ code }) => code);
  assert.deepEqual(codes, ["invalid_value"]);
  assert.equal(listOf((await portal.as(cookie, "GET", "/api/requests")).body.data).length, 1);
});

test("each code of callers has its words", () => {
  const codes = Object.entries(catalogue).filter(([, entry]) => entry.for !== "operator");
  assert.deepEqual(Object.keys(refusalWords).toSorted(), codes.map(([code]) => code).toSorted());
  for (const [code, [, sentence]] of Object.entries(refusalWords))
    assert.match(sentence, /^[A-Z].*\.$/, code);
});

/** "Hello there", as the scripted engine counts it. */
const promptTokens = 3;

/** By limit and owner: how much is left, of how much, and whether a time is named. */
async function leftIn(portal: TestPortal, cookie: string, path = "/api/live"): Promise<unknown[]> {
  const { body, status, text } = await portal.as(cookie, "GET", path);
  assert.equal(status, 200, text);
  return listOf(body.limits).map(({ of, name, left, most, full_at }) => [
    `${of} ${name}`,
    left,
    most,
    full_at !== null,
  ]);
}

portalTest(
  "each limit of plan and key says what is left of it now",
  async (portal, service) => {
    const narrow = await service.addKey({ portal: "account", requestsPerMinute: 4, tokensPerMinute: 1000 });
    const cookie = await portal.signIn(narrow);
    const full = [
      ["plan requests_per_minute", 5, 5, false],
      ["key requests_per_minute", 4, 4, false],
      ["key tokens_per_minute", 1000, 1000, false],
      ["plan concurrent", 2, 2, false],
    ];
    assert.deepEqual(await leftIn(portal, cookie), full);
    assert.deepEqual(await leftIn(portal, cookie, "/api/account"), full);
    const left = new AbortController();
    const answer = await service.chat(
      { stream: true },
      { headers: { authorization: `Bearer ${narrow}` }, signal: left.signal },
    );
    const headers = answer.headers.get("x-ratelimit-remaining-requests");
    const busy = await leftIn(portal, cookie);
    assert.equal(headers, "3");
    assert.deepEqual(busy, [
      ["plan requests_per_minute", 4, 5, true],
      ["key requests_per_minute", 3, 4, true],
      ["key tokens_per_minute", 1000 - promptTokens, 1000, true],
      ["plan concurrent", 1, 2, false],
    ]);
    left.abort();
    await answer.body?.cancel().catch(() => {});
    await until("the request has ended", async () => {
      const [, , , concurrent] = await leftIn(portal, cookie);
      return Object(concurrent)[1] === 2;
    });
    // Another key of the account shares the limits of the plan, and has none of its own.
    const other = await portal.signIn(service.key);
    assert.deepEqual(await leftIn(portal, other), [["plan requests_per_minute", 4, 5, true], full[3]]);
    Atomics.add(clock, 0, 12_000n);
    assert.deepEqual(await leftIn(portal, other), [full[0], full[3]]);
  },
  {
    script: babble("word ", { tokenDelayMs: 5 }),
    plan: { limits: { requestsPerMinute: 5, concurrent: 2 } },
  },
);
