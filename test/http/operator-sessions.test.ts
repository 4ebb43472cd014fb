/**
 * Signing in to the console and sessions of operators, against the attacks on them: pages of other
 * ports, stolen and replayed secrets, guessing, and clocks.
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
import { pageHeader, pageSecret } from "../fixtures/page-header.ts";
import { startService } from "../fixtures/service.ts";
import { signInFrom } from "../fixtures/sign-ins.ts";
import { until } from "../fixtures/until.ts";

const sessionTest = operatorTests();

/** The secret of a page in another browser. */
const otherPage = "another-page-".padEnd(43, "x");
/** Values of the header that are no secret of a page. */
const notSecrets = [
  undefined,
  "0",
  "1",
  "true",
  "1, 1",
  pageSecret.slice(1),
  `${pageSecret}x`,
  `${pageSecret}, ${pageSecret}`,
  pageSecret.replace("-", "="),
];

const page = { authorization: undefined, ...pageHeader };
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

interface Jar {
  cookie: string;
  expires: string;
  idleExpires: string;
}

/** Signs in as a page does. */
async function signIn(
  operator: TestOperator,
  body: object = { token: operatorToken },
  headers = {},
): Promise<Jar> {
  const answer = await operator.ask("POST", "/admin/session", {
    headers: { ...page, ...headers },
    body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.headers.get("cache-control"), "no-store");
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
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

async function tryToken(operator: TestOperator, token: unknown, headers = {}): Promise<OperatorAnswer> {
  return await operator.ask("POST", "/admin/session", {
    headers: { ...page, ...headers },
    body: JSON.stringify({ token }),
  });
}

async function as(operator: TestOperator, cookie: string, path = "/admin/accounts", method = "GET") {
  return await operator.ask(method, path, { headers: { ...page, cookie } });
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
  refused(await as(operator, cookie, "/admin/session"), 401, "invalid_session");
});

sessionTest("an answer of an issuer is refused where none is configured", async (operator) => {
  const body = JSON.stringify({ response: "?code=1&state=1" });
  refused(await operator.ask("POST", "/admin/session", { headers: page, body }), 404, "sign_in_off");
});

sessionTest("the cookie is for this listener's pages alone, and not for scripts", async (operator) => {
  const answer = await tryToken(operator, operatorToken);
  assert.match(
    answer.headers.get("set-cookie") ?? "",
    /^inkwell_console=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
  );
});

sessionTest("a page on another port cannot use the cookie: it cannot send the header", async (operator) => {
  const { cookie } = await signIn(operator);
  const origin = "http://localhost:3000";
  for (const [method, path] of [
    ["GET", "/admin/accounts"],
    ["GET", "/admin/usage?format=csv"],
    ["GET", "/admin/session"],
    ["DELETE", "/admin/session"],
    ["POST", "/admin/reload"],
  ] as const) {
    for (const value of notSecrets) {
      const headers = { authorization: undefined, cookie, origin, "x-inkwell-request": value };
      refused(await operator.ask(method, path, { headers }), 403, "missing_request_header");
    }
  }
  const body = JSON.stringify({ token: operatorToken });
  const headers = { authorization: undefined, origin };
  refused(await operator.ask("POST", "/admin/session", { headers, body }), 403, "missing_request_header");
  assert.equal((await as(operator, cookie)).status, 200, "the session is as it was");
});

sessionTest("a server on another port, which gets the cookie, cannot use it", async (operator) => {
  const { cookie } = await signIn(operator);
  for (const [method, path] of [
    ["GET", "/admin/accounts"],
    ["GET", "/admin/session"],
    ["GET", "/admin/overview"],
    ["DELETE", "/admin/session"],
    ["POST", "/admin/reload"],
  ] as const) {
    for (const page of [otherPage, cookie.split("=")[1] ?? ""]) {
      const headers = { authorization: undefined, cookie, "x-inkwell-request": page };
      refused(await operator.ask(method, path, { headers }), 401, "invalid_session");
    }
  }
  // Its own session does not take over that of the page, and ends nothing.
  const theirs = await signIn(operator, undefined, { cookie, "x-inkwell-request": otherPage });
  refused(await as(operator, theirs.cookie), 401, "invalid_session");
  assert.equal((await as(operator, cookie)).status, 200, "the session is as it was");
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

sessionTest("signing in never takes over a given secret, and ends the session before", async (operator) => {
  const planted = `inkwell_console=${"A".repeat(43)}`;
  refused(await as(operator, planted), 401, "invalid_session");
  const first = await signIn(operator, { token: operatorToken }, { cookie: planted });
  assert.notEqual(first.cookie, planted);
  refused(await as(operator, planted), 401, "invalid_session");
  const second = await signIn(operator, { token: operatorToken }, { cookie: first.cookie });
  assert.notEqual(second.cookie, first.cookie);
  refused(await as(operator, first.cookie), 401, "invalid_session");
  assert.equal((await as(operator, second.cookie)).status, 200);
});

sessionTest(
  "a second cookie of the same name, which another page has set, counts as none",
  async (operator) => {
    const { cookie } = await signIn(operator);
    refused(await as(operator, `inkwell_console=${"B".repeat(43)}; ${cookie}`), 401, "invalid_session");
    refused(await as(operator, `${cookie}; ${cookie}`), 401, "invalid_session");
    assert.equal((await as(operator, `theme=dark; ${cookie}; other=1`)).status, 200);
  },
);

for (const [what, cookie] of [
  ["empty", "inkwell_console="],
  ["not a secret", "inkwell_console=' or 1=1 --"],
  ["long", `inkwell_console=${"x".repeat(5000)}`],
] as const) {
  sessionTest(`a cookie that is ${what} is no session`, async (operator) => {
    refused(await as(operator, cookie), 401, "invalid_session");
  });
}

sessionTest("the hash in the database is no secret for the cookie", async (operator, service) => {
  const { cookie } = await signIn(operator);
  const secret = cookie.split("=")[1] ?? "";
  const secrets = [secret, pageSecret, `${secret} ${pageSecret}`, `operator ${secret} ${pageSecret}`];
  const plain = secrets.map((each) => crypto.createHash("sha256").update(each).digest("hex"));
  assert.deepEqual(await service.store.sessions([...plain, ...secrets]), []);
  for (const each of [secret, pageSecret])
    assert.ok(!JSON.stringify(service.log).includes(each), "the log has no secret");
});

sessionTest("a code signs in once, and only within five minutes", async (operator, service) => {
  const code = await newCode(operator);
  const { cookie } = await signIn(operator, { code });
  assert.equal((await as(operator, cookie)).status, 200);
  const again = await operator.ask("POST", "/admin/session", {
    headers: page,
    body: JSON.stringify({ code }),
  });
  refused(again, 401, "invalid_code");
  const late = await newCode(operator);
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 5 * minuteMs);
  const answer = await operator.ask("POST", "/admin/session", {
    headers: page,
    body: JSON.stringify({ code: late }),
  });
  refused(answer, 401, "invalid_code");
  service.store.times = times;
  await signIn(operator, { code: late });
  const secrets = [code, late, operatorToken];
  for (const secret of secrets) assert.ok(!JSON.stringify(service.log).includes(secret), "not in the log");
});

sessionTest("of many uses of one code at the same time, one signs in", async (operator) => {
  const code = await newCode(operator);
  const answers = await Promise.all(
    Array.from({ length: 8 }, () =>
      operator.ask("POST", "/admin/session", { headers: page, body: JSON.stringify({ code }) }),
    ),
  );
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
});

sessionTest("secrets of one kind are none of another", async (operator) => {
  const code = await newCode(operator);
  refused(await as(operator, `inkwell_console=${code}`), 401, "invalid_session");
  refused(await as(operator, `inkwell_console=${code.padEnd(43, "A")}`), 401, "invalid_session");
  const { cookie } = await signIn(operator);
  const secret = cookie.split("=")[1] ?? "";
  const body = JSON.stringify({ code: secret });
  refused(await operator.ask("POST", "/admin/session", { headers: page, body }), 401, "invalid_code");
  refused(await as(operator, `inkwell_portal=${secret}`), 401, "missing_operator_token");
  refused(await as(operator, `__Host-inkwell_console=${secret}`), 401, "missing_operator_token");
  refused(await tryToken(operator, secret), 401, "invalid_operator_token");
});

sessionTest("a session makes no codes, so it cannot prolong itself", async (operator) => {
  const { cookie } = await signIn(operator);
  refused(await as(operator, cookie, "/admin/session/codes", "POST"), 403, "token_required");
});

sessionTest("the token has no session", async (operator) => {
  refused(await operator.get("/admin/session"), 401, "invalid_session");
  refused(await operator.delete("/admin/session"), 401, "invalid_session");
});

sessionTest(
  "a session ends after two idle hours, and after twelve in any case",
  async (operator, service) => {
    const { cookie } = await signIn(operator);
    const { times } = service.store;
    const nowMs = () => times().nowMs;
    let aheadMs = 0;
    service.store.times = () => timesAt(nowMs() + aheadMs);
    const idle = await signIn(operator);
    for (aheadMs = hourMs; aheadMs < 12 * hourMs - minuteMs; aheadMs += hourMs) {
      assert.equal((await as(operator, cookie)).status, 200, `after ${aheadMs / hourMs} h`);
      // The use is recorded beside the request.
      await service.store.removeSessions(service.store.times().nowMs);
    }
    refused(await as(operator, idle.cookie), 401, "invalid_session");
    refused(await as(operator, cookie), 401, "invalid_session");
    service.store.times = times;
  },
);

sessionTest("an idle session is refused before its row is removed", async (operator, service) => {
  const { cookie } = await signIn(operator);
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + 2 * hourMs);
  refused(await as(operator, cookie), 401, "invalid_session");
  service.store.times = times;
});

sessionTest("asking for the session does not prolong it", async (operator, service) => {
  const { cookie, idleExpires } = await signIn(operator);
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  service.store.times = () => timesAt(nowMs() + hourMs);
  assert.equal((await as(operator, cookie, "/admin/session")).body.idle_expires_at, idleExpires);
  // What pages ask by themselves does not, either.
  for (const path of ["/admin/overview", "/admin/accounts/test/live"]) await as(operator, cookie, path);
  assert.equal((await as(operator, cookie, "/admin/session")).body.idle_expires_at, idleExpires);
  await as(operator, cookie);
  // The use is recorded beside the request.
  await until("the use is recorded", async () => {
    const later = await as(operator, cookie, "/admin/session");
    return String(later.body.idle_expires_at) > idleExpires;
  });
  service.store.times = times;
});

sessionTest(
  "a clock that was wrong in the future gives a session no longer life",
  async (operator, service) => {
    const { times } = service.store;
    const wrongMs = times().atMs + 365 * 24 * hourMs;
    service.store.times = () => ({ ...times(), atMs: wrongMs });
    const { cookie } = await signIn(operator);
    assert.equal((await as(operator, cookie)).status, 200);
    service.store.times = () => timesAt(times().nowMs + 24 * hourMs);
    refused(await as(operator, cookie), 401, "invalid_session");
  },
);

void test("another token, after a restart, ends sessions and codes", async () => {
  await using service = await startService();
  await using before = await startOperator(service);
  const { cookie } = await signIn(before);
  const code = await newCode(before);
  {
    await using same = await startOperator(service);
    assert.equal((await as(same, cookie)).status, 200, "another node with the same token");
  }
  await using after = await startOperator(service, [], { token: "another-operator-token" });
  refused(await as(after, cookie), 401, "invalid_session");
  const body = JSON.stringify({ code });
  refused(await after.ask("POST", "/admin/session", { headers: page, body }), 401, "invalid_code");
});

void test("a session of another database is none here", async () => {
  await using one = await startService();
  await using other = await startService();
  await using here = await startOperator(one);
  await using there = await startOperator(other);
  const { cookie } = await signIn(there);
  refused(await as(here, cookie), 401, "invalid_session");
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
  const body = JSON.stringify({ code: await newCode(operator) });
  const byCode = () => operator.ask("POST", "/admin/session", { headers: page, body });
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

sessionTest("malformed and oversized bodies get one error, and repeat no token", async (operator) => {
  const send = (body: string, headers = {}) =>
    operator.ask("POST", "/admin/session", { headers: { ...page, ...headers }, body });
  refused(await send("{"), 400, "invalid_json");
  refused(await send(""), 400, "invalid_json");
  refused(await send("[]"), 400, "invalid_type");
  refused(await send('{"token":1}'), 400, "invalid_type");
  refused(await send('{"token":null}'), 400, "invalid_type");
  refused(await send("{}"), 400, "invalid_value");
  refused(await send(`{"token":"${operatorToken}","code":"x"}`), 400, "invalid_value");
  refused(await send(`{"token":"${operatorToken}","remember":true}`), 400, "unknown_parameter");
  refused(await send(`{"token":"${"x".repeat(21_000)}"}`), 413, "request_too_large");
  refused(await send("token=x", { "content-type": "text/plain" }), 415, "unsupported_media_type");
  const form = { "content-type": "application/x-www-form-urlencoded" };
  refused(await send(`token=${operatorToken}`, form), 415, "unsupported_media_type");
  const wrong = await send('{"token":"nearly-the-token"}');
  assert.ok(!refused(wrong, 401, "invalid_operator_token").includes("nearly"));
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

void test("over plain http, only loopback signs in", async () => {
  await using service = await startService();
  await using operator = await startOperator(service, ["ops.example"], {
    ownUrl: () => "http://ops.example",
  });
  const sessionUrl = new URL("/admin/session", operator.url);
  for (const [host, origin, result] of [
    ["127.0.0.1:8081", undefined, "200"],
    ["localhost:8081", "http://localhost:8081", "200"],
    ["localhost.:8081", undefined, "200"],
    ["[::1]:8081", "http://[::1]:8081", "200"],
    ["192.168.1.5:8081", undefined, "insecure_sign_in"],
    ["ops.example", "http://ops.example", "insecure_sign_in"],
    ["127.0.0.1:8081", "http://ops.example", "insecure_sign_in"],
    ["127.0.0.1:8081", "https://ops.example", "insecure_sign_in"],
    ["127.0.0.1.ops.example", undefined, "host_not_allowed"],
  ] as const) {
    assert.equal(
      await signInFrom(sessionUrl, { token: operatorToken }, host, origin),
      result,
      `${host} ${origin}`,
    );
  }
});

void test("with https in operator.url, the cookie is for https and this host alone", async () => {
  await using service = await startService();
  let ownUrl: string | null = "https://ops.example";
  await using operator = await startOperator(service, ["ops.example"], { ownUrl: () => ownUrl });
  const sessionUrl = new URL("/admin/session", operator.url);
  assert.equal(
    await signInFrom(sessionUrl, { token: operatorToken }, "ops.example", "https://ops.example"),
    "200",
  );
  assert.equal(
    await signInFrom(sessionUrl, { token: operatorToken }, "ops.example", "http://ops.example"),
    "insecure_sign_in",
  );
  const answer = await tryToken(operator, operatorToken);
  const [cookie = ""] = (answer.headers.get("set-cookie") ?? "").split(";");
  assert.match(
    answer.headers.get("set-cookie") ?? "",
    /^__Host-inkwell_console=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/,
  );
  assert.equal((await as(operator, cookie)).status, 200);
  refused(await as(operator, cookie.replace("__Host-", "")), 401, "missing_operator_token");
  ownUrl = null;
  refused(await as(operator, cookie), 401, "missing_operator_token");
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

for (const [where, signOut] of [
  [
    "here",
    async (here: TestOperator, _there: TestOperator, cookie: string) =>
      as(here, cookie, "/admin/session", "DELETE"),
  ],
  [
    "on another node",
    async (_here: TestOperator, there: TestOperator, cookie: string) =>
      as(there, cookie, "/admin/session", "DELETE"),
  ],
] as const) {
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
    assert.equal((await signOut(here, there, cookie)).status, 204);
    await assert.rejects(download);
    assert.ok(passedMs() < 1000);
    service.store.usage = usage;
    const state = await Promise.race([byToken, Promise.resolve("open")]);
    assert.equal(state, "open", "a request with the token goes on");
  });
}
