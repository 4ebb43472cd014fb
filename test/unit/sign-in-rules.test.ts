/** Rules about addresses: only A to Z have another case. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { planOf, roleRuleOf } from "../../src/sign-in/rules.ts";

const noGroups = { groups: null, hasTooManyGroups: false, authenticatedMs: null };

function identityOf(email: string) {
  return { issuer: "i", sub: "s", name: null, email, emailVerified: true, ...noGroups };
}

const settings = {
  trustsEmail: false,
  operators: [{ kind: "email", value: "kate@example.edu", role: "owner" }],
  accounts: [{ kind: "domain", value: "kit.example", plan: "starter" }],
} as const;

test("an address matches in either case, and not with a letter that only looks the same", () => {
  assert.equal(roleRuleOf(identityOf("Kate@EXAMPLE.edu"), settings).value?.role, "owner");
  // The Kelvin sign becomes a k with `toLowerCase`, and is another mailbox.
  assert.equal(roleRuleOf(identityOf("\u212aate@example.edu"), settings).value, null);
  assert.equal(planOf(identityOf("eve@KIT.example"), settings).value, "starter");
  assert.equal(planOf(identityOf("eve@\u212ait.example"), settings).value, null);
});
