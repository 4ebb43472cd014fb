/** What the journal says about keys. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { factFields, factText } from "../../src/ledger/fact-values.ts";
import { applyKeyFact, changeFact, replacedFact } from "../../src/ledger/key-facts.ts";
import { type JournalRow, type KeyRow, keyColumns } from "../../src/ledger/rows.ts";
import { frontEndOf, keyOf } from "../fixtures/ledger-rows.ts";

const key = keyOf("ada-1", "ada");
const entry: JournalRow = {
  account: key.account,
  seq: 2,
  atMs: 0,
  kind: "key",
  op: null,
  by: "operator",
  bucket: null,
  amountMicro: null,
  grantSeq: null,
  subject: key.id,
  before: null,
  after: null,
  outcome: null,
};

function applied(keys: Map<string, KeyRow>, fact: JournalRow): string | null {
  return applyKeyFact(keys, fact, factFields(fact.after));
}

test("the fields of a key are in the terms of the API, and come back as they were", () => {
  const acts = frontEndOf("chat", "x-user", { plan: "starter", newAccountsPerDay: 5 });
  const row = keyOf("ada-2", "ada", { expiresMs: Date.UTC(2100, 0, 1), requestsPerMinute: 5, actsFor: acts });
  const text = factText(row);
  const values = JSON.parse(text);
  assert.deepEqual(
    [values.expires_at, values.requests_per_minute, values.acts_for.new_accounts_per_day],
    ["2100-01-01T00:00:00.000Z", 5, 5],
  );
  assert.deepEqual(Object.keys(values), Object.keys(values).toSorted());
  assert.deepEqual(Object.keys(factFields(text)).toSorted(), Object.keys(keyColumns).toSorted());
  assert.deepEqual(factFields(text), row);
});

test("the order in which an operation names its fields makes no difference", () => {
  const one = changeFact({ name: "a", requestsPerMinute: 5 });
  assert.equal(changeFact({ requestsPerMinute: 5, name: "a" }), one);
  assert.notEqual(changeFact({ name: "a" }), one);
});

test("the zone that caps took from the plan is a fact", () => {
  const keys = new Map<string, KeyRow>([[key.id, { ...key }]]);
  const caps = [{ amountMicro: 5, every: "P1M", align: "calendar", byOperator: true }] as const;
  const set = { caps };
  const apply = (timezone: string) => {
    const before = replacedFact(keys.get(key.id) ?? key, set);
    const outcome = factText({ timezone });
    return applied(keys, { ...entry, before, after: changeFact(set), outcome });
  };
  assert.equal(apply("Africa/Cairo"), null);
  assert.equal(keys.get(key.id)?.caps[0]?.timezone, "Africa/Cairo");
  assert.equal(apply("Nowhere/Else"), "sets caps that no key can have");
  const before = replacedFact(keys.get(key.id) ?? key, set);
  const without = { ...entry, before, after: changeFact(set), outcome: null };
  assert.equal(applied(keys, without), "has another zone than its caps");
});

test("caps that no key can have are named, and the audit goes on with those before", () => {
  const good = { amountMicro: 5, every: "P1D", byOperator: true };
  for (const wrong of [
    [{ ...good, every: "often" }],
    [{ ...good, every: null }],
    [{ ...good, align: "calendar", timezone: "Nowhere/Else" }],
    [{ ...good, models: "all" }],
    [good, { ...good, amountMicro: 6 }],
    [{ ...good, every: "PT5H", align: "calendar", timezone: "UTC" }],
    "none",
  ]) {
    const keys = new Map<string, KeyRow>([[key.id, { ...key }]]);
    const fact = { ...entry, before: '{"caps":[]}', after: factText({ caps: wrong }) };
    assert.equal(applied(keys, fact), "sets caps that no key can have", JSON.stringify(wrong));
    assert.deepEqual(keys.get(key.id)?.caps, []);
  }
});

test("a fact that says something else was there before is named", () => {
  const keys = new Map<string, KeyRow>([[key.id, { ...key }]]);
  const fact = { ...entry, after: changeFact({ name: "b" }) };
  assert.equal(
    applied(keys, { ...fact, before: '{"name":"z"}' }),
    "says that something else was there before",
  );
  assert.equal(applied(keys, { ...fact, before: replacedFact(key, { name: "b" }) }), null);
});
