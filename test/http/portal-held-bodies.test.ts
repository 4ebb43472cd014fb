/**
 * Changes of keys whose body is held back: the headers arrive while the session may make the
 * change, and the body after it has lost the right to.
 */

import assert from "node:assert/strict";
import type { KeySettings } from "../../src/ledger/operations.ts";
import { type HeldRequest, holdRequest } from "../fixtures/held-request.ts";
import { refused } from "../fixtures/operator.ts";
import { pageSecret } from "../fixtures/page-header.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import type { TestService } from "../fixtures/service.ts";

const portalTest = portalTests();

interface Held {
  cookie: string;
  method: string;
  path: string;
  body: object;
}

/** Sends the headers of a request, and resolves when its session has been read. */
function hold(
  { url }: TestPortal,
  { store }: TestService,
  { cookie, ...request }: Held,
): Promise<HeldRequest> {
  const headers = { cookie, "x-inkwell-request": pageSecret };
  return holdRequest({ url, headers, ...request }, store, "findKey");
}

let changes = 0;

/** As an operator does. */
async function set(service: TestService, key: string, settings: KeySettings): Promise<void> {
  changes += 1;
  const change = {
    kind: "key",
    account: "test",
    key,
    op: `operator ${changes}`,
    set: settings,
    by: "test",
  } as const;
  assert.equal((await service.ledger.apply(change)).kind, "changed");
}

portalTest("a key that was rotated meanwhile is not rotated by its old session", async (portal, service) => {
  const cookie = await portal.signIn(await service.addKey({ id: "stolen" }));
  const held = await hold(portal, service, {
    cookie,
    method: "POST",
    path: "/api/keys/stolen/rotate",
    body: { operation_id: "mine" },
  });
  const hash = "ab".repeat(32);
  await set(service, "stolen", { rotation: { hash, lastFour: "last", overlap: null } });
  const { status, received } = await held.send();
  assert.equal(status, 401, received);
  assert.doesNotMatch(received, /ink_/);
  assert.equal((await service.store.keyById("stolen"))?.hash, hash, "the operator's secret stays valid");
});

portalTest("a key that is rotated during the change is not rotated again", async (portal, service) => {
  const cookie = await portal.signIn(await service.addKey({ id: "stolen" }));
  const { store } = service;
  const keyById = store.keyById.bind(store);
  const hash = "ab".repeat(32);
  store.keyById = async (id) => {
    store.keyById = keyById;
    await set(service, "stolen", { rotation: { hash, lastFour: "last", overlap: null } });
    return await keyById(id);
  };
  const answer = await portal.as(cookie, "POST", "/api/keys/stolen/rotate", { operation_id: "mine" });
  refused(answer, 409, "key_changed");
  assert.equal((await keyById("stolen"))?.hash, hash);
});

for (const key of ["boss", "sibling"]) {
  portalTest(`a limit that was lowered meanwhile cannot be exceeded by ${key}`, async (portal, service) => {
    await service.addKey({ id: "sibling", requestsPerMinute: 1 });
    const boss = await service.addKey({ id: "boss", portal: "account", requestsPerMinute: 100 });
    const held = await hold(portal, service, {
      cookie: await portal.signIn(boss),
      method: "PATCH",
      path: `/api/keys/${key}`,
      body: { operation_id: "mine", requests_per_minute: 100 },
    });
    await set(service, "boss", { requestsPerMinute: 10 });
    const { status, received } = await held.send();
    assert.equal(status, 400, received);
    const limit = (await service.store.keyById(key))?.requestsPerMinute;
    assert.equal(limit, key === "boss" ? 10 : 1);
  });
}

for (const [method, action, body] of [
  ["POST", "/rotate", { operation_id: "mine" }],
  ["PATCH", "", { operation_id: "mine", name: "mine" }],
  ["DELETE", "", {}],
] as const) {
  portalTest(`${method} of another key is refused without the right to it`, async (portal, service) => {
    await service.addKey({ id: "sibling" });
    const boss = await service.addKey({ id: "boss", portal: "account" });
    const held = await hold(portal, service, {
      cookie: await portal.signIn(boss),
      method,
      path: `/api/keys/sibling${action}`,
      body,
    });
    const before = await service.store.keyById("sibling");
    await set(service, "boss", { portal: "own" });
    const { status, received } = await held.send();
    assert.equal(status, 404, received);
    assert.deepEqual(await service.store.keyById("sibling"), before);
  });
}

portalTest("a chat obeys the models of its key when its body has come", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const messages = [{ role: "user", content: "Hi" }];
  const held = await hold(portal, service, {
    cookie,
    method: "POST",
    path: "/api/chat",
    body: { model: "small", stream: true, messages },
  });
  await set(service, "key1", { models: ["other"] });
  const { status, received } = await held.send();
  assert.equal(status, 403, received);
  assert.match(received, /model_not_allowed/);
});
