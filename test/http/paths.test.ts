/** Paths, methods, keys, headers, the order of refusals, and invalid HTTP. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import { type CallerCode, catalogue, type Entry } from "../../src/errors.ts";
import { exchange, parseAnswer, readAll } from "../fixtures/raw-http.ts";
import { errorOf, jsonOf, type RequestOptions, startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
before(async () => {
  service = await startService({ bodyBytesMax: 1000, otherModels: ["large"] });
});
after(() => service[Symbol.asyncDispose]());

const chat = "/v1/chat/completions";
const goodBody = '{"model":"small","messages":[{"role":"user","content":"x"}]}';

/** Returns the code of a refusal, and checks its status and type against the catalogue. */
async function refusal(response: Response): Promise<string> {
  const { code, type } = await errorOf(response);
  assert.match(response.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/);
  const entry = new Map<string, Entry>(Object.entries(catalogue)).get(code);
  assert.deepEqual([response.status, type], [entry?.status, entry?.type]);
  return code;
}

describe("answers 404 on every other path, with and without a key (maximhq/bifrost#2873)", () => {
  const paths = `/ /health /healthz /metrics /admin /favicon.ico /v1 /v1/ /v2/models /v1/completions
    /v1/embeddings /v1/images/generations /v1/audio/speech /v1/responses /v1/files /v1/batches
    /v1/fine_tuning/jobs /v1/moderations /v1/assistants /v1/threads /v1/vector_stores
    /v1/realtime /v1/models/small /v1/models/ /v1/balance/ /v1/chat/completions/ //v1/models
    /v1//models /V1/models /v1/Models /v1/%6dodels /v1%2fmodels /v1/models%20 /v1/models;x=1
    /v1/models/..;/models /% /v1/models% /v1/chat /v1/chat/completions.json`;
  for (const path of paths.split(/\s+/)) {
    for (const method of ["GET", "POST"]) {
      test(`${method} ${path}`, async () => {
        const body = method === "POST" ? { body: goodBody } : {};
        assert.equal(await refusal(await service.request(method, path, body)), "unknown_path");
        const stranger = await service.request(method, path, {
          ...body,
          headers: { authorization: undefined },
        });
        assert.equal(await refusal(stranger), "unknown_path");
      });
    }
  }
});

