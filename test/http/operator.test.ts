/** The operator listener: authentication, refusals before any route, and the OpenAPI document. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Validator } from "@seriousme/openapi-schema-validator";
import { IsSchema } from "typebox/schema";
import { holdBack } from "../fixtures/held-back.ts";
import {
  type Fields,
  fieldsOf,
  operatorTests,
  operatorToken,
  refused,
  startOperator,
} from "../fixtures/operator.ts";
import { exchange } from "../fixtures/raw-http.ts";
import { startService } from "../fixtures/service.ts";

const operatorTest = operatorTests();

const withoutToken = { headers: { authorization: undefined } };

operatorTest("health, readiness and metrics need no token", async (operator) => {
  assert.deepEqual((await operator.ask("GET", "/healthz", withoutToken)).body, { status: "ok" });
  const ready = await operator.ask("GET", "/readyz", withoutToken);
  assert.equal(ready.status, 200);
  assert.deepEqual(ready.body, {
    ready: true,
    store: "ok",
    clock: "ok",
    draining: false,
    models: { small: "ready" },
    last_reload: null,
    warnings: [],
  });
  const metrics = await operator.ask("GET", "/metrics", withoutToken);
  assert.equal(metrics.status, 200);
  assert.match(metrics.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/);
});

operatorTest("is alive but not ready while it stops", async (operator, service) => {
  await service.server.requests.drain();
  assert.equal((await operator.get("/healthz")).status, 200);
  const { status, body } = await operator.get("/readyz");
  assert.deepEqual([status, body.ready, body.draining, body.store], [503, false, true, "ok"]);
});

operatorTest("is not ready without a model or without the store", async (operator, service) => {
  await service.engine.close();
  const { status, body } = await operator.get("/readyz");
  assert.deepEqual([status, body.models], [503, { small: "closed" }]);
  const { accounts } = service.store;
  service.store.accounts = () => Promise.reject(new Error("no such disk"));
  assert.equal((await operator.get("/readyz")).body.store, "unreachable");
  service.store.accounts = accounts;
});

operatorTest("answers probes and Prometheus while the store never does", async (operator, service) => {
  using _accounts = holdBack(service.store, "accounts");
  using _holds = holdBack(service.store, "holdTotals");
  using _audit = holdBack(service.store, "lastAudit");
  service.metrics.events.observe(() => new Promise(() => {}));
  const answers = Promise.all([operator.get("/readyz"), operator.get("/metrics")]);
  const answered = await Promise.race([answers, sleep(60_000, null, { ref: false })]);
  assert.ok(answered !== null, "they wait for the store");
  const [ready, metrics] = answered;
  assert.deepEqual([ready.status, ready.body.store], [503, "unreachable"]);
  assert.match(metrics.text, /^inkwell_held_credits nan$/im);
  assert.match(metrics.text, /^inkwell_events_pending\{endpoint=""\} nan$/im);
  assert.match(metrics.text, /^inkwell_running_requests 0$/m);
});

void test("is not ready while the database cannot be written", async () => {
  await using service = await startService();
  let isWritable = false;
  await using operator = await startOperator(service, [], { isWritable: () => isWritable });
  const { status, body } = await operator.get("/readyz");
  assert.deepEqual([status, body.ready, body.store], [503, false, "read_only"]);
  isWritable = true;
  assert.equal((await operator.get("/readyz")).body.store, "ok");
});

operatorTest("all other paths need the token, however they are spelled", async (operator) => {
  const paths =
    "/admin/accounts /%61dmin/accounts /admin%2faccounts //admin/accounts /admin/accounts/ /admin / /admin/openapi.json /admin/accounts/%zz /metrics/../admin/accounts";
  for (const path of paths.split(" ")) {
    const answer = await operator.ask("GET", path, withoutToken);
    refused(answer, 401, "missing_operator_token");
    assert.equal(answer.headers.get("www-authenticate"), "Bearer");
  }
});

operatorTest("leads a browser from / to the console, and nothing else", async (operator) => {
  const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
  const ask = (method: string, path: string, headers: Record<string, string> = { accept }) =>
    fetch(operator.url + path, { method, headers, redirect: "manual" });
  for (const [method, path] of [
    ["GET", "/"],
    ["HEAD", "/"],
    ["GET", "/?from=bookmark"],
  ] as const) {
    const answer = await ask(method, path);
    assert.deepEqual([answer.status, answer.headers.get("location")], [302, "/console"]);
    assert.equal(answer.headers.get("vary"), "accept");
    assert.equal(await answer.text(), "");
  }
  assert.equal((await fetch(`${operator.url}/`, { headers: { accept } })).status, 200);
  for (const other of ["*/*", "application/json", "text/htmlx", "application/x-text/html-not"]) {
    assert.equal((await ask("GET", "/", { accept: other })).status, 401, other);
  }
  for (const [method, path] of [
    ["POST", "/"],
    ["GET", "//"],
    ["GET", "/admin"],
    ["GET", "/admin/accounts"],
  ] as const) {
    const answer = await ask(method, path);
    assert.equal(answer.status, 401, `${method} ${path}`);
    assert.match(await answer.text(), /missing_operator_token/);
  }
  const { port } = new URL(operator.url);
  const head = `GET / HTTP/1.1\r\nhost: evil.example:${port}\r\naccept: ${accept}\r\nconnection: close\r\n\r\n`;
  assert.match(await exchange(Number(port), head), /^HTTP\/1.1 403 .*host_not_allowed/s);
});

