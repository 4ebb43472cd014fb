/**
 * Random operations against the naive ledger of test/fixtures: windows rolling under open holds, plans changed by
 * operation and by configuration, the clock forwards over many windows and back by seconds, every operation again
 * and out of order, lost acknowledgements. After each batch both must tell the same story, and the rows must pass
 * the audit. On a failure fast-check prints the shrunk steps with the seed that finds them again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { balanceOf } from "../../src/credits/balance.ts";
import type { Operation, Outcome } from "../../src/credits/operations.ts";
import type { Plan, Plans } from "../../src/credits/plan.ts";
import type { Ending } from "../../src/credits/rows.ts";
import { audit } from "../fixtures/ledger-audit.ts";
import { credits, day, hour, keyOf, minute, plansOf, second, start } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { NaiveLedger, type NaiveOutcome } from "../fixtures/naive-ledger.ts";

const runs = 600;
const operationsMin = 10_000;
/** A failure is shrunk for at most so long; a slow machine that does not get through all runs fails as well. */
const bounded = { interruptAfterTimeLimit: 60_000, markInterruptAsFailure: true };

/** One plan in several configurations: caps and periods differ, and in the last one `large` is missing. */
function plan(id: string, base: [number, string], overage: [number, string], limits: Plan["limits"]): Plan {
  return {
    id,
    base: { credits: base[0], every: base[1] },
    overage: { credits: overage[0], every: overage[1] },
    limits,
    models: ["*"],
  };
}

const configurations: readonly Plans[] = [
  plansOf(
    plan("small", [20, "P1D"], [10, "P1M"], {}),
    plan("large", [60, "PT5H"], [5, "P1W"], { requestsPerMinute: 12, tokensPerMinute: 600, concurrent: 6 }),
    plan("bought", [0, "P1M15D"], [0, "P1Y"], { concurrent: 4 }),
  ),
  plansOf(
    plan("small", [7, "P1W"], [30, "PT5H"], { requestsPerMinute: 60 }),
    plan("large", [90, "P1M"], [0, "P1D"], { tokensPerMinute: 120 }),
    plan("bought", [1, "P1D"], [1, "P1M15D"], {}),
  ),
  plansOf(
    plan("small", [20, "P1D"], [10, "P1M"], {}),
    plan("bought", [0, "P1M15D"], [0, "P1Y"], { concurrent: 2 }),
  ),
];

const accountIds = ["ada", "bob", "eve"];
const keyIds: Record<string, readonly string[]> = {
  ada: ["ada-2", "ada-1", "ada-2", "ada-2", "ada-1", "ada-2", "bob-1", "nobody"],
  bob: ["bob-1", "bob-1", "bob-1", "ada-1"],
  eve: ["ada-1"],
};

const tokensArb = fc
  .record({
    promptTokens: fc.nat({ max: 12 }),
    cached: fc.nat({ max: 12 }),
    completionTokens: fc.oneof(fc.nat({ max: 2 }), fc.nat({ max: 40 })),
    reasoning: fc.nat({ max: 40 }),
  })
  .map(({ promptTokens, cached, completionTokens, reasoning }) => ({
    promptTokens,
    cachedTokens: Math.min(cached, promptTokens),
    completionTokens,
    reasoningTokens: Math.min(reasoning, completionTokens),
  }));
const noTokens = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
const usedArb = fc.oneof(
  { weight: 4, arbitrary: tokensArb },
  { weight: 1, arbitrary: fc.constant(noTokens) },
);

const amountArb = fc.oneof(
  { weight: 6, arbitrary: fc.nat({ max: credits(15) }) },
  { weight: 2, arbitrary: fc.nat({ max: 3 }) },
  { weight: 1, arbitrary: fc.nat({ max: credits(200) }) },
);
const hugeArb = fc.constantFrom(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER - credits(5), 2 ** 52);
const priceArb = fc.record(
  {
    prompt: fc.nat({ max: 900_000 }),
    completion: fc.nat({ max: 900_000 }),
    cachedPrompt: fc.nat({ max: 900_000 }),
  },
  { requiredKeys: ["prompt", "completion"] },
);
const ttlArb = fc.constantFrom(1, second, 30 * second, hour, 40 * day);
const endingArb = fc.constantFrom<Ending>(
  "stop",
  "length",
  "credits",
  "client_gone",
  "engine_failed",
  "refused",
  "shutdown",
);
const accountArb = fc.constantFrom("ada", "ada", "ada", "bob", "eve");
const planArb = fc.constantFrom("small", "large", "bought", "unheard-of");
/** Chooses among what is there when the step is reached. */
const pickArb = fc.nat({ max: 1000 });
const opArb = fc.constantFrom("1", "2", "3", "4", "5", "6", "7", "8");

