/**
 * The operator's listener against DNS rebinding: requests must name a host of this listener, in
 * every place where HTTP names one. Sent as bytes, because clients set `Host` themselves.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fieldsOf, operatorToken, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { exchange, parseAnswer } from "../fixtures/raw-http.ts";
import { startService, type TestService } from "../fixtures/service.ts";

interface Asking {
  service: TestService;
  /** Sends one request with the operator token; the status, and the code of a refusal. */
  ask(requestLine: string, ...headers: string[]): Promise<[status: number, code: unknown]>;
  messageOf(requestLine: string, ...headers: string[]): Promise<string>;
}

/** The body of every request; routes that take none ignore it. */
const newAccount = JSON.stringify({ id: "ada", plan: "test" });

let service: TestService;
let operator: TestOperator;
before(async () => {
  service = await startService();
  operator = await startOperator(service, ["Ops.Example", "xn--bro-hoa.example.", "node_a", "fd00::1"]);
});
after(async () => {
  await operator[Symbol.asyncDispose]();
  await service[Symbol.asyncDispose]();
});

/**
 * Sends one request to a listener whose names are `ops.example`, `xn--bro-hoa.example` and
 * `node_a`.
 */
async function answerTo(requestLine: string, headers: readonly string[]) {
  const head = [
    requestLine,
    ...headers,
    `authorization: Bearer ${operatorToken}`,
    "connection: close",
    `content-length: ${newAccount.length}`,
    "content-type: application/json",
  ];
  const bytes = `${head.join("\r\n")}\r\n\r\n${newAccount}`;
  const { status, body } = parseAnswer(await exchange(Number(new URL(operator.url).port), bytes));
  const isError = status >= 400 && body.startsWith("{");
  return { status, error: isError ? fieldsOf(fieldsOf(JSON.parse(body)).error) : {} };
}

function hostTest(name: string, run: (asking: Asking) => Promise<void>): void {
  void test(name, () =>
    run({
      service,
      ask: async (requestLine, ...headers) => {
        const { status, error } = await answerTo(requestLine, headers);
        return [status, error.code];
      },
      messageOf: async (requestLine, ...headers) =>
        String((await answerTo(requestLine, headers)).error.message),
    }),
  );
}

const allowed = [200, undefined];
const hostRefused = [403, "host_not_allowed"];
const originRefused = [403, "origin_not_allowed"];

for (const host of `127.0.0.1 127.0.0.1:8081 127.0.0.1:1 10.1.2.3:8081 127.0.0.1. [::1] [::1]:8081 [fd00::1]:8081 [::ffff:127.0.0.1]
  localhost LocalHost:9 localhost. ops.example OPS.EXAMPLE.:443 xn--bro-hoa.example XN--BRO-HOA.example node_a:8081`.split(
  /\s+/,
)) {
  hostTest(`accepts the host ${host}`, async ({ ask }) => {
    for (const path of ["/readyz", "/metrics", "/admin/accounts"]) {
      assert.deepEqual(await ask(`GET ${path} HTTP/1.1`, `Host: ${host}`), allowed, path);
    }
  });
}

const wrongHosts = `evil.example evil.example:8081 evil.ops.example ops.example.evil.example ops.exampl ops.example.. localhost.evil.example evil.localhost
  127.0.0.1.evil.example 127.1 2130706433 0x7f000001 ::1 [::1 [127.0.0.1] [localhost] [] localhost@evil.example
  evil.example@localhost localhost/evil localhost:80:80 localhost:evil büro.example :8081`;
for (const host of [...wrongHosts.split(/\s+/), "localhost, evil.example", "localhost evil.example", ""]) {
  hostTest(`refuses the host "${host}" on every path but /healthz`, async ({ ask }) => {
    for (const path of ["/readyz", "/metrics", "/admin/accounts", "/admin/openapi.json", "/", "/admin/%zz"]) {
      assert.deepEqual(await ask(`GET ${path} HTTP/1.1`, `Host: ${host}`), hostRefused, path);
    }
    assert.deepEqual(await ask("GET /healthz HTTP/1.1", `Host: ${host}`), allowed);
  });
}

hostTest("refuses a wrong host before it looks at the token", async ({ ask }) => {
  const request = ["GET /admin/accounts HTTP/1.1", "Authorization: Bearer wrong"] as const;
  assert.deepEqual(await ask(...request, "Host: evil.example"), hostRefused);
  assert.deepEqual(await ask(...request, "Host: localhost"), [401, "invalid_operator_token"]);
});

hostTest("changes nothing for a wrong host, whatever the method", async ({ ask, service }) => {
  assert.deepEqual(await ask("POST /admin/accounts HTTP/1.1", "Host: evil.example"), hostRefused);
  assert.equal(await service.store.accountSnapshot("ada"), null);
  assert.deepEqual(await ask("POST /admin/accounts HTTP/1.1", "Host: localhost"), [201, undefined]);
  for (const method of ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"]) {
    assert.equal((await ask(`${method} /metrics HTTP/1.1`, "Host: evil.example"))[0], 403, method);
  }
});

