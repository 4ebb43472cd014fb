/** Signing in to the portal, and sessions of keys, against the attacks on them. */
import assert from "node:assert/strict";
import type { KeySettings } from "../../src/ledger/operations.ts";
import { fieldsOf, refused } from "../fixtures/operator.ts";
import { portalTests } from "../fixtures/portal.ts";

const portalTest = portalTests();

portalTest("a session shows the account of its key, until it signs out", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const { status, body } = await portal.as(cookie, "GET", "/api/account");
  assert.equal(status, 200);
  assert.deepEqual([body.account, body.state], ["test", "active"]);
  const shown = await portal.as(cookie, "GET", "/api/session");
  assert.deepEqual(Object.keys(shown.body), ["expires_at", "idle_expires_at"]);
  const out = await portal.as(cookie, "DELETE", "/api/session");
  assert.deepEqual([out.status, out.text], [204, ""]);
  assert.match(out.headers.get("set-cookie") ?? "", /^inkwell_portal=; Path=\/; Max-Age=0;/);
  refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
});

portalTest("the rights of the key are read again with each request", async (portal, service) => {
  const cookie = await portal.signIn(service.key);
  const rights = async () => (await portal.as(cookie, "GET", "/api/account")).body.rights;
  const own = /manages only itself/;
  assert.match(String(fieldsOf(await rights()).why_not), own);
  assert.partialDeepStrictEqual(await rights(), { keys: "own", can_create_keys: false });
  const set = async (op: string, settings: KeySettings) =>
    service.ledger.apply({ kind: "key", account: "test", key: "key1", op, set: settings });
  await set("raise", { portal: "account" });
  assert.deepEqual(await rights(), { keys: "account", can_create_keys: true, why_not: null });
  await set("budget", { budget: { micro: 5, every: "P1D" } });
  assert.partialDeepStrictEqual(await rights(), { keys: "account", can_create_keys: false });
  assert.match(String(fieldsOf(await rights()).why_not), /has a budget/);
});