const draftArb = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("hold" as const),
      account: accountArb,
      key: pickArb,
      price: priceArb,
      promptTokens: fc.nat({ max: 30 }),
      min: amountArb,
      more: amountArb,
      ttlMs: ttlArb,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("extend" as const),
      hold: pickArb,
      n: fc.integer({ min: 1, max: 3 }),
      more: amountArb,
      used: usedArb,
      ttlMs: ttlArb,
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("settle" as const),
      hold: pickArb,
      used: usedArb,
      ending: endingArb,
      estimated: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("expire" as const), hold: pickArb }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("topup" as const),
      account: accountArb,
      payment: opArb,
      amount: fc.oneof(
        { weight: 9, arbitrary: amountArb.map((n) => n + 1) },
        { weight: 1, arbitrary: hugeArb },
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("adjust" as const),
      account: accountArb,
      op: opArb,
      amount: fc.oneof(
        amountArb,
        amountArb.map((n) => 0 - n),
        hugeArb,
        hugeArb.map((n) => 0 - n),
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("plan" as const),
      account: accountArb,
      op: opArb,
      plan: planArb,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("open" as const), account: accountArb, plan: planArb }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("again" as const), which: pickArb }) },
);
type Draft = typeof draftArb extends fc.Arbitrary<infer T> ? T : never;

const waitArb = fc.oneof(
  { weight: 6, arbitrary: fc.nat({ max: 2 * second }) },
  { weight: 3, arbitrary: fc.nat({ max: 2 * minute }) },
  { weight: 2, arbitrary: fc.nat({ max: 6 * hour }) },
  { weight: 1, arbitrary: fc.nat({ max: 40 * day }) },
  { weight: 1, arbitrary: fc.integer({ min: -10 * second, max: 0 }) },
  { weight: 1, arbitrary: fc.constantFrom(400 * day, 5 * hour, day, 7 * day) },
);
const stepArb = fc.record({
  waitMs: waitArb,
  drafts: fc.array(draftArb, { minLength: 1, maxLength: 7, size: "max" }),
  /** What goes wrong with the commit, after which the same batch is sent again. */
  fault: fc.constantFrom("none", "none", "none", "before", "after"),
  next: fc.constantFrom("nothing", "nothing", "nothing", "nothing", "configure", "revoke"),
  which: pickArb,
});

/** What has been said so far, from which drafts choose. */
interface Told {
  operations: Operation[];
  holds: { account: string; hold: string }[];
}

function operationOf(draft: Draft, told: Told): Operation {
  switch (draft.kind) {
    case "hold": {
      const { key, min, more, ...rest } = draft;
      const hold = `h${told.holds.length}`;
      told.holds.push({ account: draft.account, hold });
      return {
        ...rest,
        hold,
        key: chosen(keyIds[draft.account] ?? [], key) ?? "nobody",
        model: "model",
        min,
        want: min + more,
      };
    }
    case "extend":
    case "settle":
    case "expire": {
      // Mostly recent holds; now and then one that nobody has taken, or that of another account.
      const recent = told.holds.slice(-6);
      const hold = draft.hold % 17 === 16 ? undefined : recent[draft.hold % recent.length];
      return { ...draft, ...(hold ?? { account: "ada", hold: "h0" }) };
    }
    case "adjust":
      return { ...draft, reason: "by hand" };
    case "again":
      return (
        told.operations[draft.which % told.operations.length] ?? {
          kind: "open",
          account: "ada",
          plan: "small",
        }
      );
    default:
      return draft;
  }
}

function chosen<T>(from: readonly T[], pick: number): T | undefined {
  return from[pick % from.length];
}

/** The parts of an outcome that the naive ledger knows of. */
function withoutRates(outcome: Outcome): NaiveOutcome {
  if (outcome.kind === "balance_invalid") return { kind: outcome.kind };
  if (!("rates" in outcome)) return { ...outcome };
  const { rates, ...rest } = outcome;
  return rest;
}

