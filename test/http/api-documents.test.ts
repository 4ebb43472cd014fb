/**
 * The OpenAPI documents describe the service: docs/api/public.yaml the public API as it responds,
 * and the portal's the portal. operator.test.ts checks that of the operator listener.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Check } from "typebox/schema";
import { parse } from "yaml";
import { catalogue, type Entry } from "../../src/errors.ts";
import { type Fields, fieldsOf } from "../fixtures/operator.ts";
import { startPortal } from "../fixtures/portal.ts";
import { say, startService } from "../fixtures/service.ts";

const root = path.join(import.meta.dirname, "../..");
const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
const publicApi = fieldsOf(parse(readFileSync(path.join(root, "docs/api/public.yaml"), "utf8")));
const { schemas } = fieldsOf(publicApi.components);

/** A schema of the document that contains the schemas it refers to. */
function schemaOf(name: string): Fields {
  const text = JSON.stringify({ ...fieldsOf(fieldsOf(schemas)[name]), $defs: schemas });
  return JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/"));
}

function assertFits(name: string, value: unknown): void {
  assert.ok(Check(schemaOf(name), value), `${name}: ${JSON.stringify(value)}`);
}

test("the portal serves its document, which is valid", async () => {
  await using service = await startService();
  await using portal = await startPortal(service);
  const { valid, errors } = await new Validator().validate(structuredClone(portal.document));
  assert.ok(valid, JSON.stringify(errors));
  assert.doesNotMatch(JSON.stringify(portal.document), /"pattern":"[^"]*(?:\\\\p\{|\(\?[=!])/);
  const cookie = await portal.signIn(service.key);
  assert.deepEqual((await portal.as(cookie, "GET", "/api/openapi.json")).body, portal.document);
});

test("docs/operating/portal.md has one row for each route of the portal", async () => {
  await using service = await startService();
  await using portal = await startPortal(service);
  const routes = Object.entries(fieldsOf(portal.document.paths)).flatMap(([route, methods]) =>
    Object.keys(fieldsOf(methods)).map((method) => `${method.toUpperCase()} ${route}`),
  );
  const page = readFileSync(path.join(root, "docs/operating/portal.md"), "utf8");
  const documented = [...page.matchAll(/^\| `([A-Z]+ \/api\/\S+)` \|/gm)].map(([, name]) => name);
  assert.deepEqual(documented.toSorted(), [...routes, "GET /api/openapi.json"].toSorted());
});

test("the public document is valid, and has the paths, methods and statuses of the service", async () => {
  const { valid, errors } = await new Validator().validate(structuredClone(publicApi));
  assert.ok(valid, JSON.stringify(errors));
  assert.equal(fieldsOf(publicApi.info).version, version);
  await using service = await startService();
  const paths = Object.entries(fieldsOf(publicApi.paths));
  assert.equal(paths.length, 3);
  for (const [route, operations] of paths) {
    const methods = Object.keys(fieldsOf(operations)).map((method) => method.toUpperCase());
    const { status, headers } = await service.request("PUT", route);
    assert.equal(status, 405);
    assert.deepEqual(
      headers
        .get("allow")
        ?.split(", ")
        .filter((method) => method !== "HEAD"),
      methods,
    );
  }
  const chat = fieldsOf(fieldsOf(fieldsOf(publicApi.paths)["/v1/chat/completions"]).post);
  const forCallers = Object.values<Entry>(catalogue).filter((entry) => entry.for !== "operator");
  const statuses = new Set(forCallers.map(({ status }) => `${status}`));
  assert.deepEqual(Object.keys(fieldsOf(chat.responses)).toSorted(), ["200", ...statuses].toSorted());
});

test("answers fit the public document", async () => {
  await using service = await startService({ script: say("one", "two") });
  assertFits("ChatCompletion", JSON.parse(await (await service.chat()).text()));
  assertFits("ChatCompletion", JSON.parse(await (await service.chat({ logprobs: true })).text()));
  const options = { include_usage: true, include_obfuscation: true };
  for (const body of [{}, { stream_options: options }, { logprobs: true, top_logprobs: 2 }]) {
    const text = await (await service.chat({ stream: true, ...body })).text();
    const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = ""]): unknown => JSON.parse(json));
    assert.ok(events.length >= 4, text);
    for (const event of events) assertFits("ChatCompletionChunk", event);
  }
  for (const [name, route] of [
    ["ModelList", "/v1/models"],
    ["Balance", "/v1/balance"],
    ["Error", "/v1/embeddings"],
  ] as const)
    assertFits(name, JSON.parse(await (await service.request("GET", route)).text()));
});

test("the public document and the service refuse the same requests", async () => {
  await using service = await startService({ script: say("one") });
  const schema = schemaOf("ChatRequest");
  const properties = Object.keys(fieldsOf(schema.properties));
  const values = [
    null,
    true,
    0,
    1,
    -1,
    1.5,
    2.5,
    21,
    "x",
    "",
    [],
    ["a"],
    ["a", "b", "c", "d", "e"],
    [""],
    {},
    { effort: "low" },
    { include_usage: true },
    { max_tokens: 0 },
    { other: 1 },
  ];
  const message = { role: "user", content: "Hello" };
  const bodies: object[] = properties
    .filter((name) => name !== "model" && name !== "messages" && name !== "stream")
    .flatMap((name) => values.map((value) => ({ [name]: value })));
  bodies.push(
    { messages: [] },
    { messages: [{ ...message, name: null }] },
    { messages: [{ ...message, name: "a" }] },
  );
  bodies.push({ messages: [{ role: "tool", content: "" }] }, { messages: [{ role: "user" }] }, { tools: 5 });
  for (const body of bodies) {
    const whole = { model: "small", messages: [message], ...body };
    const { status } = await service.chat(body);
    assert.equal(status === 200, Check(schema, whole), `${status}: ${JSON.stringify(body)}`);
  }
});
