/** Bodies take turns of the event loop. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Refusal } from "../../src/errors.ts";
import { BodyTurns } from "../../src/http/public/uploads.ts";

let nowMs = 0;
beforeEach(() => {
  mock.method(performance, "now", () => nowMs);
});
afterEach(() => mock.restoreAll());

/** Takes longer than the limit of one turn. */
function work(): void {
  nowMs += 15;
}

test("runs a body at once if the service is idle, and several small bodies in one turn", () => {
  const turns = new BodyTurns();
  assert.equal(turns.isFree, true);
  for (let body = 0; body < 9; body += 1) {
    turns.run(() => {
      nowMs += 1;
    });
  }
  assert.equal(turns.isFree, true);
  turns.run(() => {
    nowMs += 1;
  });
  assert.equal(turns.isFree, false);
});

test("runs one large body per turn of the event loop", async () => {
  const turns = new BodyTurns();
  const done: number[] = [];
  turns.run(work);
  assert.equal(turns.isFree, false);
  const waiting = [1, 2, 3].map((body) =>
    turns.wait("a", () => {
      work();
      done.push(body);
    }),
  );
  for (const expected of [1, 2, 3]) {
    assert.equal(done.length, expected - 1);
    await nextTurn();
  }
  await Promise.all(waiting);
  assert.deepEqual(done, [1, 2, 3]);
  await nextTurn();
  assert.equal(turns.isFree, true);
});

test("gives accounts turns", async () => {
  const turns = new BodyTurns();
  const done: string[] = [];
  turns.run(work);
  const bodies = ["a", "a", "a", "b"].map((account) =>
    turns.wait(account, () => {
      work();
      done.push(account);
    }),
  );
  await Promise.all(bodies);
  assert.deepEqual(done, ["a", "b", "a", "a"]);
});

test("passes an error to the caller of its body only", async () => {
  const turns = new BodyTurns();
  assert.throws(() => turns.run(() => assert.fail("no good")), /no good/);
  turns.run(work);
  const refused = turns.wait("a", () => assert.fail("no good either"));
  const good = turns.wait("a", () => "good");
  await assert.rejects(refused, /no good either/);
  assert.equal(await good, "good");
});

test("refuses bodies beyond the limit, but accepts those of other accounts", async () => {
  const turns = new BodyTurns();
  turns.run(work);
  const flood = Array.from({ length: 1024 }, () => turns.wait("a", () => true));
  await assert.rejects(
    turns.wait("a", () => true),
    (error) => error instanceof Refusal && error.code === "overloaded",
  );
  assert.equal(await turns.wait("b", () => true), true);
  await Promise.all(flood);
});