operatorTest("refuses no token, a wrong token and an account's key", async (operator, service) => {
  const twice = `Bearer ${operatorToken} ${operatorToken}`;
  for (const authorization of ["", "Bearer", "Bearer ", operatorToken, `Basic ${operatorToken}`, twice]) {
    const answer = await operator.ask("GET", "/admin/accounts", { headers: { authorization } });
    refused(answer, 401, "missing_operator_token");
  }
  for (const wrong of ["x", operatorToken.slice(0, -1), `${operatorToken}x`, service.key, "ü"]) {
    const headers = { authorization: `Bearer ${wrong}` };
    refused(await operator.ask("GET", "/admin/accounts", { headers }), 401, "invalid_operator_token");
  }
  const headers = { authorization: `bearer  ${operatorToken}` };
  assert.equal((await operator.ask("GET", "/admin/accounts", { headers })).status, 200);
});

operatorTest("refuses unknown paths and unknown methods", async (operator) => {
  refused(await operator.get("/admin/nothing"), 404, "unknown_path");
  refused(await operator.get("/v1/models"), 404, "unknown_path");
  refused(await operator.get("/admin/accounts/%zz"), 404, "unknown_path");
  const answer = await operator.ask("PUT", "/admin/accounts/test");
  assert.match(refused(answer, 405, "method_not_allowed"), /does not accept PUT, only GET, HEAD, PATCH\./);
  assert.equal(answer.headers.get("allow"), "GET, HEAD, PATCH");
  for (const path of ["/healthz", "/readyz", "/metrics", "/admin/openapi.json"]) {
    const posted = await operator.ask("POST", path);
    refused(posted, 405, "method_not_allowed");
    assert.equal(posted.headers.get("allow"), "GET, HEAD");
    assert.equal((await operator.ask("HEAD", path)).status, 200);
  }
});

operatorTest(
  "accepts only whole JSON bodies of a limited size with the JSON media type",
  async (operator) => {
    const post = (body: string, type?: string) =>
      operator.ask("POST", "/admin/accounts", {
        body,
        ...(type === undefined ? {} : { headers: { "content-type": type } }),
      });
    const good = JSON.stringify({ id: "ada", plan: "test" });
    // Browsers send these to another origin without a pre-flight request.
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      refused(await post(good, type), 415, "unsupported_media_type");
    }
    refused(await post('{"id":"ada",'), 400, "invalid_json");
    assert.match(refused(await post(""), 400, "invalid_json"), /^The body is empty\. Send a JSON object/);
    refused(await operator.ask("POST", "/admin/accounts"), 400, "invalid_json");
    refused(await post("null"), 400, "invalid_type");
    const latin1 = await fetch(`${operator.url}/admin/accounts/test/adjustments`, {
      method: "POST",
      headers: { authorization: `Bearer ${operatorToken}`, "content-type": "application/json" },
      body: Buffer.from('{"operation_id":"caf\xe9","credits":1,"reason":"r"}', "latin1"),
    });
    assert.deepEqual([latin1.status, /not valid UTF-8/.test(await latin1.text())], [400, true]);
    refused(await post("[]"), 400, "invalid_type");
    refused(await post(JSON.stringify({ id: "a".repeat(70_000), plan: "test" })), 413, "request_too_large");
    assert.equal((await operator.get("/admin/accounts/ada")).status, 404);
    assert.equal((await post(good, "application/json; charset=utf-8")).status, 201);
  },
);

