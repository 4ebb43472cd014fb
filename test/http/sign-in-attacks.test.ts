/**
 * Attacks on signing in with OpenID Connect: at a real issuer, and at one that lies. Each is
 * refused, nobody has a session afterwards, and the log of the operator names the reason.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { type Forged, type HostileIssuer, hmacWith, startHostileIssuer } from "../fixtures/hostile-issuer.ts";
import { type OperatorAnswer, refused } from "../fixtures/operator.ts";
import { type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";
import { stopTime } from "../fixtures/stopped-time.ts";

const rules = {
  operators: [{ kind: "group", value: "all", role: "owner" }],
  accounts: [
    { kind: "group", value: "all", plan: "test" },
    { kind: "domain", value: "example.edu", plan: "test" },
  ],
} as const;

const ada = { sub: "ada", email: "ada@example.edu", email_verified: true, groups: ["all"] };
const otherPage = { "x-inkwell-request": "another-page-".padEnd(43, "x") };

/** The answer is a refusal that gives nothing away, and the log has its reason. */
function assertRefused(
  place: SignInPlaces,
  answer: OperatorAnswer,
  { status = 401, code = "sign_in_failed", reason }: { status?: number; code?: string; reason: RegExp },
): void {
  refused(answer, status, code);
  assert.equal(answer.headers.get("set-cookie"), null);
  assert.match(place.reasons().at(-1) ?? "", reason);
  const log = JSON.stringify(place.service.log);
  assert.ok(!/eyJ[\w-]+\./.test(log), "no token is in the log");
  assert.ok(!log.includes(place.issuer.client.secret), "no secret is in the log");
}