function compare(store: MemoryStore, naive: NaiveLedger): void {
  for (const [id, expected] of naive.accounts) {
    const { base, overage } = expected.windows;
    const held = naive.held(expected);
    const row = store.account(id);
    const { createdMs, ...rest } = row;
    assert.deepEqual(
      rest,
      {
        id,
        plan: expected.plan,
        seq: expected.entries,
        base: Number(expected.left.base),
        baseCap: Number(base.cap),
        baseAnchorMs: base.anchor,
        baseStartsMs: base.starts,
        baseEndsMs: base.ends,
        overage: Number(expected.left.overage),
        overageCap: Number(overage.cap),
        overageAnchorMs: overage.anchor,
        overageStartsMs: overage.starts,
        overageEndsMs: overage.ends,
        additional: Number(expected.left.additional),
        heldBase: Number(held.base),
        heldOverage: Number(held.overage),
        heldAdditional: Number(held.additional),
        holds: expected.open.size,
        requestsTatMs: expected.meter.requests,
        tokensTatMs: expected.meter.tokens,
      },
      `account ${id}`,
    );
    assert.deepEqual(
      store.openHolds(id).map((hold) => hold.id),
      [...expected.open.keys()],
      `open holds of ${id}`,
    );
    for (const [hold, receipt] of expected.ended) {
      const usage = store.receipt(id, hold);
      assert.ok(usage !== undefined, `the receipt of ${hold}`);
      const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
      assert.deepEqual(
        {
          used: { promptTokens, cachedTokens, completionTokens, reasoningTokens },
          ending: usage.ending,
          cost: BigInt(usage.cost),
          paid: {
            base: BigInt(usage.base),
            overage: BigInt(usage.overage),
            additional: BigInt(usage.additional),
          },
          shortfall: BigInt(usage.shortfall),
        },
        {
          used: { ...receipt.used },
          ending: receipt.ending,
          cost: receipt.cost,
          paid: receipt.paid,
          shortfall: receipt.shortfall,
        },
        `receipt of ${hold}`,
      );
    }
  }
  for (const [id, expected] of naive.keys) {
    const { requestsTatMs, tokensTatMs } = store.key(id);
    assert.deepEqual({ requests: requestsTatMs, tokens: tokensTatMs }, expected.meter, `meter of key ${id}`);
  }
}

/** `startedAt <= now < refreshesAt`, and a balance that reads the same as what a batch would write. */
async function checkBalance(store: MemoryStore, id: string): Promise<void> {
  const snapshot = await store.snapshot(id);
  if (snapshot === null || !store.plans.has(snapshot.account.plan)) return;
  const view = balanceOf(snapshot, store.plans);
  const now = Math.max(snapshot.nowMs, snapshot.account.baseStartsMs, snapshot.account.overageStartsMs);
  for (const bucket of [view.base, view.overage]) {
    assert.ok(bucket.startsMs <= now && now < bucket.endsMs, `the window of ${id} contains now`);
    assert.ok(bucket.micro >= 0 && bucket.micro <= bucket.capMicro, `${id} is shown no more than its cap`);
  }
}

/** No interval of any length admits more than its minutes' worth and one burst. */
function checkAdmitted(admittedMs: readonly number[], limit: number): void {
  for (const [from, first] of admittedMs.entries()) {
    for (let to = from; to < admittedMs.length; to += 1) {
      const minutes = Math.max(0, (admittedMs[to] ?? 0) - first) / minute;
      const count = to - from + 1;
      assert.ok(
        count <= limit * (minutes + 1) + 1e-9,
        `${count} requests in ${minutes} minutes of ${limit} each`,
      );
    }
  }
}

const narrow = { requestsPerMinute: 4, tokensPerMinute: 100, concurrent: 3 };

async function prepared(nowMs: () => number): Promise<{ store: MemoryStore; naive: NaiveLedger }> {
  const plans = configurations[0] ?? plansOf();
  const store = new MemoryStore(plans, nowMs);
  const naive = new NaiveLedger(plans);
  for (const [account, name] of [
    ["ada", "small"],
    ["bob", "large"],
  ] as const) {
    const open = { kind: "open", account, plan: name } as const;
    await store.commit([open]);
    naive.apply(open, nowMs());
  }
  const keys = [
    keyOf("ada-1", "ada"),
    keyOf("ada-2", "ada", narrow),
    keyOf("bob-1", "bob", { expiresMs: start + 30 * day }),
  ];
  for (const key of keys) {
    await store.addKey(key);
    const { account, requestsPerMinute, tokensPerMinute, concurrent, expiresMs } = key;
    const meter = { requests: 0, tokens: 0 };
    naive.keys.set(key.id, {
      account,
      requestsPerMinute,
      tokensPerMinute,
      concurrent,
      expires: expiresMs,
      revoked: false,
      meter,
    });
  }
  return { store, naive };
}

