/**
 * Signing in to the console, and what sessions of operators have beside the rules of
 * sessions.test.ts: codes, attempts, and the end of downloads.
 */
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import { mock, test } from "node:test";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { limits } from "../../src/limits/limits.ts";
import { TokenBucket } from "../../src/limits/token-bucket.ts";
import {
  type OperatorAnswer,
  operatorTests,
  operatorToken,
  refused,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { startService } from "../fixtures/service.ts";

const sessionTest = operatorTests();

const page = { authorization: undefined, ...pageHeader };
const minuteMs = 60_000;

interface Jar {
  cookie: string;
  expires: string;
  idleExpires: string;
}

/** Signs in as a page does. */
async function signIn(operator: TestOperator, body: object = { token: operatorToken }): Promise<Jar> {
  const answer = await operator.ask("POST", "/admin/session", { headers: page, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, answer.text);
  const [cookie = ""] = (answer.headers.get("set-cookie") ?? "").split(";");
  return {
    cookie,
    expires: String(answer.body.expires_at),
    idleExpires: String(answer.body.idle_expires_at),
  };
}

test("a session is given out after its sign-in is an event, and not if the event fails", async () => {
  const signedIn: string[] = [];
  let failure: Error | null = null;
  await using service = await startService();
  await using operator = await startOperator(service, [], {
    onSignedIn: async ({ hash, owner }) => {
      if (failure !== null) throw failure;
      assert.equal((await service.store.sessions([hash])).length, 1);
      signedIn.push(owner);
    },
  });
  await signIn(operator);
  await signIn(operator, { code: await newCode(operator) });
  assert.deepEqual(signedIn, ["operator", "operator"]);
  failure = new Error("the database is away");
  const answer = await tryToken(operator, operatorToken);
  assert.deepEqual([answer.status, answer.headers.get("set-cookie")], [500, null]);
});

async function tryToken(operator: TestOperator, token: unknown): Promise<OperatorAnswer> {
  return await operator.ask("POST", "/admin/session", { headers: page, body: JSON.stringify({ token }) });
}

async function as(operator: TestOperator, cookie: string, path = "/admin/accounts", method = "GET") {
  return await operator.ask(method, path, { headers: { ...page, cookie } });
}

async function tryCode(operator: TestOperator, code: unknown): Promise<OperatorAnswer> {
  return await operator.ask("POST", "/admin/session", { headers: page, body: JSON.stringify({ code }) });
}

async function newCode(operator: TestOperator): Promise<string> {
  const answer = await operator.ask("POST", "/admin/session/codes");
  assert.equal(answer.status, 201, answer.text);
  return String(answer.body.code);
}

sessionTest("a session has the rights of the token, until it signs out", async (operator) => {
  const { cookie, expires, idleExpires } = await signIn(operator);
  assert.equal((await as(operator, cookie)).status, 200);
  const opened = await operator.ask("POST", "/admin/accounts", {
    headers: { ...page, cookie },
    body: JSON.stringify({ id: "ada", plan: "test" }),
  });
  assert.equal(opened.status, 201, opened.text);
  const shown = await as(operator, cookie, "/admin/session");
  const ends = { expires_at: expires, idle_expires_at: idleExpires };
  assert.deepEqual(shown.body, { ...ends, timezone: "UTC", person: null, role: "owner" });
  const out = await as(operator, cookie, "/admin/session", "DELETE");
  assert.deepEqual([out.status, out.text], [204, ""]);
  assert.match(out.headers.get("set-cookie") ?? "", /^inkwell_console=; Path=\/; Max-Age=0;/);
  refused(await as(operator, cookie), 401, "invalid_session");
  refused(await as(operator, cookie, "/admin/sessions"), 401, "invalid_session");
});

sessionTest("an answer of an issuer is refused where none is configured", async (operator) => {
  const body = JSON.stringify({ response: "?code=1&state=1" });
  refused(await operator.ask("POST", "/admin/session", { headers: page, body }), 404, "sign_in_off");
});

sessionTest("a pre-flight request is refused, and no answer has a CORS header", async (operator) => {
  const { cookie } = await signIn(operator);
  for (const path of ["/admin/session", "/admin/accounts", "/admin/reload", "/healthz", "/console"]) {
    for (const extra of [{}, { cookie, ...pageHeader }]) {
      const { status, headers } = await operator.ask("OPTIONS", path, {
        headers: {
          authorization: undefined,
          origin: "http://localhost:3000",
          "access-control-request-method": "POST",
          "access-control-request-headers": "x-inkwell-request,content-type",
          ...extra,
        },
      });
      assert.ok(status >= 400, `${path}: ${status}`);
      assert.deepEqual(
        [...headers.keys()].filter((name) => name.startsWith("access-control")),
        [],
      );
    }
  }
});

sessionTest("a code signs in once, and only within five minutes", async (operator, service) => {
  const code = await newCode(operator);
  const { cookie } = await signIn(operator, { code });
  assert.equal((await as(operator, cookie)).status, 200);
  refused(await tryCode(operator, code), 401, "invalid_code");
  const late = await newCode(operator);
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 5 * minuteMs);
  refused(await tryCode(operator, late), 401, "invalid_code");
  service.store.times = times;
  await signIn(operator, { code: late });
  const secrets = [code, late, operatorToken];
  for (const secret of secrets) assert.ok(!JSON.stringify(service.log).includes(secret), "not in the log");
});

sessionTest("of many uses of one code at the same time, one signs in", async (operator) => {
  const code = await newCode(operator);
  const answers = await Promise.all(Array.from({ length: 8 }, () => tryCode(operator, code)));
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
});

sessionTest("secrets of one kind are none of another", async (operator) => {
  const code = await newCode(operator);
  refused(await as(operator, `inkwell_console=${code}`), 401, "invalid_session");
  refused(await as(operator, `inkwell_console=${code.padEnd(43, "A")}`), 401, "invalid_session");
  const { cookie } = await signIn(operator);
  const secret = cookie.split("=")[1] ?? "";
  refused(await tryCode(operator, secret), 401, "invalid_code");
  refused(await as(operator, `inkwell_portal=${secret}`), 401, "missing_operator_token");
  refused(await as(operator, `__Host-inkwell_console=${secret}`), 401, "missing_operator_token");
  refused(await tryToken(operator, secret), 401, "invalid_operator_token");
});

sessionTest("a session makes no codes, so it cannot prolong itself", async (operator) => {
  const { cookie } = await signIn(operator);
  refused(await as(operator, cookie, "/admin/session/codes", "POST"), 403, "token_required");
});

sessionTest("the token has no session", async (operator) => {
  refused(await operator.get("/admin/session"), 403, "missing_request_header");
  refused(await operator.get("/admin/sessions"), 401, "invalid_session");
  refused(await operator.delete("/admin/session"), 401, "invalid_session");
});

void test("another token, after a restart, ends codes", async () => {
  await using service = await startService();
  await using before = await startOperator(service);
  const code = await newCode(before);
  await using after = await startOperator(service, [], { token: "another-operator-token" });
  refused(await tryCode(after, code), 401, "invalid_code");
});

const { most } = limits.signIns;

void test("attempts are limited, right ones too, and the token with Bearer never is", async () => {
  let nowMs = 0;
  await using service = await startService();
  const attempts = new TokenBucket(limits.signIns, { nowMs: () => nowMs });
  await using operator = await startOperator(service, [], { attempts });
  for (let n = 0; n < 40; n += 1) await signIn(operator);
  const guesses = await Promise.all(
    Array.from({ length: most - 40 }, (_, n) => tryToken(operator, `guess-${n}`)),
  );
  for (const guess of guesses) refused(guess, 401, "invalid_operator_token");
  const limited = await tryToken(operator, operatorToken);
  assert.match(refused(limited, 429, "too_many_sign_ins"), /120 attempts .* within a minute.* header/);
  assert.equal(limited.headers.get("retry-after"), "1");
  assert.equal(limited.headers.get("set-cookie"), null);
  const code = await newCode(operator);
  const byCode = () => tryCode(operator, code);
  refused(await byCode(), 429, "too_many_sign_ins");
  assert.equal((await operator.get("/admin/accounts")).status, 200, "the token works in its header");
  nowMs += 1000;
  assert.equal((await byCode()).status, 200, "the code was not looked at before");
  const metrics = (await operator.get("/metrics")).text;
  assert.match(metrics, /inkwell_sign_ins_total\{listener="operator",result="wrong_token"\} 80/);
  assert.match(metrics, /inkwell_sign_ins_total\{listener="operator",result="too_many"\} 2/);
  assert.match(metrics, /inkwell_sign_ins_total\{listener="operator",result="signed_in"\} 41/);
});

void test("clients behind a trusted proxy have attempts of their own, and a /64 network counts as one", async () => {
  await using service = await startService();
  await using operator = await startOperator(service, [], {
    isTrusted: (address) => address === "127.0.0.1",
    attempts: new TokenBucket(limits.signIns, { nowMs: () => 0 }),
  });
  const from = (address: string) =>
    operator.ask("POST", "/admin/session", {
      headers: { ...page, "x-forwarded-for": address },
      body: JSON.stringify({ token: operatorToken }),
    });
  for (let n = 0; n < most; n += 1) assert.equal((await from(`2001:db8:0:1::${n}`)).status, 200);
  refused(await from("2001:db8:0:1:ffff::"), 429, "too_many_sign_ins");
  assert.equal((await from("2001:db8:0:2::1")).status, 200);
  assert.equal((await from("203.0.113.7")).status, 200);
  const clients = service.log.filter(({ msg }) => msg === "an operator has signed in");
  assert.equal(clients.at(-1)?.client, "203.0.113.7");
});

sessionTest("the token is compared as digests of one length in constant time", async (operator) => {
  const compare = mock.method(crypto, "timingSafeEqual");
  syncBuiltinESMExports();
  try {
    const guesses = ["x", operatorToken.slice(0, -1), `${operatorToken}x`, "y".repeat(500)];
    for (const guess of guesses) refused(await tryToken(operator, guess), 401, "invalid_operator_token");
    const sizes = compare.mock.calls.map((call) => call.arguments.map((part) => part.byteLength));
    assert.deepEqual(
      sizes,
      guesses.map(() => [32, 32]),
    );
  } finally {
    compare.mock.restore();
    syncBuiltinESMExports();
  }
});

void test("signing out is answered, however long it takes", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const { cookie } = await signIn(operator);
  const { store } = service;
  // A database that never gives the first page of the download.
  store.usage = () => new Promise(() => {});
  const download = fetch(`${operator.url}/admin/usage`, { headers: { cookie, ...pageHeader } });
  download.catch(() => {});
  const end = store.endSession.bind(store);
  store.endSession = async (...session) => {
    const hasEnded = await end(...session);
    // The listener notices by itself that the session has ended.
    await assert.rejects(download);
    return hasEnded;
  };
  assert.equal((await as(operator, cookie, "/admin/session", "DELETE")).status, 204);
});

for (const where of ["here", "on another node"]) {
  void test(`signing out ${where} ends the session's download within a second`, async () => {
    await using service = await startService();
    await using here = await startOperator(service);
    await using there = await startOperator(service);
    const { cookie } = await signIn(here);
    // A database that never gives the first page of the download.
    const asked = Promise.withResolvers<void>();
    const { usage } = service.store;
    service.store.usage = () => {
      asked.resolve();
      return new Promise(() => {});
    };
    const download = fetch(`${here.url}/admin/usage`, { headers: { cookie, ...pageHeader } });
    const byToken = fetch(`${here.url}/admin/usage`, {
      headers: { authorization: `Bearer ${operatorToken}` },
    });
    // The download may end while the answer of the sign-out is awaited.
    for (const each of [download, byToken]) each.catch(() => {});
    await asked.promise;
    const passedMs = startOwnTime();
    const node = where === "here" ? here : there;
    assert.equal((await as(node, cookie, "/admin/session", "DELETE")).status, 204);
    await assert.rejects(download);
    assert.ok(passedMs() < 1000);
    service.store.usage = usage;
    const state = await Promise.race([byToken, Promise.resolve("open")]);
    assert.equal(state, "open", "a request with the token goes on");
  });
}
