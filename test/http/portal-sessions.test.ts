/**
 * Signing in to the portal, and what sessions of keys have beside the rules of sessions.test.ts:
 * the key and its rights, attempts, and the end of streams.
 */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { test } from "node:test";
import { mintKey } from "../../src/accounts/keys.ts";
import type { KeySettings, StateOperation } from "../../src/ledger/operations.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { limits } from "../../src/limits/limits.ts";
import { TokenBucket } from "../../src/limits/token-bucket.ts";
import { configWith } from "../fixtures/deploy-settings.ts";
import { planOf, revokeKey } from "../fixtures/ledger-rows.ts";
import {
  fieldsOf,
  type OperatorAnswer,
  operatorToken,
  refused,
  startOperator,
} from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader, pageSecret } from "../fixtures/page-header.ts";
import { portalTests, sessionRoutesOf, startPortal, type TestPortal } from "../fixtures/portal.ts";
import { exchange, parseAnswer } from "../fixtures/raw-http.ts";
import { babble, hello, startService, type TestService } from "../fixtures/service.ts";

const portalTest = portalTests();

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

async function tryKey(portal: TestPortal, key: string, headers = {}): Promise<OperatorAnswer> {
  return await portal.ask("POST", "/api/session", { headers, body: JSON.stringify({ key }) });
}

/** Changes the first key. */
async function change(service: TestService, set: KeySettings): Promise<void> {
  const outcome = await service.ledger.apply({
    kind: "key",
    account: "test",
    key: "key1",
    op: "c",
    set,
    by: "test",
  });
  assert.equal(outcome.kind, "changed");
}

async function rotate(service: TestService, overlap: string | null): Promise<void> {
  await change(service, { rotation: { hash: hash("sha256", mintKey()), lastFour: "new!", overlap } });
}

async function setState({ ledger }: TestService, kind: "suspend" | "close"): Promise<void> {
  const state: StateOperation = { kind: "state", account: "test", op: kind, to: { kind }, by: "test" };
  assert.equal((await ledger.apply(state)).kind, "changed");
}

portalTest("a session shows the account of its key, until it signs out", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const { status, body } = await portal.as(cookie, "GET", "/api/account");
  assert.equal(status, 200);
  assert.deepEqual([body.account, body.state], ["test", "active"]);
  const shown = await portal.as(cookie, "GET", "/api/session");
  assert.deepEqual(Object.keys(shown.body), ["expires_at", "idle_expires_at", "timezone", "person", "role"]);
  const out = await portal.as(cookie, "DELETE", "/api/session");
  assert.deepEqual([out.status, out.text], [204, ""]);
  assert.match(out.headers.get("set-cookie") ?? "", /^inkwell_portal=; Path=\/; Max-Age=0;/);
  refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
});

portalTest(
  "shows the limits of the plan beside those of the key, and follows a change of the plan",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    const limits = async () => {
      const { key, plan } = (await portal.as(cookie, "GET", "/api/account")).body;
      return [fieldsOf(key).limits, plan];
    };
    const none = { requests_per_minute: null, tokens_per_minute: null, concurrent: null };
    const student = { requests_per_minute: 30, tokens_per_minute: 9000, concurrent: 2 };
    assert.deepEqual(await limits(), [none, { id: "test", limits: student }]);
    const { ledger } = service;
    const moved = { kind: "plan", account: "test", op: "move", plan: "team", at: "now", by: "test" } as const;
    assert.equal((await ledger.apply(moved)).kind, "changed");
    assert.deepEqual(await limits(), [none, { id: "team", limits: none }]);
  },
  {
    plan: { limits: { requestsPerMinute: 30, tokensPerMinute: 9000, concurrent: 2 } },
    otherPlans: [planOf("team", 100, 0)],
  },
);

portalTest("the rights of the key are read again with each request", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const rights = async () => (await portal.as(cookie, "GET", "/api/account")).body.rights;
  const own = /manages only itself/;
  assert.match(String(fieldsOf(await rights()).why_not), own);
  assert.partialDeepStrictEqual(await rights(), { keys: "own", can_create_keys: false });
  const set = async (op: string, settings: KeySettings) =>
    service.ledger.apply({ kind: "key", account: "test", key: "key1", op, set: settings, by: "test" });
  await set("raise", { portal: "account" });
  assert.deepEqual(await rights(), {
    keys: "account",
    can_create_keys: true,
    why_not: null,
    most_keys: null,
    key_life: null,
    latest_expiry: null,
  });
  await set("cap", { caps: [{ amountMicro: 5, every: "P1D", byOperator: true }] });
  assert.partialDeepStrictEqual(await rights(), { keys: "account", can_create_keys: false });
  assert.match(String(fieldsOf(await rights()).why_not), /has a spending cap/);
});