test("whatever is asked in whatever order, the ledger and a naive one tell the same story", async () => {
  let operations = 0;
  const outcomesSeen = new Set<string>();
  const property = fc.asyncProperty(fc.array(stepArb, { maxLength: 40, size: "max" }), async (steps) => {
    let nowMs = start;
    const { store, naive } = await prepared(() => nowMs);
    const told: Told = { operations: [], holds: [] };
    const admittedMs: number[] = [];

    async function send(batch: readonly Operation[]): Promise<void> {
      const outcomes = await store.commit(batch);
      assert.equal(outcomes.length, batch.length);
      for (const [index, operation] of batch.entries()) {
        const outcome = outcomes[index];
        assert.ok(outcome !== undefined);
        const isNew =
          operation.kind === "hold" &&
          !naive.accounts.get(operation.account)?.done.has(`hold ${operation.hold}`);
        const expected = naive.apply(operation, nowMs);
        const told = withoutRates(outcome);
        assert.deepEqual(told, expected, `answer to ${JSON.stringify(operation)}`);
        outcomesSeen.add(`${operation.kind} ${told.kind} ${"reason" in told ? told.reason : ""}`.trim());
        if (isNew && outcome.kind === "held" && operation.key === "ada-2") admittedMs.push(nowMs);
      }
      operations += batch.length;
    }

    for (const step of steps) {
      nowMs += step.waitMs;
      const batch = step.drafts.map((draft) => operationOf(draft, told));
      told.operations.push(...batch);
      if (step.fault === "before") {
        store.hooks = { before: () => Promise.reject(new Error("cut")) };
        await assert.rejects(store.commit(batch), /cut/);
      } else if (step.fault === "after") {
        // The acknowledgement is lost; the naive ledger hears of it by the operations themselves.
        store.hooks = { after: () => Promise.reject(new Error("lost")) };
        await assert.rejects(store.commit(batch), /lost/);
        for (const operation of batch) naive.apply(operation, nowMs);
        operations += batch.length;
      }
      store.hooks = {};
      await send(batch);
      compare(store, naive);
      await audit(store);
      for (const id of accountIds) await checkBalance(store, id);
      if (step.next === "configure") {
        const plans = configurations[step.which % configurations.length] ?? plansOf();
        store.plans = plans;
        naive.plans = plans;
      } else if (step.next === "revoke" && step.which % 3 === 0) {
        const id = chosen(["ada-1", "ada-2", "bob-1"], step.which) ?? "";
        const key = naive.keys.get(id);
        if (key !== undefined) key.revoked = true;
        await store.revokeKey(id, nowMs);
      }
    }
    checkAdmitted(admittedMs, narrow.requestsPerMinute);
  });
  await fc.assert(property, { numRuns: runs, ...bounded });
  assert.ok(operations >= operationsMin, `${operations} operations were compared`);
  for (const outcome of everyOutcome) assert.ok(outcomesSeen.has(outcome), `no run came to "${outcome}"`);
});

/** Outcomes that the runs must have come to, so that a generator gone blunt is noticed. */
const everyOutcome = [
  "hold held",
  "hold refused insufficient_credits",
  "hold refused credits_reserved",
  "hold refused rate_limit_exceeded",
  "hold refused concurrency_limit_exceeded",
  "hold refused key_unknown",
  "hold refused key_revoked",
  "hold refused key_expired",
  "hold refused hold_ended",
  "extend extended",
  "extend ended",
  "settle settled",
  "settle unknown_hold",
  "expire expired",
  "expire alive",
  "expire ended",
  "topup added",
  "topup differs",
  "topup too_much",
  "adjust adjusted",
  "adjust differs",
  "adjust too_little",
  "adjust too_much",
  "plan changed",
  "plan balance_invalid",
  "open opened",
  "open exists",
  "hold no_account",
  "hold balance_invalid",
  "settle balance_invalid",
];

test("a batch and its operations one by one come to the same rows and the same answers", async () => {
  const property = fc.asyncProperty(fc.array(stepArb, { maxLength: 15, size: "max" }), async (steps) => {
    let nowMs = start;
    const together = (await prepared(() => nowMs)).store;
    const apart = (await prepared(() => nowMs)).store;
    const told: Told = { operations: [], holds: [] };
    for (const step of steps) {
      nowMs += step.waitMs;
      const batch = step.drafts.map((draft) => operationOf(draft, told));
      told.operations.push(...batch);
      const outcomes: Outcome[] = [];
      for (const operation of batch) outcomes.push(...(await apart.commit([operation])));
      assert.deepEqual(await together.commit(batch), outcomes);
      const limit = 1000;
      assert.deepEqual(await together.accounts({ limit }), await apart.accounts({ limit }));
      for (const id of accountIds) {
        assert.deepEqual(await together.journal(id, { limit }), await apart.journal(id, { limit }));
        assert.deepEqual(together.openHolds(id), apart.openHolds(id));
      }
      assert.deepEqual(await together.usage({ limit }), await apart.usage({ limit }));
      assert.deepEqual(await together.keys(), await apart.keys());
    }
  });
  await fc.assert(property, { numRuns: 100, ...bounded });
});
