/** Signing in with OpenID Connect, at a real issuer. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf } from "../fixtures/operator.ts";
import { startSignIn } from "../fixtures/sign-in.ts";

const rules = {
  operators: [
    { kind: "group", value: "it-staff", role: "support" },
    { kind: "email", value: "ada@example.edu", role: "owner" },
  ],
  accounts: [
    { kind: "group", value: "students", plan: "test" },
    { kind: "domain", value: "example.edu", plan: "guest" },
  ],
} as const;

const ada = { sub: "ada", name: "Ada Lovelace", email: "Ada@example.edu", email_verified: true };

test("an operator signs in, and has the highest role that matches", async () => {
  await using place = await startSignIn(rules);
  place.issuer.signsIn({ ...ada, groups: ["it-staff"] });
  const cookie = await place.signIn("operator");
  const { body } = await place.ask("operator", "GET", "/admin/session", undefined, { cookie });
  assert.equal(body.role, "owner");
  assert.partialDeepStrictEqual(body.person, { name: "Ada Lovelace", email: "Ada@example.edu" });
  const { id } = fieldsOf(body.person);
  const line = place.service.log.find(({ msg }) => msg === "a person has signed in");
  assert.partialDeepStrictEqual(line, { by: "issuer", person: id, role: "owner", client: "127.0.0.1" });
});
