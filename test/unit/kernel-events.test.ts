/** The kernel: the events that operations cause, and when credits are low. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { EventFact } from "../../src/ledger/events.ts";
import type { CapSettings } from "../../src/ledger/operations.ts";
import { expire, large, planTo, promote, small, topup } from "../fixtures/kernel-examples.ts";
import { type Bench, bench } from "../fixtures/ledger-bench.ts";
import {
  accountIds,
  configurations,
  openingKeys,
  openings,
  operationOf,
  startArb,
  stepArb,
  type Told,
} from "../fixtures/ledger-drafts.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, frontEndOf, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { naiveEvents, naiveLineOf } from "../fixtures/naive-events.ts";
import { share } from "../fixtures/thorough.ts";
import { day, minute } from "../fixtures/times.ts";

const thresholdPercents = [80, 90, 100];

/** Lines such as `balance.low base 80`. */
function lineOf({ type, data }: EventFact): string {
  const { scope, cap, key, percent } = data;
  return type === "balance.low"
    ? [type, scope, cap, key, percent].filter((part) => part !== undefined).join(" ")
    : type;
}

async function eventful(...plans: Parameters<typeof bench>): Promise<Bench & { told(): string[] }> {
  const made = await bench(...plans);
  made.store.ledger.eventSettings = { thresholdPercents };
  return { ...made, told: () => made.store.ledger.events.splice(0).map(lineOf) };
}

let request = 0;
/** Spends whole credits in one request. */
async function spend({ apply }: Bench, amount: number, key = "key"): Promise<void> {
  request += 1;
  const micro = credits(amount);
  const held = await apply(hold(`r${request}`, micro, { key }));
  assert.equal(held.kind, "held");
  await apply(settle(`r${request}`, micro));
}

test("commits write no events without settings", async () => {
  const made = await bench(small);
  await spend(made, 10);
  await made.apply(topup("p1", credits(1)));
  assert.deepEqual(made.store.ledger.events, []);
});

test("each threshold of a window is an event once, and the next window arms it again", async () => {
  const made = await eventful(small);
  await spend(made, 7);
  assert.deepEqual(made.told(), []);
  await spend(made, 1);
  assert.deepEqual(made.told(), ["balance.low base 80"]);
  await spend(made, 1);
  await spend(made, 2);
  assert.deepEqual(made.told(), ["balance.low base 90", "balance.low base 100"]);
  made.clock.nowMs += day;
  await spend(made, 8);
  assert.deepEqual(made.told(), ["balance.low base 80"]);
});

test("a threshold that several credits pass at once is an event too", async () => {
  const made = await eventful(small);
  await spend(made, 15);
  assert.deepEqual(made.told(), [
    "balance.low base 80",
    "balance.low base 90",
    "balance.low base 100",
    "balance.low overage 80",
    "balance.low overage 90",
    "balance.low overage 100",
    "balance.exhausted",
  ]);
});

test("less than one credit left counts as nothing", async () => {
  const made = await eventful(planOf("only", 10, 0));
  await made.apply(hold("r", credits(10)));
  await made.apply(settle("r", credits(9) + 1));
  assert.deepEqual(made.told().slice(1), [
    "balance.low base 90",
    "balance.low base 100",
    "balance.exhausted",
  ]);
});

test("a plan with more credits arms a threshold again, one with fewer reaches it", async () => {
  const made = await eventful(small, large);
  await spend(made, 9);
  assert.deepEqual(made.told(), ["balance.low base 80", "balance.low base 90"]);
  await made.apply(planTo("large", "o1"));
  assert.deepEqual(made.told(), ["account.plan_changed"]);
  await made.apply(planTo("small", "o2"));
  assert.deepEqual(made.told(), ["account.plan_changed", "balance.low base 80", "balance.low base 90"]);
});

test("a plan that was scheduled is an event when it begins", async () => {
  const made = await eventful(small, large);
  await made.apply(planTo("large", "o1", "refresh"));
  assert.deepEqual(made.told(), []);
  made.clock.nowMs += day;
  await spend(made, 1);
  assert.deepEqual(made.told(), ["account.plan_changed"]);
});