portalTest("no route below /api responds without a session, known or not", async (portal, service) => {
  const operator = `Bearer ${operatorToken}`;
  const given = [{}, { authorization: `Bearer ${service.key}` }, { authorization: operator }];
  const unknown = [
    ["GET", "/api"],
    ["GET", "/api/"],
    ["GET", "/api/nothing"],
    ["PUT", "/api/session"],
    ["GET", "/api/openapi.json"],
    ["POST", "/"],
    ["DELETE", "/requests"],
  ] as const;
  for (const [method, path] of [...sessionRoutesOf(portal.document), ...unknown]) {
    for (const headers of given) {
      refused(await portal.ask(method, path, { headers }), 401, "invalid_session");
    }
  }
});

portalTest(
  "unknown paths and methods below /api are refused, and other paths are pages",
  async (portal, service) => {
    const cookie = await portal.signIn(service.key);
    for (const path of ["/api", "/api/", "/api/nothing", "/api/account/x"]) {
      refused(await portal.as(cookie, "GET", path), 404, "unknown_path");
    }
    const wrong = await portal.as(cookie, "PUT", "/api/session");
    refused(wrong, 405, "method_not_allowed");
    assert.equal(wrong.headers.get("allow"), "POST, GET, HEAD, DELETE");
    for (const path of ["/", "/requests", "/usage", "/keys", "/start", "/chat", "/keys/key1"]) {
      const { status, headers, text } = await portal.ask("GET", path);
      assert.deepEqual([status, headers.get("content-type")], [200, "text/html; charset=utf-8"], path);
      assert.match(headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self'/);
      assert.match(text, /<div id="root" data-pages="" data-api="\/api">/);
    }
    const [, script = ""] = /src="(\/assets\/main-[^"]+)"/.exec((await portal.ask("GET", "/")).text) ?? [];
    assert.equal((await portal.ask("GET", script)).status, 200);
    for (const path of ["/assets/none.js", "/assets/a/b.js", "/assets/"]) {
      refused(await portal.ask("GET", path), 404, "unknown_path");
    }
  },
);

portalTest("sessions of operators and of keys are none of each other", async (portal, service) => {
  await using operator = await startOperator(service);
  const page = { authorization: undefined, ...pageHeader };
  const body = JSON.stringify({ token: operatorToken });
  const signedIn = await operator.ask("POST", "/admin/session", { headers: page, body });
  const [, operatorSecret = ""] = /=([\w-]{43});/.exec(signedIn.headers.get("set-cookie") ?? "") ?? [];
  refused(await portal.as(`inkwell_portal=${operatorSecret}`, "GET", "/api/account"), 401, "invalid_session");
  const cookie = await portal.signIn(service.key);
  const secret = cookie.split("=")[1] ?? "";
  const headers = { ...page, cookie: `inkwell_console=${secret}` };
  refused(await operator.ask("GET", "/admin/accounts", { headers }), 401, "invalid_session");
  refused(await tryKey(portal, operatorToken), 401, "invalid_api_key");
  refused(await tryKey(portal, secret), 401, "invalid_api_key");
  const signedInLine = service.log.find(({ msg }) => msg === "a key has signed in");
  assert.partialDeepStrictEqual(signedInLine, { account: "test", keyId: "key1", client: "127.0.0.1" });
});

const unusable: [what: string, change: Partial<KeyRow>, message: RegExp][] = [
  ["revoked", { revokedMs: 1 }, /was revoked/],
  ["expired", { expiresMs: 1 }, /expired at 1970/],
];
for (const [what, change, message] of unusable) {
  portalTest(`a key that is ${what} does not sign in`, async (portal, service) => {
    const answer = await tryKey(portal, await service.addKey(change));
    assert.match(refused(answer, 401, "invalid_api_key"), message);
    assert.equal(answer.headers.get("set-cookie"), null);
  });
}

