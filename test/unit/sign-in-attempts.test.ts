/** The limit of failed sign-ins: attempts one after the other, and many at once. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { failedAttemptsMax, SignInAttempts, waitingAttemptsMax } from "../../src/http/sign-in-attempts.ts";

const address = "203.0.113.7";

/** Begins an attempt. `outcome` is null while it waits. */
function begin(attempts: SignInAttempts, from = address) {
  const begun: { outcome: Awaited<ReturnType<SignInAttempts["begin"]>> | null } = { outcome: null };
  const decided = attempts.begin(from).then((outcome) => {
    begun.outcome = outcome;
    return outcome;
  });
  return {
    /** The kind of the outcome now, or `waiting`. */
    async kind() {
      // `begin` decides at once, or not before another attempt ends.
      await Promise.race([decided, new Promise((resolve) => setImmediate(resolve))]);
      return begun.outcome?.kind ?? "waiting";
    },
    async end(hasFailed: boolean) {
      const outcome = await decided;
      assert.equal(outcome.kind, "admitted");
      if (outcome.kind === "admitted") outcome.end(hasFailed);
    },
    async waitMs() {
      const outcome = await decided;
      assert.notEqual(outcome.kind, "admitted");
      return outcome.kind === "admitted" ? 0 : outcome.waitMs;
    },
  };
}

function beginMany(attempts: SignInAttempts, count: number) {
  return Array.from({ length: count }, () => begin(attempts));
}

const kinds = (begun: ReturnType<typeof beginMany>) => Promise.all(begun.map((each) => each.kind()));

test("any number of successful attempts pass, one after the other and at once", async () => {
  const attempts = new SignInAttempts(() => 0);
  for (let n = 0; n < 50; n += 1) await begin(attempts).end(false);
  const many = beginMany(attempts, 60);
  const first = await kinds(many);
  assert.equal(first.filter((kind) => kind === "admitted").length, failedAttemptsMax);
  assert.equal(first.filter((kind) => kind === "waiting").length, 50);
  for (const each of many) await each.end(false);
});

test("guesses at once find out no more than guesses one after the other", async () => {
  const attempts = new SignInAttempts(() => 0);
  const many = beginMany(attempts, 60);
  for (const [n, each] of many.entries()) {
    if (n < failedAttemptsMax) await each.end(true);
    else assert.equal(await each.kind(), "failed");
  }
  assert.equal(await begin(attempts).kind(), "failed");
});

test("an attempt that succeeds gives back its own place, and no failure", async () => {
  const attempts = new SignInAttempts(() => 0);
  for (let n = 0; n < failedAttemptsMax - 1; n += 1) await begin(attempts).end(true);
  const guess = begin(attempts);
  const right = begin(attempts);
  assert.deepEqual(await kinds([guess, right]), ["admitted", "waiting"]);
  await guess.end(false);
  assert.equal(await right.kind(), "admitted");
  const next = begin(attempts);
  assert.equal(await next.kind(), "waiting", "one place is left");
  await right.end(false);
  await next.end(true);
  assert.equal(await begin(attempts).kind(), "failed");
});

test("waiting attempts are admitted in their order and refused together", async () => {
  const attempts = new SignInAttempts(() => 0);
  for (let n = 0; n < failedAttemptsMax - 1; n += 1) await begin(attempts).end(true);
  const [first, second, third] = beginMany(attempts, 3);
  assert.ok(first && second && third);
  await first.end(false);
  assert.deepEqual(await kinds([second, third]), ["admitted", "waiting"]);
  await second.end(true);
  assert.equal(await third.kind(), "failed");
});

test("a failure counts for a minute from its end", async () => {
  let nowMs = 0;
  const attempts = new SignInAttempts(() => nowMs);
  const slow = begin(attempts);
  await slow.kind();
  for (let n = 0; n < failedAttemptsMax - 1; n += 1) await begin(attempts).end(true);
  nowMs = 59_000;
  await slow.end(true);
  assert.equal(await begin(attempts).waitMs(), 1_000);
  nowMs = 60_000;
  for (let n = 0; n < failedAttemptsMax - 1; n += 1) await begin(attempts).end(true);
  assert.equal(await begin(attempts).waitMs(), 59_000);
});

test("one client cannot keep others waiting, nor more than its share", async () => {
  const attempts = new SignInAttempts(() => 0);
  const many = beginMany(attempts, failedAttemptsMax + waitingAttemptsMax);
  const further = begin(attempts);
  assert.equal(await further.kind(), "full");
  assert.ok((await further.waitMs()) > 0);
  assert.equal(await begin(attempts, "203.0.113.8").kind(), "admitted");
  assert.equal(await begin(attempts, "2001:db8::1").kind(), "admitted");
  for (const each of many) await each.end(false);
  assert.equal(await begin(attempts).kind(), "admitted");
});