test("additional credits are compared with the grant that is spent last", async () => {
  const made = await eventful(planOf("none", 0, 0));
  await made.apply(topup("p1", credits(10)));
  await made.apply(topup("p2", credits(100)));
  assert.deepEqual(made.told(), ["payment.added", "payment.added"]);
  await spend(made, 89);
  assert.deepEqual(made.told(), []);
  await spend(made, 1);
  assert.deepEqual(made.told(), ["balance.low additional 80"]);
  await spend(made, 20);
  assert.deepEqual(made.told(), [
    "balance.low additional 90",
    "balance.low additional 100",
    "balance.exhausted",
  ]);
  await made.apply(topup("p3", credits(10)));
  await spend(made, 8);
  assert.deepEqual(made.told(), ["payment.added", "balance.low additional 80"]);
});

test("additional credits that end are low", async () => {
  const made = await eventful(planOf("none", 0, 0));
  await made.apply(promote("o1", credits(10), { untilMs: made.clock.nowMs + minute }));
  made.clock.nowMs += minute;
  await made.apply(topup("p1", credits(10)));
  assert.deepEqual(made.told(), [
    "balance.low additional 80",
    "balance.low additional 90",
    "balance.low additional 100",
    "balance.exhausted",
    "payment.added",
  ]);
});

function dayCap(amount: number, every = "P1D"): CapSettings {
  return { amountMicro: credits(amount), every, byOperator: true };
}

test("a cap of a key has thresholds of its own", async () => {
  const made = await eventful(small);
  const key = { kind: "key", account: "ada", key: "key", by: "test" } as const;
  await made.apply({ ...key, op: "b1", set: { caps: [dayCap(5), dayCap(5, "PT5H")] } });
  await spend(made, 4);
  // The cap of five hours refills before anybody could act.
  assert.deepEqual(made.told(), ["balance.low cap P1D key 80"]);
  await made.apply({ ...key, op: "b2", set: { caps: [dayCap(4)] } });
  assert.deepEqual(made.told(), ["balance.low cap P1D key 90", "balance.low cap P1D key 100"]);
  made.clock.nowMs += day;
  await spend(made, 4);
  const told = made.told().filter((line) => line.includes(" key"));
  assert.deepEqual(told.toSorted(), [80, 90, 100].map((n) => `balance.low cap P1D key ${n}`).toSorted());
});

test("a cap of a plan has thresholds of its own, one that is new too", async () => {
  const caps = [{ name: "dear", credits: 5, every: "P1D", align: "opening", models: ["big-*"] }] as const;
  const made = await eventful(planOf("much", 100, 0, { caps }));
  await made.apply(hold("h", credits(9), { model: "small" }));
  await made.apply(settle("h", credits(9)));
  assert.deepEqual(made.told(), []);
  await made.apply(hold("h2", credits(5), { model: "big-one" }));
  assert.deepEqual(made.told(), []);
  await made.apply(settle("h2", credits(5)));
  assert.deepEqual(
    made.told(),
    [80, 90, 100].map((n) => `balance.low cap dear ${n}`),
  );
});

test("the key of a front end has no events of its caps, also if they are changed", async () => {
  const made = await eventful(planOf("much", 100, 0));
  const actsFor = frontEndOf("webui", "x-person");
  await addKey(made.store, keyOf("fe", "ada", { hash: "3".repeat(64), actsFor }));
  const change = { kind: "key", account: "ada", key: "fe", by: "test" } as const;
  await made.apply({ ...change, op: "b1", set: { caps: [dayCap(10)] } });
  await spend(made, 5, "fe");
  made.told();
  await made.apply({ ...change, op: "b2", set: { caps: [dayCap(5)] } });
  assert.deepEqual(made.told(), []);
});

test("a refused request in a new window of a cap tells nothing", async () => {
  const made = await eventful(planOf("much", 100, 0));
  const set = { caps: [dayCap(10)] };
  await made.apply({ kind: "key", account: "ada", key: "key", by: "test", op: "b1", set });
  await spend(made, 9);
  const suspend = { kind: "state", account: "ada", op: "s", to: { kind: "suspend" }, by: "test" } as const;
  await made.apply(suspend);
  made.told();
  made.clock.nowMs += day;
  for (const id of ["one", "two"]) await made.apply(hold(id, credits(1)));
  assert.deepEqual(made.told(), []);
});