hostTest("accepts HTTP/1.0 without Host, and refuses HTTP/1.1 without", async ({ ask }) => {
  for (const path of ["/readyz", "/healthz", "/metrics"]) {
    assert.deepEqual(await ask(`GET ${path} HTTP/1.0`), allowed);
    assert.equal((await ask(`GET ${path} HTTP/1.1`))[0], 400);
  }
  assert.deepEqual(await ask("GET /metrics HTTP/1.0", "Host: evil.example"), hostRefused);
});

hostTest("refuses a request if one of several hosts is wrong", async ({ ask }) => {
  const line = "GET /metrics HTTP/1.1";
  assert.deepEqual(await ask(line, "Host: localhost", "Host: evil.example"), hostRefused);
  assert.deepEqual(await ask(line, "Host: evil.example", "Host: localhost"), hostRefused);
});

hostTest("checks the host of a target in absolute form too", async ({ ask }) => {
  assert.deepEqual(await ask("GET http://localhost:8081/metrics HTTP/1.1", "Host: localhost"), allowed);
  assert.deepEqual(await ask("GET https://OPS.example/metrics HTTP/1.1", "Host: localhost"), allowed);
  for (const target of [
    "http://evil.example/metrics",
    "HTTP://evil.example/metrics",
    "http://evil.example:80/metrics",
    "http://localhost@evil.example/metrics",
    "http://evil.example?/metrics",
    "http:///metrics",
    "http://evil.example/%zz",
  ]) {
    assert.deepEqual(await ask(`GET ${target} HTTP/1.1`, "Host: localhost"), hostRefused, target);
    assert.deepEqual(await ask(`GET ${target} HTTP/1.0`), hostRefused, target);
  }
  assert.deepEqual(await ask("GET http://localhost/metrics HTTP/1.1", "Host: evil.example"), hostRefused);
  assert.deepEqual(await ask("GET ftp://localhost/metrics HTTP/1.1", "Host: localhost"), [
    404,
    "unknown_path",
  ]);
  assert.deepEqual(await ask("GET http://evil.example/healthz HTTP/1.1", "Host: evil.example"), allowed);
});

const loopbackOrigins = ["http://127.0.0.1:8081", "http://[::1]:8081", "http://localhost:3000"];
for (const origin of [...loopbackOrigins, "https://ops.example", "https://OPS.example:8443"]) {
  hostTest(`accepts the origin ${origin}`, async ({ ask }) => {
    assert.deepEqual(await ask("GET /metrics HTTP/1.1", "Host: localhost", `Origin: ${origin}`), allowed);
  });
}

for (const origin of [
  "null",
  "",
  "http://evil.example",
  "http://evil.example:8081",
  "http://localhost.evil.example",
  "http://localhost@evil.example",
  "http://localhost http://evil.example",
  "localhost",
  "file://",
  "chrome-extension://localhost",
  "//localhost",
]) {
  hostTest(`refuses the origin "${origin}"`, async ({ ask }) => {
    for (const path of ["/readyz", "/metrics", "/admin/accounts"]) {
      const answer = await ask(`GET ${path} HTTP/1.1`, "Host: localhost", `Origin: ${origin}`);
      assert.deepEqual(answer, originRefused, path);
    }
    assert.deepEqual(await ask("GET /healthz HTTP/1.1", "Host: localhost", `Origin: ${origin}`), allowed);
  });
}

hostTest("refuses a request if one of several origins is wrong", async ({ ask }) => {
  const origins = ["Origin: http://localhost", "Origin: http://evil.example"];
  assert.deepEqual(await ask("GET /metrics HTTP/1.1", "Host: localhost", ...origins), originRefused);
});

hostTest("says which host was refused and which setting adds it", async ({ messageOf }) => {
  assert.equal(
    await messageOf("GET /metrics HTTP/1.1", "Host: inkwell:8081"),
    'This listener does not respond to requests for the host "inkwell:8081". IP addresses and localhost are always accepted. If the name is yours, add it to operator.hosts in inkwell.yaml.',
  );
  assert.match(
    await messageOf("GET /metrics HTTP/1.1", "Host: localhost", "Origin: https://evil.example"),
    /^This listener does not respond to pages of the origin "https:\/\/evil\.example"\. .*operator\.hosts/,
  );
  const long = await messageOf("GET /metrics HTTP/1.1", `Host: ${"a".repeat(10_000)}`);
  assert.ok(long.length < 400, `${long.length} characters`);
});

hostTest("logs each refusal with the host, unless that is not a name", async ({ ask, service }) => {
  service.log.length = 0;
  const refusals = () => service.log.filter(({ code }) => String(code).endsWith("_not_allowed"));
  await ask("GET /metrics HTTP/1.1", "Host: evil.example:8081");
  await ask("GET /readyz HTTP/1.1", "Host: localhost", "Origin: https://evil.example");
  await ask("GET /metrics HTTP/1.1", `Host: ${service.key}`);
  await ask("GET /metrics HTTP/1.1", "Host: evil{31m", "Origin: null");
  assert.deepEqual(
    refusals().map(({ code, host, origin }) => ({ code, host, origin })),
    [
      { code: "host_not_allowed", host: "evil.example:8081", origin: undefined },
      { code: "origin_not_allowed", host: "localhost", origin: "https://evil.example" },
      { code: "host_not_allowed", host: undefined, origin: undefined },
      { code: "host_not_allowed", host: undefined, origin: "null" },
    ],
  );
  assert.doesNotMatch(JSON.stringify(service.log), new RegExp(service.key));
});
