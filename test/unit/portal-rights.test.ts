/** The rights of a key over keys in the portal: each rule with the values around it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  inherited,
  type LimitedSettings,
  type OwnKeyChange,
  requireChanges,
  requireCreates,
  requireRevokes,
  requireRotates,
  requireWithin,
  whyNoNewKeys,
} from "../../src/accounts/portal-rights.ts";
import { OperatorRefusal } from "../../src/accounts/refusals.ts";
import { Refusal } from "../../src/errors.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { keyOf } from "../fixtures/ledger-rows.ts";
import { day, start } from "../fixtures/times.ts";

function manager(change: Partial<KeyRow> = {}): KeyRow {
  return keyOf("own", "ada", { portal: "account", ...change });
}

function refusedFor(param: string, own: KeyRow, settings: LimitedSettings): void {
  assert.throws(
    () => requireWithin(own, settings),
    (error) => error instanceof Refusal && error.code === "invalid_value" && error.param === param,
    `${param} of ${JSON.stringify(settings)}`,
  );
}

function notPermitted(run: () => void): void {
  assert.throws(run, (error) => error instanceof OperatorRefusal && error.code === "not_permitted");
}

test("a key without limits allows every setting", () => {
  const own = manager();
  requireWithin(own, {});
  requireWithin(own, {
    ...{ models: ["*"], expiresMs: null, requestsPerMinute: null },
    ...{ tokensPerMinute: null, concurrent: null },
  });
  requireWithin(own, { models: ["any"], expiresMs: start, requestsPerMinute: 1_000_000 });
});

for (const [param, field] of [
  ["requests_per_minute", "requestsPerMinute"],
  ["tokens_per_minute", "tokensPerMinute"],
  ["concurrent", "concurrent"],
] as const) {
  test(`${param} may be as high as that of the key, but neither higher nor without a limit`, () => {
    const own = manager({ [field]: 10 });
    requireWithin(own, { [field]: 10 });
    requireWithin(own, { [field]: 1 });
    requireWithin(own, { [field]: undefined });
    refusedFor(param, own, { [field]: 11 });
    refusedFor(param, own, { [field]: null });
  });
}

test("an expiry may be that of the key, but neither later nor never", () => {
  const own = manager({ expiresMs: start + day });
  requireWithin(own, { expiresMs: start + day });
  requireWithin(own, { expiresMs: start });
  refusedFor("expires_at", own, { expiresMs: start + day + 1 });
  refusedFor("expires_at", own, { expiresMs: null });
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
    ...{ tokensPerMinute: null, concurrent: 2 },
  });
});

test("keys with the right `own`, and keys with a budget, create no keys", () => {
  assert.equal(whyNoNewKeys(manager(), "active"), null);
  requireCreates(manager(), "active");
  for (const own of [manager({ portal: "own" }), manager({ budget: 0 })]) {
    assert.match(whyNoNewKeys(own, "active") ?? "", /^This key /);
    notPermitted(() => requireCreates(own, "active"));
  }
});

test("settings are for keys with the right `account`; with a budget only names are", () => {
  const target = keyOf("other", "ada");
  const change = (own: KeyRow, settings: OwnKeyChange) => requireChanges(own, "active", target, settings);
  change(manager(), { requestsPerMinute: 5 });
  notPermitted(() => change(manager({ portal: "own" }), { name: "mine" }));
  notPermitted(() => change(manager({ budget: 5 }), { name: "mine", concurrent: 1 }));
  change(manager({ budget: 5 }), { name: "mine", concurrent: undefined });
});

test("a key that may do more is renamed and narrowed, and never widened", () => {
  const own = manager({ models: ["small"], requestsPerMinute: 10 });
  const change = (target: Partial<KeyRow>, settings: OwnKeyChange) => () =>
    requireChanges(own, "active", keyOf("other", "ada", target), settings);
  const paused = { budget: 0, budgetEvery: "P1D" };
  change({}, { name: "laptop" })();
  change({}, { models: ["small"] })();
  change({ requestsPerMinute: 5 }, { budget: { credits: 5, every: "P1D" }, expiresMs: start })();
  change({ ...paused, models: ["small"], requestsPerMinute: 10 }, { budget: null })();
  notPermitted(change(paused, { budget: null }));
  notPermitted(change(paused, { budget: { credits: 1 } }));
  notPermitted(change(paused, { budget: { every: "P1W" } }));
  notPermitted(change({ expiresMs: start }, { expiresMs: start + 1 }));
  notPermitted(change({ requestsPerMinute: 5 }, { requestsPerMinute: 6 }));
});

test("a key rotates itself, and with the right `account` keys that may do no more", () => {
  const own = manager({ models: ["small"], requestsPerMinute: 10, expiresMs: start });
  const like = { models: ["small"], requestsPerMinute: 10, expiresMs: start };
  const rotate = (one: KeyRow, target: KeyRow) => requireRotates(one, "active", target);
  rotate(manager({ portal: "own", budget: 1 }), manager({ portal: "own", budget: 1 }));
  rotate(own, keyOf("other", "ada", like));
  rotate(own, keyOf("other", "ada", { ...like, portal: "account", budget: 1 }));
  for (const more of [{ models: ["*"] }, { requestsPerMinute: null }, { expiresMs: null }]) {
    notPermitted(() => rotate(own, keyOf("other", "ada", { ...like, ...more })));
  }
  notPermitted(() => rotate(manager({ budget: 1 }), keyOf("other", "ada")));
  notPermitted(() => rotate(manager({ portal: "own" }), keyOf("other", "ada")));
});

test("keys with the right `own` revoke nothing, not even themselves", () => {
  requireRevokes(manager({ budget: 1 }));
  notPermitted(() => requireRevokes(manager({ portal: "own" })));
});
