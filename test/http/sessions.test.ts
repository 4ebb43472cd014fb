/**
 * What sessions of operators and of keys have in common, at both listeners: their cookie, their
 * ends, and the attacks on them. The rest is in operator-sessions.test.ts and
 * portal-sessions.test.ts.
 */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { describe, test } from "node:test";
import { timesAt } from "../../src/ledger/snapshot.ts";
import type { TokenBucket } from "../../src/limits/token-bucket.ts";
import {
  type AskOptions,
  type Fields,
  type OperatorAnswer,
  operatorToken,
  refused,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { pageHeader, pageSecret } from "../fixtures/page-header.ts";
import { sessionRoutesOf, startPortal } from "../fixtures/portal.ts";
import { startService, type TestService } from "../fixtures/service.ts";
import { signInFrom } from "../fixtures/sign-ins.ts";
import { until } from "../fixtures/until.ts";

type Given = NonNullable<AskOptions["headers"]>;
type Listener = Pick<TestOperator, "url" | "document" | "ask"> & AsyncDisposable;

interface Options {
  token?: string;
  hosts?: readonly string[];
  ownUrl?(): string | null;
  attempts?: TokenBucket;
}

interface Side {
  name: "operator" | "portal";
  cookie: string;
  /** The path of the session. */
  session: string;
  /** A path whose use counts. */
  used: string;
  /** Paths that pages ask by themselves. */
  unattended: readonly string[];
  start(service: TestService, options?: Options): Promise<Listener>;
  /** The field of the secret that signs in, and the secret. */
  secret(service: TestService): [field: string, text: string];
  /** Secrets that do not sign in, with what the answer must not repeat. */
  wrong(service: TestService): { text: string; code: string; hidden: string };
  /** Methods and paths that need a session. */
  routes(document: Fields): (readonly [method: string, path: string])[];
  /** The code of a request whose cookie has another name. */
  noSession: string;
}

const sides: readonly Side[] = [
  {
    name: "operator",
    cookie: "inkwell_console",
    session: "/admin/session",
    used: "/admin/accounts",
    unattended: ["/admin/overview", "/admin/accounts/test/live"],
    start: (service, { hosts, ...options } = {}) => startOperator(service, hosts, options),
    secret: () => ["token", operatorToken],
    wrong: () => ({ text: "nearly-the-token", code: "invalid_operator_token", hidden: "nearly" }),
    routes: () => [
      ["GET", "/admin/accounts"],
      ["GET", "/admin/usage?format=csv"],
      ["GET", "/admin/overview"],
      ["DELETE", "/admin/session"],
      ["POST", "/admin/reload"],
    ],
    noSession: "missing_operator_token",
  },
  {
    name: "portal",
    cookie: "inkwell_portal",
    session: "/api/session",
    used: "/api/account",
    unattended: ["/api/live"],
    start: (service, options) => startPortal(service, options),
    secret: ({ key }) => ["key", key],
    wrong({ key }) {
      const text = key.replace(/.$/, (last) => (last === "a" ? "b" : "a"));
      return { text, code: "invalid_api_key", hidden: text.slice(4, 20) };
    },
    routes: sessionRoutesOf,
    noSession: "invalid_session",
  },
];

const page = { authorization: undefined, ...pageHeader };
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
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

/** Pages at one listener. */
class Pages {
  readonly listener: Listener;
  readonly service: TestService;
  readonly side: Side;

  constructor(side: Side, service: TestService, listener: Listener) {
    this.side = side;
    this.service = service;
    this.listener = listener;
  }

  /** Sends a body to sign in. */
  async send(body: string, headers: Given = {}): Promise<OperatorAnswer> {
    const { listener, side } = this;
    return await listener.ask("POST", side.session, { headers: { ...page, ...headers }, body });
  }

  async trySecret(text: string): Promise<OperatorAnswer> {
    const [field] = this.side.secret(this.service);
    return await this.send(JSON.stringify({ [field]: text }));
  }

  /** Signs in. Returns the cookie. */
  async signIn(headers: Given = {}): Promise<string> {
    const [field, text] = this.side.secret(this.service);
    const answer = await this.send(JSON.stringify({ [field]: text }), headers);
    assert.equal(answer.status, 200, answer.text);
    const [cookie = ""] = (answer.headers.get("set-cookie") ?? "").split(";");
    return cookie;
  }

  async as(
    cookie: string,
    path = this.side.used,
    method = "GET",
    headers: Given = {},
  ): Promise<OperatorAnswer> {
    return await this.listener.ask(method, path, { headers: { ...page, cookie, ...headers } });
  }

  async isRefused(cookie: string): Promise<void> {
    refused(await this.as(cookie), 401, "invalid_session");
  }

  async isAccepted(cookie: string, when = "the session is valid"): Promise<void> {
    assert.equal((await this.as(cookie)).status, 200, when);
  }
}

/** Moves the time of the service ahead. Returns a function that sets how far. */
function timeOf({ store }: TestService): (aheadMs: number) => void {
  const { times } = store;
  return (aheadMs) => {
    store.times = aheadMs === 0 ? times : () => timesAt(times().nowMs + aheadMs);
  };
}

for (const side of sides) {
  const sessionTest = (name: string, run: (pages: Pages, service: TestService) => Promise<void>) =>
    test(name, async () => {
      await using service = await startService();
      await using listener = await side.start(service);
      await run(new Pages(side, service, listener), service);
    });

  describe(`sessions at the ${side.name}'s listener`, () => {
    sessionTest("have a cookie for its pages alone, and not for scripts", async (pages, service) => {
      const answer = await pages.trySecret(side.secret(service)[1]);
      const attributes = "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict";
      assert.match(
        answer.headers.get("set-cookie") ?? "",
        new RegExp(`^${side.cookie}=[\\w-]{43}; ${attributes}$`),
      );
      assert.equal(answer.headers.get("cache-control"), "no-store");
      assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    });

    sessionTest(
      "are closed to a page of another port, which cannot send the header",
      async (pages, service) => {
        const cookie = await pages.signIn();
        const origin = "http://localhost:3000";
        for (const [method, path] of side.routes(pages.listener.document)) {
          for (const value of notSecrets) {
            const answer = await pages.as(cookie, path, method, { origin, "x-inkwell-request": value });
            refused(answer, 403, "missing_request_header");
          }
        }
        const [field, text] = side.secret(service);
        const body = JSON.stringify({ [field]: text });
        const signIn = await pages.send(body, { origin, "x-inkwell-request": undefined });
        refused(signIn, 403, "missing_request_header");
        await pages.isAccepted(cookie, "the session is as it was");
      },
    );

    sessionTest("are closed to a server of another port, which gets the cookie", async (pages) => {
      const cookie = await pages.signIn();
      for (const [method, path] of side.routes(pages.listener.document)) {
        for (const secret of [otherPage, cookie.split("=")[1] ?? ""]) {
          const answer = await pages.as(cookie, path, method, { "x-inkwell-request": secret });
          refused(answer, 401, "invalid_session");
        }
      }
      // Its own session does not take over that of the page, and ends nothing.
      await pages.isRefused(await pages.signIn({ cookie, "x-inkwell-request": otherPage }));
      await pages.isAccepted(cookie, "the session is as it was");
    });

    sessionTest("are nothing, without a refusal, to a page that has none", async (pages, service) => {
      const cookie = await pages.signIn();
      const asked = (given: string, headers: Given = {}) => pages.as(given, side.session, "GET", headers);
      assert.notEqual((await asked(cookie)).text, "null");
      const setAhead = timeOf(service);
      for (const [given, headers = {}] of [
        [""],
        ["theme=dark"],
        [`${side.cookie}=${"A".repeat(43)}`],
        [`${cookie}; ${cookie}`],
        [cookie, { "x-inkwell-request": otherPage }],
        ["", { authorization: `Bearer ${operatorToken}` }],
        ["", { authorization: "Bearer wrong" }],
      ] as const) {
        const answer = await asked(given, headers);
        assert.deepEqual([answer.status, answer.text], [200, "null"], given);
        assert.equal(answer.headers.get("cache-control"), "no-store");
      }
      for (const value of notSecrets) {
        refused(await asked(cookie, { "x-inkwell-request": value }), 403, "missing_request_header");
      }
      refused(await asked(cookie, { origin: "https://evil.example" }), 403, "origin_not_allowed");
      setAhead(12 * hourMs);
      assert.equal((await asked(cookie)).text, "null", "it has ended");
      setAhead(0);
      assert.equal((await pages.as(cookie, side.session, "DELETE")).status, 204);
      assert.equal((await asked(cookie)).text, "null", "it was ended");
      await pages.isRefused(cookie);
    });

    sessionTest("take over no given secret, and end with the next sign-in", async (pages) => {
      const planted = `${side.cookie}=${"A".repeat(43)}`;
      await pages.isRefused(planted);
      const first = await pages.signIn({ cookie: planted });
      assert.notEqual(first, planted);
      await pages.isRefused(planted);
      const second = await pages.signIn({ cookie: first });
      assert.notEqual(second, first);
      await pages.isRefused(first);
      await pages.isAccepted(second);
    });

    sessionTest("are none with an odd cookie, or with two of the name", async (pages) => {
      const cookie = await pages.signIn();
      for (const value of ["", "' or 1=1 --", "x".repeat(5000)])
        await pages.isRefused(`${side.cookie}=${value}`);
      await pages.isRefused(`${side.cookie}=${"B".repeat(43)}; ${cookie}`);
      await pages.isRefused(`${cookie}; ${cookie}`);
      await pages.isAccepted(`theme=dark; ${cookie}; other=1`);
    });

    sessionTest("are in the database as keyed hashes, and in no log", async (pages, service) => {
      const cookie = await pages.signIn();
      const secret = cookie.split("=")[1] ?? "";
      const texts = [
        secret,
        pageSecret,
        `${secret} ${pageSecret}`,
        `${side.name} ${secret} ${pageSecret}`,
        side.secret(service)[1],
      ];
      const hashes = texts.map((text) => hash("sha256", text));
      assert.deepEqual(await service.store.sessions([...hashes, ...texts]), []);
      const log = JSON.stringify(service.log);
      for (const text of [secret, pageSecret, side.secret(service)[1]]) assert.ok(!log.includes(text), text);
    });

    sessionTest("end after two idle hours, and after twelve in any case", async (pages, service) => {
      const cookie = await pages.signIn();
      const setAhead = timeOf(service);
      const idle = await pages.signIn();
      for (let aheadMs = hourMs; aheadMs < 12 * hourMs - minuteMs; aheadMs += hourMs) {
        setAhead(aheadMs);
        await pages.isAccepted(cookie, `after ${aheadMs / hourMs} h`);
        // The row is there still: one is refused before it is removed.
        if (aheadMs === 2 * hourMs) await pages.isRefused(idle);
        // The use is recorded beside the request.
        await service.store.removeSessions(service.store.times().nowMs);
      }
      setAhead(12 * hourMs);
      await pages.isRefused(idle);
      await pages.isRefused(cookie);
      setAhead(0);
    });

    sessionTest(
      "are not prolonged by asking for them, nor by what pages ask by themselves",
      async (pages, service) => {
        const cookie = await pages.signIn();
        const ends = async () => (await pages.as(cookie, side.session)).body;
        const before = await ends();
        const setAhead = timeOf(service);
        setAhead(hourMs);
        assert.deepEqual(await ends(), before);
        for (const path of side.unattended) await pages.as(cookie, path);
        assert.deepEqual(await ends(), before);
        await pages.isAccepted(cookie);
        // The use is recorded beside the request.
        const { idle_expires_at: idleExpires } = before;
        await until(
          "the use is recorded",
          async () => String((await ends()).idle_expires_at) > String(idleExpires),
        );
        setAhead(0);
      },
    );

    sessionTest("live no longer by a clock that was wrong in the future", async (pages, service) => {
      const { store } = service;
      const { times } = store;
      const wrongMs = times().atMs + 365 * 24 * hourMs;
      let aheadMs = 0;
      store.times = () => ({ ...timesAt(times().nowMs + aheadMs), atMs: wrongMs });
      const cookie = await pages.signIn();
      for (; aheadMs < 12 * hourMs; aheadMs += hourMs) {
        await pages.isAccepted(cookie, `after ${aheadMs / hourMs} h`);
        await store.removeSessions(store.times().nowMs);
      }
      await pages.isRefused(cookie);
      store.times = times;
    });

    test("are those of all nodes and starts with this database and operator token", async () => {
      await using service = await startService();
      await using elsewhere = await startService();
      const at = async (of: TestService, options: Options = {}) => {
        await using listener = await side.start(of, options);
        return await new Pages(side, of, listener).as(cookie);
      };
      await using before = await side.start(service);
      const cookie = await new Pages(side, service, before).signIn();
      assert.equal((await at(service)).status, 200, "another node");
      await before[Symbol.asyncDispose]();
      assert.equal((await at(service)).status, 200, "after a restart");
      refused(await at(service, { token: "another-operator-token" }), 401, "invalid_session");
      refused(await at(elsewhere), 401, "invalid_session");
    });

    sessionTest(
      "begin with a body of the right form: others get one error, and no secret back",
      async (pages, service) => {
        const [field, secret] = side.secret(service);
        for (const [body, status, code] of [
          ["{", 400, "invalid_json"],
          ["", 400, "invalid_json"],
          ["[]", 400, "invalid_type"],
          [`{"${field}":1}`, 400, "invalid_type"],
          [`{"${field}":null}`, 400, "invalid_type"],
          ["{}", 400, "invalid_value"],
          [`{"${field}":"${secret}","response":"x"}`, 400, "invalid_value"],
          [`{"${field}":"${secret}","remember":true}`, 400, "unknown_parameter"],
          [`{"${field}":"${"x".repeat(21_000)}"}`, 413, "request_too_large"],
        ] as const) {
          refused(await pages.send(body), status, code);
        }
        for (const type of ["text/plain", "application/x-www-form-urlencoded"]) {
          const answer = await pages.send(`${field}=${secret}`, { "content-type": type });
          refused(answer, 415, "unsupported_media_type");
        }
        const { text, code, hidden } = side.wrong(service);
        assert.ok(!refused(await pages.trySecret(text), 401, code).includes(hidden));
      },
    );

    test("begin over plain http on loopback only, and with a name of the listener", async () => {
      await using service = await startService();
      await using listener = await side.start(service, {
        hosts: ["own.example"],
        ownUrl: () => "http://own.example",
      });
      const [field, secret] = side.secret(service);
      for (const [host, origin, result] of [
        ["127.0.0.1:8081", undefined, "200"],
        ["localhost:8081", "http://localhost:8081", "200"],
        ["localhost.:8081", undefined, "200"],
        ["[::1]:8081", "http://[::1]:8081", "200"],
        ["192.168.1.5:8081", undefined, "insecure_sign_in"],
        ["own.example", "http://own.example", "insecure_sign_in"],
        ["127.0.0.1:8081", "http://own.example", "insecure_sign_in"],
        ["127.0.0.1:8081", "https://own.example", "insecure_sign_in"],
        ["127.0.0.1:8081", "https://evil.example", "origin_not_allowed"],
        ["127.0.0.1:8081", "null", "origin_not_allowed"],
        ["127.0.0.1.own.example", undefined, "host_not_allowed"],
        ["evil.example", undefined, "host_not_allowed"],
      ] as const) {
        const url = new URL(side.session, listener.url);
        assert.equal(await signInFrom(url, { [field]: secret }, host, origin), result, `${host} ${origin}`);
      }
    });

    test("have a cookie for https and this host alone, if the listener's URL has https", async () => {
      await using service = await startService();
      let ownUrl: string | null = "https://own.example";
      await using listener = await side.start(service, { hosts: ["own.example"], ownUrl: () => ownUrl });
      const pages = new Pages(side, service, listener);
      const [field, secret] = side.secret(service);
      const from = (origin: string) =>
        signInFrom(new URL(side.session, listener.url), { [field]: secret }, "own.example", origin);
      assert.equal(await from("https://own.example"), "200");
      assert.equal(await from("http://own.example"), "insecure_sign_in");
      const answer = await pages.trySecret(secret);
      const set = answer.headers.get("set-cookie") ?? "";
      const attributes = "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure";
      assert.match(set, new RegExp(`^__Host-${side.cookie}=[\\w-]{43}; ${attributes}$`));
      const [cookie = ""] = set.split(";");
      await pages.isAccepted(cookie);
      refused(await pages.as(cookie.replace("__Host-", "")), 401, side.noSession);
      ownUrl = null;
      refused(await pages.as(cookie), 401, side.noSession);
    });
  });
}
