/** Amounts that keys hold at the same time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { limits } from "../../src/limits/limits.ts";
import { Slots } from "../../src/limits/slots.ts";

test("a key holds so much at once, whatever other keys hold", () => {
  const slots = new Slots(limits.accountUploads, 4);
  for (let n = 0; n < 4; n += 1) {
    assert.ok(slots.fits("ada"));
    slots.take("ada");
  }
  assert.equal(slots.fits("ada"), false);
  assert.equal(slots.fits("ada", 1, 5), true, "a key may have a number of its own");
  assert.equal(slots.fits("ben"), true);
  slots.take("ben");
  assert.deepEqual([slots.held("ada"), slots.held("ben"), slots.total], [4, 1, 5]);
  slots.release("ada");
  assert.equal(slots.fits("ada"), true);
});

test("holds amounts, as bytes, and nothing of keys that have given all back", () => {
  const slots = new Slots(limits.uploadBytes, 100);
  slots.take("ada", 60);
  assert.deepEqual([slots.fits("ada", 40), slots.fits("ada", 41)], [true, false]);
  slots.take("ada", 40);
  slots.release("ada", 60);
  assert.deepEqual([slots.held("ada"), slots.total], [40, 40]);
  slots.release("ada", 40);
  assert.deepEqual([slots.held("ada"), slots.total, slots.size], [0, 0, 0]);
});

test("a changed number counts from now on, and takes nothing away", () => {
  const slots = new Slots(limits.uploadBytes, 100);
  slots.take("ada", 80);
  slots.max = 50;
  assert.equal(slots.fits("ada", 1), false);
  slots.release("ada", 40);
  assert.deepEqual([slots.fits("ada", 10), slots.fits("ada", 11)], [true, false]);
});

/** Slots of which a key has two, and three may wait. The order in which they came is `got`. */
function lineOf() {
  const three = { ...limits.waitingUsageReads, most: 3 };
  const slots = new Slots(limits.usageReads, 2, three);
  const got: string[] = [];
  const ask = (name: string, key = "ada") => {
    const turn = slots.wait(key);
    void turn?.then(() => got.push(name));
    return turn !== null;
  };
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return { slots, got, ask, settle };
}

test("those that wait get a slot in their order, when one is free", async () => {
  const { slots, got, ask, settle } = lineOf();
  for (const name of ["one", "two", "three", "four"]) assert.ok(ask(name));
  await settle();
  assert.deepEqual(got, ["one", "two"]);
  slots.release("ada");
  await settle();
  assert.deepEqual(got, ["one", "two", "three"]);
  ask("five");
  slots.release("ada");
  slots.release("ada");
  await settle();
  assert.deepEqual(got, ["one", "two", "three", "four", "five"]);
  assert.equal(slots.held("ada"), 2);
});

test("a limited number waits, and other keys do not wait for them", async () => {
  const { slots, got, ask, settle } = lineOf();
  const asked = ["1", "2", "3", "4", "5", "6"].map((name) => ask(name));
  assert.deepEqual(asked, [true, true, true, true, true, false]);
  assert.ok(ask("other", "ben"));
  await settle();
  assert.deepEqual(got, ["1", "2", "other"]);
  for (let n = 0; n < 5; n += 1) slots.release("ada");
  slots.release("ben");
  await settle();
  assert.equal(got.length, 6);
  assert.equal(slots.total, 0);
  assert.ok(ask("again"));
});