test("what a request spends of a cap after its window counts in the next one", async () => {
  const made = await eventful(planOf("much", 100, 0));
  const set = { caps: [dayCap(10)] };
  await made.apply({ kind: "key", account: "ada", key: "key", by: "test", op: "b1", set });
  await spend(made, 9);
  await made.apply(hold("late", credits(1), { ttlMs: 2 * day }));
  assert.deepEqual(made.told(), ["balance.low cap P1D key 80", "balance.low cap P1D key 90"]);
  made.clock.nowMs += day;
  await made.apply(settle("late", credits(8)));
  assert.deepEqual(made.told(), ["balance.low cap P1D key 80"]);
});

test("accounts, payments and keys have events with their journal number", async () => {
  const made = await eventful(small);
  await addKey(made.store, keyOf("k2", "ada", { hash: "2".repeat(64) }));
  await revokeKey(made.store, "k2");
  await made.apply(topup("p1", credits(3)));
  await made.apply({
    kind: "refund",
    account: "ada",
    refund: "f1",
    payment: "p1",
    amountMicro: 1,
    by: "test",
  });
  for (const kind of ["suspend", "resume", "close"] as const)
    await made.apply({ kind: "state", account: "ada", op: kind, to: { kind }, by: "test" });
  await made.apply({ kind: "open", account: "bob", plan: "small", by: "test" });
  const told = made.store.ledger.events.map(({ account, seq, type, data }) => [account, seq, type, data]);
  assert.deepEqual(told, [
    ["ada", 5, "key.created", { key: "k2", name: null, by: "test" }],
    ["ada", 6, "key.revoked", { key: "k2", name: null, by: "test" }],
    ["ada", 7, "payment.added", { payment: "p1", amount_micro: credits(3), by: "test" }],
    ["ada", 8, "payment.refunded", { payment: "p1", amount_micro: 1, by: "test" }],
    ["ada", 9, "account.suspended", { by: "test" }],
    ["ada", 10, "account.resumed", { by: "test" }],
    ["ada", 11, "account.closed", { by: "test" }],
    ["bob", 1, "account.opened", { plan: "small", by: "test" }],
  ]);
});

test("a repeated operation adds no event", async () => {
  const made = await eventful(small);
  for (let n = 0; n < 3; n += 1) await made.apply(topup("p1", credits(3)));
  await made.apply(hold("r", credits(9)));
  for (let n = 0; n < 3; n += 1) await made.apply(settle("r", credits(9)));
  await made.apply(expire("r"));
  assert.deepEqual(made.told(), ["payment.added", "balance.low base 80", "balance.low base 90"]);
});

test("random operations have the events that follow from the facts, in batches as one by one", async () => {
  const bounded = { interruptAfterTimeLimit: 60_000, markInterruptAsFailure: true };
  const prepared = async (nowMs: () => number, plans = configurations[0] ?? plansOf()) => {
    const store = memoryStore(plans, nowMs);
    store.ledger.eventSettings = { thresholdPercents };
    await store.commit(openings);
    for (const key of openingKeys) await addKey(store, key);
    return store;
  };
  const steps = fc.array(stepArb, { maxLength: 20, size: "max" });
  const property = fc.asyncProperty(startArb, steps, async (startMs, steps) => {
    let nowMs = startMs;
    const [together, apart] = [await prepared(() => nowMs), await prepared(() => nowMs)];
    const told: Told = {
      operations: [],
      holds: [],
      payments: [],
      grantsOf: (account) => together.grants(account).map(({ seq }) => seq),
    };
    for (const step of steps) {
      nowMs += typeof step.wait === "number" ? step.wait : step.wait.moment * minute;
      const batch = step.drafts.map((draft) => operationOf(draft, told, nowMs));
      told.operations.push(...batch);
      await together.commit(batch);
      for (const operation of batch) await apart.commit([operation]);
    }
    assert.deepEqual(together.ledger.events, apart.ledger.events);
    for (const account of accountIds) {
      const lines = together.ledger.events
        .filter((event) => event.account === account)
        .flatMap(({ type, data }) => naiveLineOf(type, data) ?? []);
      assert.deepEqual(lines.sort(), naiveEvents(together.ledger, account, thresholdPercents));
    }
  });
  await fc.assert(property, { numRuns: share(150), ...bounded });
});
