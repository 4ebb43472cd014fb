/** A holder of one key cannot use the portal to harm or read the other keys of its account. */

import assert from "node:assert/strict";
import { connect } from "node:net";
import { mock } from "node:test";
import type { IssueOperation, KeyOperation } from "../../src/ledger/operations.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { refused } from "../fixtures/operator.ts";
import { pageSecret } from "../fixtures/page-header.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import { readAll } from "../fixtures/raw-http.ts";
import { hello, type TestService } from "../fixtures/service.ts";

const portalTest = portalTests({ otherModels: ["large", "secret"] });

async function session(
  portal: TestPortal,
  service: TestService,
  key: Partial<KeyRow> & { id: string },
): Promise<(method: string, path: string, body?: object) => ReturnType<TestPortal["as"]>> {
  const cookie = await portal.signIn(await service.addKey(key));
  return (method, path, body) => portal.as(cookie, method, path, body);
}

portalTest("a key that rotates again and again keeps nobody from revoking it", async (portal, service) => {
  const boss = await session(portal, service, { id: "boss", portal: "account" });
  const key = await service.addKey({ id: "thief" });
  let cookie = await portal.signIn(key);
  for (let n = 0; ; n += 1) {
    const body = { operation_id: `rotation ${n}` };
    const rotated = await portal.as(cookie, "POST", "/api/keys/thief/rotate", body);
    if (rotated.status === 429) break;
    assert.ok(n < 200);
    cookie = (rotated.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  }
  const other = await session(portal, service, { id: "other-thief", portal: "account" });
  for (let n = 0; (await other("PATCH", "/api/keys/key1", named(n))).status !== 429; n += 1) {
    assert.ok(n < 200);
  }
  while ((await other("DELETE", "/api/keys/key1")).status !== 429);
  for (const id of ["thief", "other-thief"]) {
    assert.equal((await boss("DELETE", `/api/keys/${id}`)).status, 200);
    assert.notEqual((await service.store.keyById(id))?.revokedMs, null);
  }
});

function named(n: number) {
  return { operation_id: `name ${n}`, name: `name ${n}` };
}

portalTest(
  "a model that does not exist any more is refused without the names of others",
  async (portal, service) => {
    const boss = await session(portal, service, { id: "boss", portal: "account", models: ["small", "gone"] });
    const refusal = await boss("POST", "/api/keys", { operation_id: "new" });
    assert.doesNotMatch(refused(refusal, 400, "invalid_value"), /large|secret/);
    assert.equal((await boss("POST", "/api/keys", { operation_id: "new", models: ["small"] })).status, 201);
  },
);

portalTest("a suspended account gets no new keys, and its keys can be revoked", async (portal, service) => {
  const boss = await session(portal, service, { id: "boss", portal: "account" });
  await service.ledger.apply({
    kind: "state",
    account: "test",
    op: "stop",
    to: { kind: "suspend" },
    by: "test",
  });
  refused(await boss("POST", "/api/keys", { operation_id: "new" }), 403, "not_permitted");
  const { rights } = (await boss("GET", "/api/account")).body;
  const whyNot = "The account is suspended.";
  assert.partialDeepStrictEqual(rights, { keys: "account", can_create_keys: false, why_not: whyNot });
  assert.equal((await boss("DELETE", "/api/keys/key1")).status, 200);
});

for (const [what, path] of [
  ["a new key", "/api/keys"],
  ["the secret of another key", "/api/keys/key1/rotate"],
] as const) {
  portalTest(`an account that is suspended meanwhile gets ${what} withheld`, async (portal, service) => {
    const boss = await session(portal, service, { id: "boss", portal: "account" });
    const { ledger } = service;
    const apply = ledger.apply.bind(ledger);
    const suspend = {
      kind: "state",
      account: "test",
      op: "stop",
      to: { kind: "suspend" },
      by: "test",
    } as const;
    const made: string[] = [];
    mock.method(ledger, "apply", async (operation: IssueOperation | KeyOperation) => {
      const outcome = await apply(operation);
      if (operation.kind === "issue") made.push(operation.key);
      await apply(suspend);
      return outcome;
    });
    const answer = await boss("POST", path, { operation_id: "new" });
    assert.match(refused(answer, 403, "not_permitted"), /The account is suspended/);
    for (const id of made) assert.notEqual((await service.store.keyById(id))?.revokedMs, null);
    assert.equal(made.length, path === "/api/keys" ? 1 : 0);
  });
}

portalTest("successful sign-ins of a key are limited too", async (portal, service) => {
  const key = await service.addKey({ id: "busy" });
  const signIn = () => portal.ask("POST", "/api/session", { body: JSON.stringify({ key }) });
  let answer = await signIn();
  for (let n = 0; answer.status === 200; n += 1) {
    assert.ok(n < 200, "sign-ins go on and on");
    answer = await signIn();
  }
  refused(answer, 429, "too_many_sign_ins");
  assert.notEqual(answer.headers.get("retry-after"), null);
  await portal.signIn(service.key);
});

portalTest("bytes that are no request do not get an answer into a stream", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const socket = connect({ port: Number(new URL(portal.url).port), host: "127.0.0.1" });
  const received = readAll(socket);
  socket.once("data", () => socket.write("no request\r\n\r\n"));
  const body = JSON.stringify({ model: "small", messages: hello, stream: true });
  const headers = [
    `host: 127.0.0.1\r\ncookie: ${cookie}\r\nx-inkwell-request: ${pageSecret}`,
    `content-type: application/json\r\ncontent-length: ${body.length}`,
  ];
  socket.write(`POST /api/chat HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n${body}`);
  const text = await received;
  assert.match(text, /^HTTP\/1.1 200 OK/);
  assert.doesNotMatch(text, /400 Bad Request/);
});