operatorTest("refuses bytes that are not HTTP in the same form", async (operator) => {
  const { hostname, port } = new URL(operator.url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.end("GET /admin/accounts HTTP/9\r\n\r\n");
  const answer = (await socket.toArray()).join("");
  assert.match(answer, /^HTTP\/1\.1 400 /);
  assert.match(answer, /"type":"invalid_request_error","param":null,"code":null/);
});

operatorTest("refuses unknown fields with those that it accepts", async (operator) => {
  const answer = await operator.post("/admin/accounts", { id: "ada", plan: "test", phone: "x" });
  assert.match(
    refused(answer, 400, "unknown_parameter"),
    /^phone is not accepted: .* id, plan, owner, email, note, external_id, credits, payment_id and dry_run only/,
  );
  assert.equal(fieldsOf(answer.body.error).param, "phone");
  const polluting = await operator.ask("POST", "/admin/accounts", {
    body: '{"id":"ada","plan":"test","__proto__":{"x":1}}',
  });
  refused(polluting, 400, "unknown_parameter");
});

operatorTest("converts only numbers in a query", async (operator) => {
  assert.equal((await operator.get("/admin/accounts?limit=5")).status, 200);
  for (const limit of ["5x", "1e2", "-1", "0x5"]) {
    refused(await operator.get(`/admin/accounts?limit=${limit}`), 400, "invalid_type");
  }
  refused(await operator.get("/admin/accounts?limit=1&limit=2"), 400, "invalid_type");
});

operatorTest("reports an unavailable store, and the change can be repeated", async (operator, service) => {
  const { commit } = service.store;
  const { StoreUnavailableError } = await import("../../src/errors.ts");
  service.store.commit = () => Promise.reject(new StoreUnavailableError("disk full"));
  // The batcher tries again for three seconds before it gives up.
  const away = operator.post("/admin/accounts/test/topups", { payment_id: "p", credits: 5 });
  const answer = await away;
  assert.equal(refused(answer, 503, "store_unavailable"), "The database cannot be reached or written now.");
  assert.ok(answer.headers.has("retry-after"));
  service.store.commit = commit;
  const again = await operator.post("/admin/accounts/test/topups", { payment_id: "p", credits: 5 });
  assert.deepEqual([again.status, again.body.again], [200, false]);
});

operatorTest("reports a defect as 500, with details only in the log", async (operator, service) => {
  const { accounts } = service.store;
  service.store.accounts = () => Promise.reject(new Error("eaten by a moth"));
  const answer = await operator.get("/admin/accounts");
  refused(answer, 500, "internal_error");
  assert.doesNotMatch(answer.text, /moth/);
  service.store.accounts = accounts;
  const line = service.log.find(
    ({ requestId, err }) => requestId === answer.headers.get("x-request-id") && err,
  );
  assert.match(JSON.stringify(line), /moth/);
});

operatorTest("the OpenAPI document describes the parts of every route", async (operator) => {
  const { document } = operator;
  assert.equal(document.openapi, "3.1.0");
  const operations = Object.entries(fieldsOf(document.paths)).flatMap(([path, methods]) =>
    Object.entries(fieldsOf(methods)).map(([method, operation]) => ({
      name: `${method} ${path}`,
      path,
      operation: fieldsOf(operation),
    })),
  );
  const names = Object.keys(fieldsOf(fieldsOf(document.components).schemas));
  for (const [, name = ""] of JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
    assert.ok(names.includes(name), `${name} is a component`);
  }
  for (const { name, path, operation } of operations) {
    assert.ok(Array.isArray(operation.parameters));
    const parameters = operation.parameters.map((parameter) => described(document, fieldsOf(parameter)));
    for (const { schema } of parameters) assert.ok(IsSchema(schema), name);
    assert.deepEqual(
      parameters.filter((parameter) => parameter.in === "path").map((parameter) => parameter.name),
      [...path.matchAll(/\{(\w+)\}/g)].map(([, part]) => part),
      name,
    );
    const answers = Object.keys(fieldsOf(operation.responses));
    assert.ok(
      answers.some((status) => status.startsWith("2")),
      name,
    );
    assert.ok(answers.includes("401") && answers.includes("500"), name);
    // The body of a chat is that of the public API.
    assert.equal(
      "requestBody" in operation || path === "/admin/chat",
      answers.includes("415"),
      `${name}: what has a body can be refused it`,
    );
  }
});

operatorTest("the document is valid OpenAPI 3.1", async (operator) => {
  const { valid, errors } = await new Validator().validate(structuredClone(operator.document));
  assert.ok(valid, JSON.stringify(errors));
  // Such as those of Python, which have no classes of characters.
  assert.doesNotMatch(JSON.stringify(operator.document), /"pattern":"[^"]*(?:\\\\p\{|\(\?[=!])/);
});

/** Returns a parameter, which may be a reference to a component. */
function described(document: Fields, parameter: Fields): Fields {
  const [, name] = /^#\/components\/parameters\/(\w+)$/.exec(String(parameter.$ref)) ?? [];
  if (name === undefined) return parameter;
  return fieldsOf(fieldsOf(fieldsOf(document.components).parameters)[name]);
}
