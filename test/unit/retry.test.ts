/** Retries of calls to the store: how often, for how long, and what ends them early. */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { retry } from "../../src/retry.ts";

const open = new AbortController().signal;
const quick = { retriesMs: [1, 1, 1], giveUpMs: 60_000 };

/** A store that is unavailable for the first attempts. */
function away(attempts: number): { attempt(): Promise<string>; made(): number } {
  let made = 0;
  return {
    async attempt() {
      made += 1;
      if (made <= attempts) throw new StoreUnavailableError(`attempt ${made}`);
      return `answer ${made}`;
    },
    made: () => made,
  };
}

test("retries until the store is available again", async () => {
  assert.equal(await retry(away(3).attempt, quick, open), "answer 4");
});

test("gives up after the last pause, or after the time limit", async () => {
  await assert.rejects(retry(away(9).attempt, quick, open), /attempt 4/);
  await assert.rejects(retry(away(9).attempt, { ...quick, giveUpMs: 0 }, open), /attempt 1/);
});

test("throws a defect at once", async () => {
  const defect = new Error("no such column");
  let made = 0;
  const attempt = async () => {
    made += 1;
    throw defect;
  };
  await assert.rejects(retry(attempt, quick, open), defect);
  assert.equal(made, 1);
});

test("stops retrying when the store is closed", async () => {
  const closing = new AbortController();
  const { attempt, made } = away(9);
  const answer = retry(attempt, { retriesMs: [600_000, 600_000], giveUpMs: 600_000 }, closing.signal);
  await nextTurn();
  closing.abort();
  await assert.rejects(answer, /attempt 1/);
  assert.equal(made(), 1);
});

test("tries once if the store is closed already", async () => {
  const { attempt, made } = away(9);
  const policy = { retriesMs: [600_000], giveUpMs: 600_000 };
  await assert.rejects(retry(attempt, policy, AbortSignal.abort()), /attempt 1/);
  assert.equal(made(), 1);
});

test("any number of waiting reads share one listener on a signal, and all end with it", async () => {
  const closing = new AbortController();
  const policy = { retriesMs: [1, 600_000], giveUpMs: 600_000 };
  const waiting = Array.from({ length: 100 }, () => away(9));
  const answers = waiting.map(({ attempt }) => retry(attempt, policy, closing.signal));
  const all = Promise.allSettled(answers);
  while (waiting.some(({ made }) => made() < 2)) await nextTurn();
  await nextTurn();
  assert.equal(getEventListeners(closing.signal, "abort").length, 1);
  closing.abort();
  for (const answer of await all) {
    assert.ok(answer.status === "rejected");
    assert.match(String(answer.reason), /attempt 2/);
  }
  assert.ok(waiting.every(({ made }) => made() === 2));
});
