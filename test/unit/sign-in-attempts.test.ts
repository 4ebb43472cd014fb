/** The limit of failed sign-ins: attempts one after the other, and many at once. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SignInAttempts } from "../../src/http/sign-in-attempts.ts";
import { limits } from "../../src/limits/limits.ts";

const address = "203.0.113.7";
const failedMax = limits.failedSignIns.most;

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
  assert.equal((await kinds(many)).filter((kind) => kind === "admitted").length, 1);
  for (const each of many) await each.end(false);
});

test("guesses at once find out no more than guesses one after the other", async () => {
  const attempts = new SignInAttempts(() => 0);
  const many = beginMany(attempts, 60);
  for (const [n, each] of many.entries()) {
    if (n < failedMax) await each.end(true);
    else assert.equal(await each.kind(), "failed");
  }
  assert.equal(await begin(attempts).kind(), "failed");
});

test("an attempt that succeeds is no failure, and the next one has its turn", async () => {
  const attempts = new SignInAttempts(() => 0);
  for (let n = 0; n < failedMax - 1; n += 1) await begin(attempts).end(true);
  const [right, guess, last] = beginMany(attempts, 3);
  assert.ok(right && guess && last);
  assert.deepEqual(await kinds([right, guess]), ["admitted", "waiting"]);
  await right.end(false);
  assert.deepEqual(await kinds([guess, last]), ["admitted", "waiting"]);
  await guess.end(true);
  assert.equal(await last.kind(), "failed");
});

test("a failure counts for a minute from its end, and any minute has ten", async () => {
  let nowMs = 0;
  const attempts = new SignInAttempts(() => nowMs);
  const slow = begin(attempts);
  await slow.kind();
  nowMs = 50_000;
  await slow.end(true);
  nowMs = 59_000;
  for (let n = 0; n < failedMax - 1; n += 1) await begin(attempts).end(true);
  assert.equal(await begin(attempts).waitMs(), 51_000);
  nowMs = 110_000;
  await begin(attempts).end(true);
  assert.equal(await begin(attempts).waitMs(), 9_000);
  nowMs = 119_000;
  for (let n = 0; n < failedMax - 1; n += 1) await begin(attempts).end(true);
  assert.equal(await begin(attempts).waitMs(), 51_000);
});

test("one client cannot keep others waiting, nor more than its share", async () => {
  const attempts = new SignInAttempts(() => 0);
  const many = beginMany(attempts, 1 + limits.waitingSignIns.most);
  const further = begin(attempts);
  assert.equal(await further.kind(), "full");
  assert.ok((await further.waitMs()) > 0);
  assert.equal(await begin(attempts, "203.0.113.8").kind(), "admitted");
  assert.equal(await begin(attempts, "2001:db8::1").kind(), "admitted");
  assert.equal(await begin(attempts, "2001:db8::2").kind(), "waiting", "a /64 network is one client");
  for (const each of many) await each.end(false);
  assert.equal(await begin(attempts).kind(), "admitted");
});
