/** What the journal says about keys. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { applyKeyFact, settingsNote, withOutcome, withoutOutcome } from "../../src/ledger/key-facts.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { keyOf } from "../fixtures/ledger-rows.ts";

const rule = { every: "P1M", align: "calendar" } as const;
const budget = { amountMicro: 5, rule: { ...rule, timezone: "Africa/Cairo" }, byOperator: true };
const key = keyOf("ada-1", "ada");

for (const name of ["a zone b", "a} zone b", "} secret 0123456789abcdef0123456789abcdef", '"} zone UTC']) {
  test(`a name that reads like an outcome stays a name: ${name}`, () => {
    const note = settingsNote({ key: key.id, set: { name } });
    assert.equal(withoutOutcome(note), note);
    const outcome = withOutcome(note, key, { budget, hasNewSecret: true });
    assert.equal(withoutOutcome(outcome), note);
  });
}

test("the zone that a budget took from the plan is a fact", () => {
  const keys = new Map<string, KeyRow>([[key.id, key]]);
  const note = settingsNote({ key: key.id, set: { budget: { amountMicro: 5, rule } } });
  const entry = { account: key.account, seq: 2, atMs: 0, kind: "key", op: null, by: "operator" } as const;
  const rest = { bucket: null, amountMicro: null, grantSeq: null };
  const apply = (zone: string) => applyKeyFact(keys, { ...entry, ...rest, note: `${note}${zone}` });
  assert.equal(apply(" zone Africa/Cairo"), null);
  assert.equal(keys.get(key.id)?.budgetTimezone, "Africa/Cairo");
  assert.equal(apply(" zone Asia/Kathmandu"), "has another zone than its budget");
});