describe("an answer of the real issuer", () => {
  let place: SignInPlaces;
  before(async () => {
    place = await startSignIn(rules);
    place.issuer.signsIn(ada);
  });
  after(() => place[Symbol.asyncDispose]());
  const unknown = /no sign-in of this page has begun with this state/;

  test("is used once: a code that is sent again", async () => {
    const query = await place.issuer.visit(await place.begin("portal"));
    assert.equal((await place.finish("portal", query)).status, 200);
    assertRefused(place, await place.finish("portal", query), { reason: unknown });
  });

  test("of an attacker does not sign in the page of a victim (login CSRF, fixation of the state)", async () => {
    const query = await place.issuer.visit(await place.begin("portal"));
    assertRefused(place, await place.finish("portal", query, otherPage), { reason: unknown });
  });

  test("has the code of an attacker and the state of a victim (injection of a code)", async () => {
    place.issuer.signsIn({ ...ada, sub: "mallory" });
    const foreign = new URLSearchParams(await place.issuer.visit(await place.begin("portal", otherPage)));
    place.issuer.signsIn(ada);
    const own = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    own.set("code", foreign.get("code") ?? "");
    assertRefused(place, await place.finish("portal", `?${own}`), { reason: /invalid_grant/ });
  });

  test("has an unknown state", async () => {
    const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    query.set("state", "x".repeat(43));
    assertRefused(place, await place.finish("portal", `?${query}`), { reason: unknown });
  });

  for (const [sentence, change] of [
    ["no state", (query: URLSearchParams) => query.delete("state")],
    ["two states", (query: URLSearchParams) => query.append("state", "x".repeat(43))],
  ] as const) {
    test(`has ${sentence}`, async () => {
      const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
      change(query);
      const reason = /the answer has no state, or more than one/;
      assertRefused(place, await place.finish("portal", `?${query}`), { reason });
    });
  }

  test("for the portal does not open the console", async () => {
    const query = await place.issuer.visit(await place.begin("portal"));
    assertRefused(place, await place.finish("operator", query), { reason: unknown });
  });

  test("names another issuer (mix-up)", async () => {
    const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    query.set("iss", "https://other.example");
    const reason = /unexpected "iss" \(issuer\) response parameter value/;
    assertRefused(place, await place.finish("portal", `?${query}`), { reason });
  });

  test("names no issuer, although this one always does (mix-up)", async () => {
    const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    query.delete("iss");
    assertRefused(place, await place.finish("portal", `?${query}`), { reason: /"iss" \(issuer\) missing/ });
  });

  test("has two codes", async () => {
    const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    query.append("code", "another");
    assertRefused(place, await place.finish("portal", `?${query}`), { reason: /"code" parameter/ });
  });

  test("brings a token of its own", async () => {
    const query = new URLSearchParams(await place.issuer.visit(await place.begin("portal")));
    query.append("id_token", "e30.e30.");
    assertRefused(place, await place.finish("portal", `?${query}`), { reason: /unsupported operation/ });
  });

  test("comes too late", async () => {
    const query = await place.issuer.visit(await place.begin("portal"));
    const { store } = place.service;
    const { times } = store;
    store.times = () => ({ ...times(), nowMs: times().nowMs + 11 * 60_000 });
    const answer = await place.finish("portal", query);
    store.times = times;
    assertRefused(place, answer, { reason: unknown });
  });

  test("comes after a reload to another issuer", async () => {
    const query = await place.issuer.visit(await place.begin("portal"));
    place.people.configure({ ...place.settings, issuer: "https://other.example" });
    const answer = await place.finish("portal", query);
    place.people.configure(place.settings);
    assertRefused(place, answer, { reason: unknown });
  });

  test("is an error with a text that would write into the log or the page", async () => {
    const { searchParams } = await place.begin("portal");
    const query = new URLSearchParams({
      error: "access_denied",
      state: searchParams.get("state") ?? "",
      iss: place.issuer.url,
      error_description: '<img src=x onerror="alert(1)">\n{"level":30,"msg":"an operator has signed in"}',
    });
    const answer = await place.finish("portal", `?${query}`);
    assertRefused(place, answer, { reason: /access_denied: <img src=x .*\\u000a\{/ });
    assert.ok(!answer.text.includes("img"));
  });

  test("is longer than any issuer sends", async () => {
    const answer = await place.finish("portal", `?state=${"x".repeat(17_000)}`);
    refused(answer, 400, "invalid_value");
  });
});

describe("a page", () => {
  let place: SignInPlaces;
  before(async () => {
    place = await startSignIn(rules);
    place.issuer.signsIn(ada);
  });
  after(() => place[Symbol.asyncDispose]());

  test("of another host is not where the issuer sends people (open redirect)", async () => {
    for (const headers of [{ host: "evil.example" }, { origin: "https://evil.example" }]) {
      const answer = await place.ask("portal", "POST", "/api/sign-in", undefined, headers);
      if ("host" in headers) continue; // The client of this test sends the true name.
      refused(answer, 403, "origin_not_allowed");
    }
    const forwarded = { "x-forwarded-host": "evil.example", "x-forwarded-proto": "https" };
    const begun = await place.ask(
      "portal",
      "POST",
      "/api/sign-in",
      { redirect_uri: "https://evil.example" },
      forwarded,
    );
    const page = new URL(String(begun.body.url));
    assert.equal(page.searchParams.get("redirect_uri"), `${place.portal.url}/signed-in`);
    refused(
      await place.ask("portal", "POST", "/api/sign-in?next=https://evil.example"),
      400,
      "unknown_parameter",
    );
  });

  test("of another origin can neither sign in nor sign out (CSRF)", async () => {
    const cookie = await place.signIn("portal");
    const without = { "x-inkwell-request": undefined };
    for (const [method, path] of [
      ["POST", "/api/sign-in"],
      ["DELETE", "/api/session"],
    ] as const) {
      const answer = await place.ask("portal", method, path, undefined, { cookie, ...without });
      refused(answer, 403, "missing_request_header");
    }
    const query = await place.issuer.visit(await place.begin("portal"));
    refused(await place.finish("portal", query, { cookie, ...without }), 403, "missing_request_header");
    refused(
      await place.ask("portal", "DELETE", "/api/session", undefined, { cookie, ...otherPage }),
      401,
      "invalid_session",
    );
    assert.equal((await place.ask("portal", "GET", "/api/session", undefined, { cookie })).status, 200);
  });

  test("cannot use the session of a person of the portal as that of an operator", async () => {
    const cookie = (await place.signIn("portal")).replace("inkwell_portal", "inkwell_console");
    const answer = await place.ask("operator", "GET", "/admin/accounts", undefined, { cookie });
    refused(answer, 401, "invalid_session");
  });

  test("cannot begin any number of sign-ins", async () => {
    using _ = stopTime();
    let answer = await place.ask("portal", "POST", "/api/sign-in");
    for (let n = 0; n < 130 && answer.status === 200; n += 1) {
      answer = await place.ask("portal", "POST", "/api/sign-in");
    }
    refused(answer, 429, "too_many_sign_ins");
  });
});

describe("an issuer that lies", () => {
  let place: SignInPlaces;
  let issuer: HostileIssuer;
  before(async () => {
    place = await startSignIn(rules);
    issuer = await startHostileIssuer();
  });
  after(async () => {
    await place[Symbol.asyncDispose]();
    await issuer[Symbol.asyncDispose]();
  });

  /** Signs in with what is forged now. Nothing of the attempts before is kept. */
  async function attempt(): Promise<OperatorAnswer> {
    place.people.configure({ ...place.settings, issuer: issuer.url });
    return await place.finish("portal", issuer.answer(await place.begin("portal")));
  }

  /** Nothing is forged unless a test does. */
  function honest(): void {
    issuer.forge = (token) => token;
    issuer.exchange = null;
    issuer.describe = (metadata) => metadata;
    issuer.userinfo = {};
  }

  const claims = (change: Record<string, unknown>) => (token: Forged) => ({
    ...token,
    payload: { ...token.payload, ...change },
  });
  const header = (change: Record<string, unknown>) => (token: Forged) => ({
    ...token,
    header: { ...token.header, ...change },
  });
  const seconds = () => Math.floor(Date.now() / 1000);
  const stranger = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;

  test("is believed as long as it does not (control)", async () => {
    honest();
    assert.equal((await attempt()).status, 200);
  });

  test("is believed if its clock differs by seconds (control)", async () => {
    honest();
    issuer.forge = claims({ nbf: seconds() + 20, exp: seconds() - 20, azp: "inkwell" });
    assert.equal((await attempt()).status, 200);
  });

  const forgeries: [sentence: string, forge: (token: Forged) => Forged, reason: RegExp][] = [
    ["no signature (alg none)", (t) => ({ ...header({ alg: "none" })(t), signature: () => "" }), /"alg"/],
    [
      "HS256 with the public key as the secret",
      (t) => ({ ...header({ alg: "HS256" })(t), signature: hmacWith(issuer.publicPem) }),
      /"alg"/,
    ],
    [
      "HS256 with the client secret",
      (t) => ({ ...header({ alg: "HS256" })(t), signature: hmacWith(place.issuer.client.secret) }),
      /"alg"/,
    ],
    ["an unknown kid", header({ kid: "two" }), /no applicable keys found/],
    ["the signature of another key", (t) => ({ ...t, key: stranger }), /signature/],
    [
      "a public key of its own in the header",
      (t) => ({ ...header({ jwk: { kty: "RSA" }, kid: "one" })(t), key: stranger }),
      /signature/,
    ],
    ["a critical header that nobody knows", header({ crit: ["x"], x: 1 }), /crit/],
    ["another issuer", claims({ iss: "https://login.example.edu" }), /"iss" \(issuer\)/],
    ["another audience", claims({ aud: "another-client" }), /"aud" \(audience\)/],
    ["two audiences, and is for the other", claims({ aud: ["inkwell", "b"], azp: "b" }), /"azp"/],
    ["two audiences, and does not say for whom", claims({ aud: ["inkwell", "b"] }), /"aud"/],
    ["our audience, and is for another client", claims({ azp: "b" }), /\(azp\)/],
    [
      "our audience in a list, and is for another client",
      claims({ aud: ["inkwell"], azp: "b" }),
      /another client/,
    ],
    ["the nonce of another sign-in", claims({ nonce: "x".repeat(43) }), /"nonce"/],
    ["no nonce", claims({ nonce: undefined }), /"nonce"/],
    ["an end that has passed", claims({ exp: seconds() - 60 }), /"exp"/],
    ["no end", claims({ exp: undefined }), /"exp"/],
    ["a beginning in the future", claims({ nbf: seconds() + 600 }), /"nbf"/],
    ["no sub", claims({ sub: undefined }), /"sub"/],
    ["a sub that is no text", claims({ sub: { $gt: "" } }), /"sub"/],
    ["a sub of 300 characters", claims({ sub: "x".repeat(300) }), /claim sub/],
    ["a sub with a line end", claims({ sub: "ada\nbob" }), /claim sub/],
  ];
  for (const [sentence, forge, reason] of forgeries) {
    test(`sends a token with ${sentence}`, async () => {
      honest();
      issuer.forge = forge;
      assertRefused(place, await attempt(), { reason });
    });
  }

  const notAdmitted = { status: 403, code: "not_admitted" };
  const strangers: [sentence: string, forge: (token: Forged) => Forged, reason: RegExp][] = [
    [
      "an address that is not verified",
      claims({ groups: [], email: "eve@example.edu", email_verified: false }),
      /no rule matches/,
    ],
    [
      'an address that is verified as "true"',
      claims({ groups: [], email: "eve@example.edu", email_verified: "true" }),
      /no rule matches/,
    ],
    [
      "an address without a word about it",
      claims({ groups: [], email: "eve@example.edu" }),
      /no rule matches/,
    ],
    [
      "a domain that ends like ours",
      claims({ groups: [], email: "eve@notexample.edu", email_verified: true }),
      /no rule matches/,
    ],
    [
      "our domain in front of another @",
      claims({ groups: [], email: "eve@example.edu@evil.example", email_verified: true }),
      /no rule matches/,
    ],
    ["groups that are an object", claims({ groups: { all: true } }), /no groups/],
    ["groups of which one is no text", claims({ groups: ["all", 7] }), /no groups/],
    ["more groups than anybody has", claims({ groups: Array(10_001).fill("all") }), /no groups/],
    [
      "a list of groups elsewhere, because they are too many",
      claims({ groups: undefined, _claim_names: { groups: "src1" }, _claim_sources: { src1: {} } }),
      /left out the groups because they are too many, and no other rule/,
    ],
    [
      "groups that it does not list",
      claims({ groups: undefined, hasgroups: true }),
      /left out the groups because they are too many/,
    ],
    ["no groups", claims({ groups: undefined, _claim_names: { other: "src1" } }), /has sent no groups/],
    ["a group in other letters", claims({ groups: ["ALL"] }), /no rule matches/],
  ];
  for (const [sentence, forge, reason] of strangers) {
    test(`vouches for ${sentence}`, async () => {
      honest();
      issuer.forge = (token) => forge(claims({ sub: sentence })(token));
      assertRefused(place, await attempt(), { ...notAdmitted, reason });
    });
  }

  test("sends claims that look like HTML, or like another account: they are texts", async () => {
    honest();
    const name = '<script>alert("x")</script>';
    issuer.forge = claims({ sub: "test", name, preferred_username: "test", account: "test" });
    const answer = await attempt();
    const [cookie = ""] = (answer.headers.get("set-cookie") ?? "").split(";");
    const { body } = await place.ask("portal", "GET", "/api/account", undefined, { cookie });
    assert.match(String(body.account), /^p-[0-9a-f]{16}$/);
    assert.equal((await place.service.store.contact(String(body.account)))?.owner, name);
  });

  const broken: [sentence: string, lie: () => void, status: number, code: string, reason: RegExp][] = [
    [
      "sends no ID token",
      () => {
        issuer.exchange = (response) =>
          response
            .setHeader("content-type", "application/json")
            .end(JSON.stringify({ access_token: "at", token_type: "Bearer" }));
      },
      401,
      "sign_in_failed",
      /id_token/,
    ],
    [
      "sends no JSON",
      () => {
        issuer.exchange = (response) => response.setHeader("content-type", "text/html").end("<p>Hello");
      },
      401,
      "sign_in_failed",
      /content-type/,
    ],
    [
      "sends a token of a megabyte",
      () => {
        issuer.forge = claims({ padding: "x".repeat(1024 * 1024) });
      },
      503,
      "issuer_unavailable",
      /more than 256 KiB/,
    ],
    [
      "fails",
      () => {
        issuer.exchange = (response) => response.writeHead(502).end();
      },
      503,
      "issuer_unavailable",
      /status 502/,
    ],
    [
      "limits the rate",
      () => {
        issuer.exchange = (response) => response.writeHead(429).end();
      },
      503,
      "issuer_unavailable",
      /status 429/,
    ],
    [
      "closes the connection",
      () => {
        issuer.exchange = (response) => response.destroy();
      },
      503,
      "issuer_unavailable",
      /cannot be reached/,
    ],
    [
      "refuses the client",
      () => {
        issuer.exchange = (response) =>
          response
            .writeHead(401, { "content-type": "application/json" })
            .end(JSON.stringify({ error: "invalid_client" }));
      },
      503,
      "issuer_unavailable",
      /invalid_client/,
    ],
    [
      "redirects the client secret to another host",
      () => {
        issuer.describe = (metadata) => ({ ...metadata, token_endpoint: `${issuer.url}/redirect` });
      },
      401,
      "sign_in_failed",
      /status code/,
    ],
  ];
  for (const [sentence, lie, status, code, reason] of broken) {
    test(sentence, async () => {
      honest();
      lie();
      assertRefused(place, await attempt(), { status, code, reason });
      assert.deepEqual(issuer.elsewhere, []);
    });
  }

  test("sends groups of another person from its userinfo endpoint", async () => {
    honest();
    issuer.forge = claims({ sub: "eve", groups: undefined });
    issuer.userinfo = { sub: "somebody-else", groups: ["all"] };
    assertRefused(place, await attempt(), { ...notAdmitted, reason: /no groups/ });
  });

  const descriptions: [sentence: string, change: Record<string, unknown>, reason: RegExp][] = [
    ["another issuer", { issuer: "https://login.example.edu" }, /issuer/],
    ["a script as its page", { authorization_endpoint: "javascript:alert(1)" }, /only HTTP and HTTPS/],
    ["no keys", { jwks_uri: undefined }, /jwks_uri/],
    ["signatures with secrets only", { id_token_signing_alg_values_supported: ["HS256"] }, /"alg"/],
  ];
  for (const [sentence, change, reason] of descriptions) {
    test(`describes itself with ${sentence}`, async () => {
      honest();
      issuer.describe = (metadata) => ({ ...metadata, ...change });
      place.people.configure({ ...place.settings, issuer: issuer.url });
      const begun = await place.ask("portal", "POST", "/api/sign-in");
      if (begun.status !== 200)
        return assertRefused(place, begun, { status: 503, code: "issuer_unavailable", reason });
      const answer = await place.finish("portal", issuer.answer(new URL(String(begun.body.url))));
      assertRefused(place, answer, { reason });
    });
  }

  test("has changed its keys: a token of the old key is refused, and one of the new key is not", async () => {
    honest();
    assert.equal((await attempt()).status, 200);
    const next = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const { keys } = issuer;
    const again = async () => await place.finish("portal", issuer.answer(await place.begin("portal")));
    issuer.keys = [{ ...next.publicKey.export({ format: "jwk" }), kid: "next", use: "sig" }];
    issuer.forge = (token) => ({ ...header({ kid: "next" })(token), key: next.privateKey });
    // The old keys are still known, so the first attempt may fail. It causes a new reading.
    await again();
    assert.equal((await again()).status, 200);
    issuer.forge = (token) => token;
    assertRefused(place, await again(), { reason: /no applicable keys found/ });
    issuer.keys = keys;
  });
});