portalTest(
  "the old secret of a rotation still authenticates requests, and does not sign in",
  async (portal, service) => {
    await rotate(service, "P1D");
    assert.equal((await service.request("GET", "/v1/balance")).status, 200);
    assert.match(
      refused(await tryKey(portal, service.key), 401, "invalid_api_key"),
      /Sign in with the new one/,
    );
  },
);

portalTest(
  "a key of a closed account does not sign in, one of a suspended account looks",
  async (portal, service) => {
    await setState(service, "suspend");
    const cookie = await portal.signIn(service.key);
    assert.equal((await portal.as(cookie, "GET", "/api/account")).body.state, "suspended");
    await setState(service, "close");
    refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
    assert.match(refused(await tryKey(portal, service.key), 403, "account_suspended"), /is closed/);
  },
);

portalTest("a session ends with its key", async (portal, service) => {
  const { times } = service.store;
  const { nowMs } = times();
  // The end is shown by a second look at the clock, whose halves may be a millisecond apart.
  service.store.times = () => timesAt(nowMs);
  const expiresMs = nowMs + hourMs;
  const cookie = await portal.signIn(await service.addKey({ expiresMs }));
  const shown = await portal.as(cookie, "GET", "/api/session");
  assert.equal(shown.body.expires_at, new Date(expiresMs).toISOString());
  service.store.times = () => timesAt(expiresMs - minuteMs);
  assert.equal((await portal.as(cookie, "GET", "/api/account")).status, 200);
  service.store.times = () => timesAt(expiresMs);
  refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
  service.store.times = times;
});

const { most } = limits.signIns;

/** Fails so many times. */
async function guess(portal: TestPortal, times: number, headers: Record<string, string> = {}): Promise<void> {
  for (let n = 0; n < times; n += 1)
    refused(await tryKey(portal, mintKey(), headers), 401, "invalid_api_key");
}

void test("a class of 40 signs in at once, attempts are limited, and the key still works for requests", async () => {
  let nowMs = 0;
  await using service = await startService();
  const attempts = new TokenBucket(limits.signIns, { nowMs: () => nowMs });
  await using portal = await startPortal(service, { attempts });
  const right = Array.from({ length: 40 }, () => tryKey(portal, service.key));
  for (const answer of await Promise.all(right)) assert.equal(answer.status, 200, answer.text);
  await guess(portal, most - 40);
  const limited = await tryKey(portal, service.key);
  refused(limited, 429, "too_many_sign_ins");
  assert.equal(limited.headers.get("retry-after"), "1");
  assert.equal(limited.headers.get("set-cookie"), null);
  assert.equal((await service.request("GET", "/v1/balance")).status, 200);
  nowMs += 1000;
  await portal.signIn(service.key);
  const metrics = await service.metrics.text();
  assert.match(metrics, /inkwell_sign_ins_total\{listener="portal",result="wrong_key"\} 80/);
  assert.match(metrics, /inkwell_sign_ins_total\{listener="portal",result="too_many"\} 1/);
  assert.match(metrics, /inkwell_sign_ins_total\{listener="portal",result="signed_in"\} 41/);
});

/** A rate of sign-ins that no slow machine gives back. */
function standing(): TokenBucket {
  return new TokenBucket(limits.signIns, { nowMs: () => 0 });
}

for (const [trustedProxies, isShared] of [
  [[], true],
  [["127.0.0.1"], false],
] as const) {
  void test(`clients behind a proxy that is ${isShared ? "not " : ""}trusted ${isShared ? "share" : "have their own"} attempts`, async () => {
    await using service = await startService();
    await using portal = await startPortal(service, {
      connections: { trustedProxies },
      attempts: standing(),
    });
    const from = (address: string) => tryKey(portal, mintKey(), { "x-forwarded-for": address });
    // The client itself may send the header: only the address that the proxy adds counts.
    await guess(portal, most, { "x-forwarded-for": "198.51.100.7, 203.0.113.7" });
    refused(await from("203.0.113.7"), 429, "too_many_sign_ins");
    if (isShared) refused(await from("203.0.113.8"), 429, "too_many_sign_ins");
    else refused(await from("203.0.113.8"), 401, "invalid_api_key");
    if (isShared) return;
    // Text that is no address counts as the proxy itself.
    await guess(portal, most, { "x-forwarded-for": "unknown" });
    refused(await from("unknown-10"), 429, "too_many_sign_ins");
  });
}

