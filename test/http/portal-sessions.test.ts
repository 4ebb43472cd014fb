/** Signing in to the portal, and sessions of keys, against the attacks on them. */
import assert from "node:assert/strict";
import { refused } from "../fixtures/operator.ts";
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
