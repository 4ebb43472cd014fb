/** Work is spread over turns of the event loop. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { limits } from "../../src/limits/limits.ts";
import { Turns } from "../../src/limits/turns.ts";

let nowMs = 0;
beforeEach(() => {
  mock.method(performance, "now", () => nowMs);
});
afterEach(() => mock.restoreAll());

function turnsOfBodies(): Turns {
  return new Turns(limits.bodyTurn, { waiting: limits.waitingBodies });
}

/** Takes longer than the limit of one turn. */
function work(): void {
  nowMs += 15;
}

test("runs a body at once if the service is idle, and several small bodies in one turn", () => {
  const turns = turnsOfBodies();
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
  const turns = turnsOfBodies();
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
  const turns = turnsOfBodies();
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
  const turns = turnsOfBodies();
  assert.throws(() => turns.run(() => assert.fail("no good")), /no good/);
  turns.run(work);
  const refused = turns.wait("a", (): string => assert.fail("no good either")) ?? "refused";
  const good = turns.wait("a", () => "good");
  await assert.rejects(async () => await refused, /no good either/);
  assert.equal(await good, "good");
});

test("limits the work that waits, but accepts that of other keys", async () => {
  const turns = turnsOfBodies();
  turns.run(work);
  const flood = Array.from({ length: limits.waitingBodies.most }, () => turns.wait("a", () => true));
  assert.ok(!flood.includes(null));
  assert.equal(
    turns.wait("a", () => true),
    null,
  );
  assert.equal(await turns.wait("b", () => true), true);
  await Promise.all(flood);
});

test("without time in a turn, each piece of work has a turn of its own", async () => {
  const turns = new Turns(limits.largeMessages, { turnMs: 0 });
  assert.equal(turns.isFree, false);
  const done: string[] = [];
  for (const name of ["a", "b", "c"]) void turns.wait("server", () => {})?.then(() => done.push(name));
  for (const expected of [[], ["a"], ["a", "b"], ["a", "b", "c"]]) {
    assert.deepEqual(done, expected);
    await nextTurn();
  }
});
