/**
 * What a key may give to other keys in the portal. The rules of each action are tested over HTTP,
 * in test/http/portal-wider-keys.test.ts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inherited, requireWithin } from "../../src/accounts/portal-rights.ts";
import { Refusal } from "../../src/errors.ts";
import type { KeyRow, SomeSettings } from "../../src/ledger/rows.ts";
import { keyOf } from "../fixtures/ledger-rows.ts";
import { start } from "../fixtures/times.ts";

function manager(change: Partial<KeyRow> = {}): KeyRow {
  return keyOf("own", "ada", { portal: "account", ...change });
}

function refusedFor(param: string, own: KeyRow, settings: SomeSettings): void {
  assert.throws(
    () => requireWithin(own, settings),
    (error) => error instanceof Refusal && error.code === "invalid_value" && error.param === param,
    `${param} of ${JSON.stringify(settings)}`,
  );
}

test("a key without limits allows every setting", () => {
  const own = manager();
  requireWithin(own, {});
  requireWithin(own, {
    models: ["*"],
    expiresMs: null,
    requestsPerMinute: null,
    tokensPerMinute: null,
    concurrent: null,
  });
  requireWithin(own, { models: ["any"], expiresMs: start, requestsPerMinute: 1_000_000 });
});

test("models must be among those of the key, and all models only if it has all", () => {
  const own = manager({ models: ["small", "large"] });
  requireWithin(own, { models: ["large"] });
  refusedFor("models[0]", own, { models: ["*"] });
  refusedFor("models[1]", own, { models: ["small", "other"] });
  refusedFor("models[0]", manager({ models: [] }), { models: ["small"] });
});

test("a new key has the settings of its creator where none are given", () => {
  const own = manager({ models: ["small"], expiresMs: start, requestsPerMinute: 5, concurrent: 2 });
  assert.deepEqual(inherited(own, { requestsPerMinute: 3 }), {
    ...{ models: ["small"], expiresMs: start, requestsPerMinute: 3 },
    ...{ tokensPerMinute: null, concurrent: 2, portal: "account" },
  });
});