void test("without a configured proxy, a client of this machine cannot invent its address", async () => {
  await using service = await startService();
  const { trustedProxies } = configWith({}).limits;
  await using portal = await startPortal(service, { connections: { trustedProxies }, attempts: standing() });
  await guess(portal, most, { "x-forwarded-for": "203.0.113.1", forwarded: "for=203.0.113.1" });
  const further = await tryKey(portal, service.key, { "x-forwarded-for": "203.0.113.77" });
  refused(further, 429, "too_many_sign_ins");
  const clients = service.log.filter(({ client }) => client !== undefined).map(({ client }) => client);
  assert.deepEqual(new Set(clients), new Set(["127.0.0.1"]), "the log has the true address");
});

void test("a page of a foreign host names the setting of the portal's URL", async () => {
  await using service = await startService();
  await using portal = await startPortal(service);
  const page = await exchange(
    Number(new URL(portal.url).port),
    "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
  );
  const { status, body } = parseAnswer(page);
  assert.equal(status, 403);
  assert.match(body, /set portal\.url in inkwell\.yaml to a URL with this name\./);
});

const ends: [
  what: string,
  end: (service: TestService, there: TestPortal, cookie: string) => Promise<unknown>,
][] = [
  ["signing out on another node", (_service, there, cookie) => there.as(cookie, "DELETE", "/api/session")],
  ["revoking the key", ({ store }) => revokeKey(store, "key1")],
  ["rotating the key", (service) => rotate(service, "P1D")],
  ["the expiry of the key", (service) => change(service, { expiresMs: service.store.times().nowMs + 1 })],
  ["closing the account", (service) => setState(service, "close")],
];
for (const [what, end] of ends) {
  void test(`${what} ends the session and its stream within a second`, async () => {
    await using service = await startService({ script: babble("word ", { tokenDelayMs: 5 }) });
    await using here = await startPortal(service);
    await using there = await startPortal(service);
    const cookie = await here.signIn(service.key);
    const other = await here.signIn(await service.addKey({}));
    const left = new AbortController();
    const open = (session: string) =>
      fetch(`${here.url}/api/chat`, {
        method: "POST",
        headers: { cookie: session, ...pageHeader, "content-type": "application/json" },
        body: JSON.stringify({ model: "small", messages: hello, stream: true }),
        signal: left.signal,
      });
    const [mine, theirs] = [await open(cookie), await open(other)];
    assert.deepEqual([mine.status, theirs.status], [200, 200]);
    const endOf = (stream: Response) =>
      stream.text().then(
        () => "ended",
        () => "ended",
      );
    const stream = endOf(mine);
    const untouched = endOf(theirs);
    const passedMs = startOwnTime();
    await end(service, there, cookie);
    assert.equal(await stream, "ended");
    assert.ok(passedMs() < 1000);
    refused(await here.as(cookie, "GET", "/api/account"), 401, "invalid_session");
    refused(await there.as(cookie, "GET", "/api/account"), 401, "invalid_session");
    if (what !== "closing the account") {
      assert.equal(await Promise.race([untouched, Promise.resolve("open")]), "open");
      assert.equal((await here.as(other, "GET", "/api/account")).status, 200);
    }
    left.abort();
    await untouched;
  });
}

void test("the account names the URL of the API: the configured one, or the local one on this machine", async () => {
  await using service = await startService();
  let publicUrl: string | null = null;
  await using portal = await startPortal(service, { hosts: ["ai.example"], publicUrl: () => publicUrl });
  const cookie = await portal.signIn(service.key);
  const urlFrom = async (host: string) => {
    const head = [
      "GET /api/account HTTP/1.1",
      `host: ${host}`,
      `cookie: ${cookie}`,
      `x-inkwell-request: ${pageSecret}`,
    ];
    const bytes = `${head.join("\r\n")}\r\nconnection: close\r\n\r\n`;
    return JSON.parse(parseAnswer(await exchange(Number(new URL(portal.url).port), bytes)).body).public_url;
  };
  assert.equal(await urlFrom("localhost:8082"), service.url);
  assert.equal(await urlFrom("ai.example"), null);
  publicUrl = "https://api.example";
  assert.equal(await urlFrom("localhost:8082"), publicUrl);
  assert.equal(await urlFrom("ai.example"), publicUrl);
});
