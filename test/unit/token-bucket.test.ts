/** Amounts per time, by key, with a test clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { limits } from "../../src/limits/limits.ts";
import { TokenBucket } from "../../src/limits/token-bucket.ts";

/** A bucket of ten a minute. */
function begin({ most = 10, ...options }: { most?: number; perMs?: number; waitMsMax?: number } = {}) {
  const clock = { nowMs: 1234.5678 };
  const bucket = new TokenBucket({ ...limits.changes, most }, { ...options, nowMs: () => clock.nowMs });
  const pass = (ms: number) => {
    clock.nowMs += ms;
  };
  return { bucket, pass };
}

test("a key may use the amount of the whole time at once, and then as much as comes back", () => {
  const { bucket, pass } = begin();
  for (let n = 0; n < 10; n += 1) assert.equal(bucket.take("ada"), 0, `${n}`);
  assert.equal(bucket.take("ada"), 6_000);
  pass(5_999);
  assert.equal(bucket.take("ada"), 1);
  pass(1);
  assert.equal(bucket.take("ada"), 0);
  assert.equal(bucket.take("ada"), 6_000, "the wait itself uses nothing");
  pass(1_000_000);
  for (let n = 0; n < 10; n += 1) assert.equal(bucket.take("ada"), 0, "rest fills the bucket");
  assert.notEqual(bucket.take("ada"), 0, "but only to its top");
});

test("the amount is that of the limit, in a minute", () => {
  const bucket = new TokenBucket(limits.changes, { nowMs: () => 0.1 });
  for (let n = 0; n < limits.changes.most; n += 1) assert.equal(bucket.take("ada"), 0, `${n}`);
  assert.equal(bucket.take("ada"), 1_000);
});

test("keys do not share what they use", () => {
  const { bucket } = begin();
  bucket.spend("ada", 10);
  assert.notEqual(bucket.waitMs("ada"), 0);
  assert.equal(bucket.waitMs("ben"), 0);
  assert.equal(bucket.take("ben", 10), 0);
});

test("work that is known only afterwards may exceed the amount, and all of it is waited for", () => {
  const { bucket, pass } = begin();
  bucket.spend("ada", 9.9);
  assert.equal(bucket.waitMs("ada"), 0, "something is left");
  bucket.spend("ada", 100);
  assert.equal(bucket.waitMs("ada"), 599_400);
  pass(599_399);
  assert.notEqual(bucket.waitMs("ada"), 0);
  pass(2);
  assert.equal(bucket.waitMs("ada"), 0);
});

test("over any time, a key uses its part of the time, one burst and one piece of work", () => {
  const { bucket, pass } = begin({ most: 200, perMs: 2_000 });
  let used = 0;
  for (let ms = 0; ms < 60_000; ms += 1, pass(1)) {
    if (bucket.waitMs("ada") > 0) continue;
    used += 30;
    bucket.spend("ada", 30);
  }
  const most = 0.1 * 60_000 + 200 + 30;
  assert.ok(used <= most && used > 0.9 * most, `${used} of at most ${most}`);
});

test("the longest wait can be limited", () => {
  const { bucket, pass } = begin({ waitMsMax: 60_000 });
  for (let n = 0; n < 5; n += 1) bucket.spend("ada", 1_000);
  assert.equal(bucket.waitMs("ada"), 60_000);
  pass(60_001);
  assert.equal(bucket.waitMs("ada"), 0);
});

test("what was used before counts against a changed amount", () => {
  const { bucket } = begin();
  bucket.spend("ada", 5);
  bucket.most = 4;
  assert.equal(bucket.most, 4);
  assert.equal(bucket.waitMs("ada"), 15_000);
  bucket.most = 20;
  assert.equal(bucket.take("ada", 15), 0, "what is left of twenty");
  assert.notEqual(bucket.take("ada"), 0);
});

test("forgets keys that have their whole amount again", () => {
  const { bucket, pass } = begin();
  bucket.spend("ada", 0);
  assert.equal(bucket.size, 0, "nothing was used");
  for (let n = 0; n < 1_000; n += 1) bucket.spend(`old ${n}`, 10);
  pass(60_000);
  for (let n = 0; n < 100; n += 1) bucket.spend(`new ${n}`, 10);
  assert.ok(bucket.size <= 100, `${bucket.size} are remembered`);
  assert.notEqual(bucket.waitMs("new 0"), 0);
});

test("a flood of keys does not make it forget one that has used more, nor remember all", () => {
  const { bucket } = begin();
  bucket.spend("debtor", 20);
  for (let n = 0; n < 200_000; n += 1) bucket.spend(`flood ${n}`, 10);
  assert.ok(bucket.size <= 50_000, `${bucket.size} are remembered`);
  assert.notEqual(bucket.waitMs("debtor"), 0);
  assert.equal(bucket.waitMs("somebody new"), 0, "a full memory keeps nobody out");
});