describe("answers 405 to other methods, with the allowed ones, without a key", () => {
  const rows: [path: string, allowed: string, methods: string[]][] = [
    [chat, "POST", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]],
    ["/v1/balance", "GET, HEAD", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"]],
    ["/v1/models", "GET, HEAD", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"]],
  ];
  for (const [path, allowed, methods] of rows) {
    for (const method of methods) {
      test(`${method} ${path}`, async () => {
        const response = await service.request(method, path, { headers: { authorization: undefined } });
        assert.equal(response.status, 405);
        assert.equal(response.headers.get("allow"), allowed);
        if (method !== "HEAD") assert.equal(await refusal(response), "method_not_allowed");
      });
    }
  }
});

describe("lets no browser guess another type, and no cache keep", () => {
  const asJson = (body: string, headers = {}) => ({ body, headers });
  const request = { messages: [{ role: "user", content: "x" }], model: "small" };
  const rows: [what: string, status: number, method: string, path: string, options?: RequestOptions][] = [
    ["an answer", 200, "POST", chat, asJson(goodBody)],
    ["the models", 200, "GET", "/v1/models"],
    ["the balance", 200, "GET", "/v1/balance"],
    ["the head of the balance", 200, "HEAD", "/v1/balance"],
    ["a request that is not valid", 400, "POST", chat, asJson("{")],
    ["a missing key", 401, "GET", "/v1/balance", { headers: { authorization: undefined } }],
    ["another path", 404, "GET", "/"],
    ["another model", 404, "POST", chat, asJson(JSON.stringify({ ...request, model: "none" }))],
    ["another method", 405, "DELETE", "/v1/balance"],
    ["the question of a browser", 405, "OPTIONS", chat, { headers: { origin: "https://app.example" } }],
    ["a body that is too large", 413, "POST", chat, asJson(`"${"x".repeat(1000)}"`)],
    ["a body of another type", 415, "POST", chat, asJson("x", { "content-type": "text/plain" })],
  ];
  for (const [what, status, method, path, options] of rows) {
    test(`${what}: ${status}`, async () => {
      const response = await service.request(method, path, options);
      await response.text();
      assert.equal(response.status, status);
      assert.equal(response.headers.get("x-content-type-options"), "nosniff");
      assert.equal(response.headers.get("cache-control"), "no-store");
    });
  }

  test("a refusal before the body has arrived, and bytes that are not HTTP", async () => {
    for (const [status, bytes] of [
      [401, `POST ${chat} HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\nx`],
      [400, "no HTTP\r\n\r\n"],
      [431, `GET / HTTP/1.1\r\nx: ${"x".repeat(20_000)}\r\n\r\n`],
    ] as const) {
      const socket = connect({ port: service.port, host: "127.0.0.1" });
      socket.write(bytes);
      const [received] = await once(socket, "data");
      const answer = parseAnswer(String(received));
      assert.equal(answer.status, status);
      assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
      assert.equal(answer.headers.get("cache-control"), "no-store");
      socket.destroy();
    }
  });

  test("a stream, which has its own rule for caches", async () => {
    const body = JSON.stringify({ ...request, stream: true });
    const response = await service.request("POST", chat, asJson(body));
    await response.text();
    assert.equal(response.status, 200);
    assert.equal(response.headers.get("x-content-type-options"), "nosniff");
    assert.equal(response.headers.get("cache-control"), "no-cache");
  });
});

for (const path of ["/v1/models", "/v1/balance"]) {
  test(`HEAD ${path} follows GET`, async () => {
    const get = await service.request("GET", path);
    const head = await service.request("HEAD", path);
    assert.equal(head.status, 200);
    assert.equal(head.headers.get("content-length"), get.headers.get("content-length"));
    assert.equal(await head.text(), "");
    const refused = await service.request("HEAD", path, { headers: { authorization: "Bearer nobody" } });
    assert.equal(refused.status, 401);
  });
}

test("a query string is ignored", async () => {
  assert.equal((await service.request("GET", "/v1/models?limit=%zz&x")).status, 200);
  assert.equal((await service.request("GET", "/v1/balance?")).status, 200);
  assert.equal((await service.request("POST", `${chat}?stream=true`, { body: goodBody })).status, 200);
});

test("accepts targets in absolute form", async () => {
  const head = `host: x\r\nauthorization: Bearer ${service.key}\r\nconnection: close\r\n\r\n`;
  const answer = parseAnswer(await exchange(service.port, `GET http://x/v1/models?a HTTP/1.1\r\n${head}`));
  assert.equal(answer.status, 200);
  assert.equal(parseAnswer(await exchange(service.port, `GET http://x HTTP/1.1\r\n${head}`)).status, 404);
});

describe("requires a key on every endpoint", () => {
  for (const [method, path] of [
    ["POST", chat],
    ["GET", "/v1/balance"],
    ["GET", "/v1/models"],
  ] as const) {
    test(`${method} ${path}`, async () => {
      const body = method === "POST" ? { body: goodBody } : {};
      const missing = await service.request(method, path, { ...body, headers: { authorization: undefined } });
      assert.equal(missing.headers.get("www-authenticate"), "Bearer");
      assert.equal(await refusal(missing), "missing_api_key");
      const wrong = await service.request(method, path, {
        ...body,
        headers: { authorization: "Bearer nobody" },
      });
      assert.equal(wrong.headers.get("www-authenticate"), "Bearer");
      assert.equal(await refusal(wrong), "invalid_api_key");
    });
  }
});

describe("checks requests in a fixed order", () => {
  const stranger = { authorization: undefined, "content-type": "text/plain" };
  const asText = { "content-type": "text/plain" };
  const long = "x".repeat(2000);
  // Each row also has the faults of all rows below it.
  const rows: [
    rule: string,
    path: string,
    headers: Record<string, string | undefined>,
    body: string,
    code: CallerCode,
  ][] = [
    ["the path comes before the key", "/nowhere", stranger, long, "unknown_path"],
    ["the method comes before the key", "/v1/models", stranger, long, "method_not_allowed"],
    ["the key comes before the size", chat, stranger, long, "missing_api_key"],
    ["the size comes before the media type", chat, asText, long, "request_too_large"],
    ["the media type comes before the JSON", chat, asText, "x", "unsupported_media_type"],
    ["the JSON comes before the fields", chat, {}, '{"model":"nope","messages":1', "invalid_json"],
    ["the fields come before the model", chat, {}, '{"model":"nope","messages":1}', "invalid_type"],
    ["the model comes before its length", chat, {}, goodBody.replace("small", "nope"), "model_not_found"],
  ];
  for (const [rule, path, headers, body, code] of rows) {
    test(rule, async () => {
      assert.equal(await refusal(await service.request("POST", path, { headers, body })), code);
    });
  }

  test("checks the path before the shutdown, and the shutdown before the key", async (t) => {
    await using draining = await startService();
    const { mock } = t.mock.method(draining.store, "findKey");
    void draining.server.requests.drain();
    for (const answer of [
      await draining.chat({ temperature: 9 }),
      await draining.chat({}, { headers: { authorization: "x" } }),
      await draining.request("GET", "/v1/models"),
      await draining.request("GET", "/v1/balance"),
    ])
      assert.equal(await refusal(answer), "shutting_down");
    const response = await draining.chat();
    assert.equal(response.headers.get("connection"), "close");
    assert.match(response.headers.get("retry-after") ?? "", /^\d+$/);
    assert.equal(await refusal(response), "shutting_down");
    assert.equal(await refusal(await draining.request("GET", "/")), "unknown_path");
    assert.equal(await refusal(await draining.request("PUT", "/v1/models")), "method_not_allowed");
    assert.deepEqual([draining.engine.options.length, mock.callCount()], [0, 0]);
  });
});

describe("the media type", () => {
  const rows: [type: string | undefined, status: number][] = [
    ["application/json", 200],
    ["application/json; charset=utf-8", 200],
    ["Application/JSON;charset=UTF-8", 200],
    [undefined, 415],
    ["", 415],
    ["text/plain", 415],
    ["application/json-patch+json", 415],
    ["application/x-www-form-urlencoded", 415],
    ["multipart/form-data; boundary=x", 415],
    ["json", 415],
    ["application/json/x", 415],
  ];
  for (const [type, status] of rows) {
    test(`content-type ${type ?? "absent"}`, async () => {
      const body = new TextEncoder().encode(goodBody);
      const response = await service.request("POST", chat, { body, headers: { "content-type": type } });
      assert.equal(response.status, status, await response.text());
    });
  }

  test("refuses a compressed body", async () => {
    const response = await service.request("POST", chat, {
      body: goodBody,
      headers: { "content-encoding": "gzip" },
    });
    assert.match((await errorOf(response.clone())).message, /without content-encoding/);
    assert.equal(await refusal(response), "unsupported_media_type");
  });
});

describe("the size of a body", () => {
  const padded = (length: number) => goodBody.padEnd(length, " ");

  test("may reach the limit, but not exceed it by one byte", async () => {
    assert.equal((await service.request("POST", chat, { body: padded(1000) })).status, 200);
    assert.equal(
      await refusal(await service.request("POST", chat, { body: padded(1001) })),
      "request_too_large",
    );
  });

  const head = (headers: string) =>
    `POST ${chat} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\n${headers}\r\n`;

  test("is limited for chunked bodies too", async () => {
    const chunk = `3e8\r\n${padded(1000)}\r\n`;
    const answer = parseAnswer(
      await exchange(
        service.port,
        `${head("connection: close\r\ntransfer-encoding: chunked\r\n")}${chunk}${chunk}${chunk}0\r\n\r\n`,
      ),
    );
    assert.equal(answer.status, 413);
    assert.equal(JSON.parse(answer.body).error.code, "request_too_large");
  });

  test("is refused while the client is still sending", async () => {
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    const received = readAll(socket);
    const piece = "x".repeat(65_536);
    const pieces = 200;
    socket.write(head(`content-length: ${piece.length * pieces}\r\n`));
    // On a slow machine the service closes first: it takes the rest for 5 s.
    for (let sent = 0; sent < pieces && !socket.destroyed; sent += 1) {
      if (socket.write(piece)) continue;
      await new Promise((resolve) => socket.once("drain", resolve).once("close", resolve));
    }
    const answer = parseAnswer(await received);
    assert.equal(answer.status, 413);
    assert.equal(JSON.parse(answer.body).error.code, "request_too_large");
  });

  test("is checked before the client is asked for its body (expect: 100-continue)", async () => {
    const expecting = "expect: 100-continue\r\nconnection: close\r\n";
    const refused = await exchange(service.port, head(`${expecting}content-length: 5000\r\n`));
    assert.match(refused, /^HTTP\/1\.1 413 /);
    const stranger = await exchange(
      service.port,
      head(`${expecting}content-length: 20\r\n`).replace(service.key, "nobody"),
    );
    assert.match(stranger, /^HTTP\/1\.1 401 /);
    const welcome = await exchange(
      service.port,
      head(`${expecting}content-length: ${goodBody.length}\r\n`) + goodBody,
    );
    assert.match(welcome, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
  });

  test("is reserved no longer if the body ends early", async () => {
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.write(head("content-length: 500\r\n") + goodBody);
    await once(socket, "connect");
    socket.destroy();
    assert.equal((await service.request("GET", "/v1/models")).status, 200);
  });
});

describe("unusual and invalid HTTP", () => {
  const post = `POST ${chat} HTTP/1.1\r\nhost: x\r\n`;
  const rows: [rule: string, bytes: string, status: number][] = [
    ["no request line", "hello\r\n\r\n", 400],
    ["another protocol", "\u0016\u0003\u0001\u0002\u0000", 400],
    ["a header without a colon", "GET /v1/models HTTP/1.1\r\nnonsense\r\n\r\n", 400],
    ["headers without end", `GET /v1/models HTTP/1.1\r\nx: ${"y".repeat(40_000)}\r\n\r\n`, 431],
    ["two lengths", `${post}content-length: 5\r\ncontent-length: 6\r\n\r\n`, 400],
    ["length and chunks", `${post}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n`, 400],
  ];
  for (const [rule, bytes, status] of rows) {
    test(rule, async () => {
      const answer = parseAnswer(await exchange(service.port, bytes));
      assert.equal(answer.status, status);
      const { error } = JSON.parse(answer.body);
      assert.equal(error.code, null);
      assert.deepEqual(Object.keys(error), ["message", "type", "param", "code"]);
    });
  }

  test("answers HTTP/1.1 without a host", async () => {
    const request = `GET /v1/models HTTP/1.1\r\nauthorization: Bearer ${service.key}\r\nconnection: close\r\n\r\n`;
    assert.equal(parseAnswer(await exchange(service.port, request)).status, 200);
  });

  test("closes the connection of a CONNECT request", async () => {
    for (const target of ["example.com:443", `127.0.0.1:${service.port}`, chat]) {
      const head = `host: x\r\nauthorization: Bearer ${service.key}\r\n`;
      assert.equal(await exchange(service.port, `CONNECT ${target} HTTP/1.1\r\n${head}\r\nmore bytes`), "");
    }
    for (const upgrade of ["h2c", "websocket", "TLS/1.0"]) {
      const head = `host: x\r\nauthorization: Bearer ${service.key}\r\nconnection: upgrade, close\r\nupgrade: ${upgrade}\r\n`;
      const answer = parseAnswer(await exchange(service.port, `GET /v1/models HTTP/1.1\r\n${head}\r\n`));
      assert.equal(answer.status, 200, `an offer of ${upgrade} is ignored`);
    }
    assert.equal((await service.request("GET", "/v1/models")).status, 200);
  });

  test("treats a missing body as an empty body", async () => {
    const head = `host: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\nconnection: close\r\n`;
    for (const length of ["", "content-length: 0\r\n"]) {
      const answer = parseAnswer(
        await exchange(service.port, `POST ${chat} HTTP/1.1\r\n${head}${length}\r\n`),
      );
      assert.equal(answer.status, 400);
      assert.match(JSON.parse(answer.body).error.message, /body is empty/);
    }
  });

  test("answers HTTP/1.0, where a stream ends with the connection", async () => {
    const body = goodBody.replace("{", '{"stream":true,');
    const request = `POST ${chat} HTTP/1.0\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    const answer = parseAnswer(await exchange(service.port, request));
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("transfer-encoding"), undefined);
    assert.match(answer.body, /^data: \{.*\n\ndata: \[DONE\]\n\n$/s);
  });
});

describe("CORS", () => {
  const preflight = {
    authorization: undefined,
    origin: "https://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
  };

  test("is disabled by default: a preflight request gets 405", async () => {
    assert.equal((await service.request("OPTIONS", chat, { headers: preflight })).status, 405);
    const answer = await service.request("GET", "/v1/models", { headers: { origin: "https://app.example" } });
    assert.equal(answer.headers.get("access-control-allow-origin"), null);
  });

  test("allows a listed origin, and exposes the headers that it needs", async () => {
    await using open = await startService({ corsOrigins: ["https://app.example"] });
    const asked = await open.request("OPTIONS", chat, { headers: preflight });
    assert.equal(asked.status, 204);
    assert.equal(asked.headers.get("access-control-allow-origin"), "https://app.example");
    assert.equal(asked.headers.get("access-control-allow-methods"), "POST");
    assert.equal(
      asked.headers.get("access-control-allow-headers"),
      preflight["access-control-request-headers"],
    );
    assert.equal(asked.headers.get("vary"), "Origin");
    for (const stream of [false, true]) {
      const answer = await open.request("POST", chat, {
        headers: { origin: "https://app.example" },
        body: goodBody.replace("{", `{"stream":${stream},`),
      });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get("access-control-allow-origin"), "https://app.example");
      assert.match(answer.headers.get("access-control-expose-headers") ?? "", /x-request-id/);
      await answer.text();
    }
    const refused = await open.request("GET", "/v1/models", {
      headers: { origin: "https://app.example", authorization: undefined },
    });
    assert.equal(refused.headers.get("access-control-allow-origin"), "https://app.example");
  });

  test("does not allow other origins, and keeps 404 for unknown paths and 405 for a plain OPTIONS", async () => {
    await using open = await startService({ corsOrigins: ["https://app.example"] });
    const other = await open.request("OPTIONS", chat, {
      headers: { ...preflight, origin: "https://evil.example" },
    });
    assert.equal(other.headers.get("access-control-allow-origin"), null);
    assert.equal((await open.request("OPTIONS", "/v1/files", { headers: preflight })).status, 404);
    const bare = await open.request("OPTIONS", chat);
    assert.equal(bare.status, 405);
    assert.equal(bare.headers.get("allow"), "POST, OPTIONS");
  });

  test("allows every origin with a star", async () => {
    await using open = await startService({ corsOrigins: ["*"] });
    const answer = await open.request("GET", "/v1/models", { headers: { origin: "null" } });
    assert.equal(answer.headers.get("access-control-allow-origin"), "*");
  });
});

interface ModelList {
  object: string;
  data: { id: string }[];
}

test("lists the models that both key and plan allow, in the order of the configuration", async () => {
  const list = await jsonOf<ModelList>(await service.request("GET", "/v1/models"));
  assert.deepEqual(Object.keys(list), ["object", "data"]);
  assert.deepEqual(
    list.data.map(({ id }) => id),
    ["small", "large"],
  );
  assert.deepEqual(list.data[0], {
    id: "small",
    object: "model",
    created: 1_700_000_000,
    owned_by: "inkwell",
    context_window: 8192,
    max_output_tokens: 8192,
    defaults: {},
    pricing: { prompt: 10, completion: 30, cached_prompt: 10 },
  });
  const narrow = await service.addKey({ models: ["large", "other"] });
  const narrowed = await service.request("GET", "/v1/models", {
    headers: { authorization: `Bearer ${narrow}` },
  });
  assert.deepEqual(
    (await jsonOf<ModelList>(narrowed)).data.map(({ id }) => id),
    ["large"],
  );
  const refused = await service.chat({}, { headers: { authorization: `Bearer ${narrow}` } });
  assert.equal(await refusal(refused), "model_not_allowed");
});

test("gives each request its own id, which is part of the id of the completion", async () => {
  const answers = await Promise.all(Array.from({ length: 20 }, () => service.chat()));
  const ids = answers.map((answer) => answer.headers.get("x-request-id"));
  assert.equal(new Set(ids).size, 20);
  for (const [index, answer] of answers.entries()) {
    assert.equal((await jsonOf<{ id: string }>(answer)).id, `chatcmpl-${ids[index]}`);
    assert.ok((await service.receipt(ids[index] ?? "")) !== undefined, "the ledger knows it too");
  }
});

test("sends the rate limits with answers and refusals", async () => {
  await using limited = await startService({
    plan: { limits: { requestsPerMinute: 2, tokensPerMinute: 1000 } },
  });
  const first = await limited.chat();
  assert.equal(first.headers.get("x-ratelimit-limit-requests"), "2");
  assert.equal(first.headers.get("x-ratelimit-remaining-requests"), "1");
  assert.match(first.headers.get("x-ratelimit-reset-requests") ?? "", /^[\d.]+m?s$/);
  assert.equal(first.headers.get("x-ratelimit-limit-tokens"), "1000");
  await first.text();
  const second = await limited.chat({ stream: true });
  assert.equal(second.headers.get("x-ratelimit-remaining-requests"), "0");
  await second.text();
  const third = await limited.chat();
  assert.equal(third.headers.get("x-ratelimit-remaining-requests"), "0");
  assert.equal(third.headers.get("x-ratelimit-limit-tokens"), "1000");
  assert.equal(await refusal(third), "rate_limit_exceeded");
  assert.match(third.headers.get("retry-after") ?? "", /^([1-9]|[1-5]\d|60)$/);
  assert.equal(
    (await service.chat()).headers.get("x-ratelimit-limit-requests"),
    null,
    "none without a limit",
  );
});

test("answers 402 without retry if the credits are spent, and 429 if they are held", async () => {
  // A greeting costs 30 micro-credits, each token of the answer 30.
  const { promise: refusedOnce, resolve: goOn } = Promise.withResolvers<void>();
  async function* heldBack() {
    yield "a";
    await refusedOnce;
    for (;;) yield "a";
  }
  await using poor = await startService({
    plan: {
      base: { credits: 1, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1D", align: "opening" },
    },
    price: { prompt: 1, completion: 300_000 },
  });
  poor.engine.script = () => ({ tokens: heldBack() });
  const running = await poor.chat({ stream: true });
  const held = await poor.chat();
  assert.match(held.headers.get("retry-after") ?? "", /^\d+$/);
  assert.equal(await refusal(held), "credits_reserved");
  goOn();
  const text = await running.text();
  assert.match(text, /"finish_reason":"length"/);
  const gone = await poor.chat();
  assert.equal(gone.headers.get("x-should-retry"), "false");
  assert.match((await errorOf(gone.clone())).message, /refresh at \d{4}-/);
  assert.equal(await refusal(gone), "insufficient_credits");
});

test("answers 429 without retry if the prompt alone exceeds the token limit", async () => {
  await using limited = await startService({ plan: { limits: { tokensPerMinute: 3 } } });
  const refused = await limited.chat({ messages: [{ role: "user", content: "one two three four" }] });
  assert.equal(refused.headers.get("x-should-retry"), "false");
  assert.equal(refused.headers.get("retry-after"), null);
  assert.match((await errorOf(refused.clone())).message, /this prompt alone/i);
  assert.equal(await refusal(refused), "rate_limit_exceeded");
});

test("answers 503 on every path if the database is away", async () => {
  await using service = await startService();
  const { StoreUnavailableError } = await import("../../src/errors.ts");
  const away = () => Promise.reject(new StoreUnavailableError("the disk at /secret is full"));
  const { commit, accountSnapshot } = service.store;
  Object.assign(service.store, { commit: away, accountSnapshot: away });
  for (const response of [await service.chat(), await service.request("GET", "/v1/balance")]) {
    assert.match(response.headers.get("retry-after") ?? "", /^\d+$/);
    assert.doesNotMatch(await response.clone().text(), /secret/);
    assert.equal(await refusal(response), "store_unavailable");
  }
  assert.match(JSON.stringify(service.log), /secret/);
  Object.assign(service.store, { commit, accountSnapshot });
});

describe("answers with an error status if the engine fails before the first token", () => {
  const codes = {
    overloaded: "overloaded",
    unavailable: "model_unavailable",
    failed: "upstream_error",
    timeout: "upstream_timeout",
  } as const;
  let failing: TestService;
  before(async () => {
    failing = await startService();
  });
  after(() => failing[Symbol.asyncDispose]());
  for (const kind of ["overloaded", "unavailable", "failed", "timeout"] as const) {
    const code = codes[kind];
    for (const at of ["prepare", "generate", "first token"] as const) {
      test(`${kind} at ${at} is ${code}`, async () => {
        const fault =
          at === "first token" ? { failure: { afterTokens: 0, kind } } : { refusal: { at, kind } };
        failing.engine.script = () => ({ tokens: ["x"], ...fault });
        for (const stream of [false, true]) {
          failing.log.length = 0;
          const response = await failing.chat({ stream });
          assert.equal(response.headers.get("content-type"), "application/json; charset=utf-8");
          if (response.status === 503) assert.match(response.headers.get("retry-after") ?? "", /^\d+$/);
          assert.doesNotMatch(await response.clone().text(), /script/, "an engine's own words stay inside");
          assert.equal(await refusal(response), code);
          assert.match(JSON.stringify(failing.log), /script/, "the log has the engine's own words");
        }
      });
    }
  }
});
