/**
 * The metrics about credits, caused through the listener: charged credits by ending, expired
 * holds, shortfall, late charges and charges that were given up. They are compared with the
 * receipts.
 */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import { paidOf, sumOf } from "../../src/ledger/grants.ts";
import type { BucketAmounts } from "../../src/ledger/rows.ts";
import { hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { PuppetEngine } from "../fixtures/puppet-engine.ts";
import { samplesOf } from "../fixtures/samples.ts";
import { type ServiceOptions, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

/** A service whose model `puppet` does what the test says. */
async function startPuppet(
  options: ServiceOptions = {},
): Promise<{ service: TestService; engine: PuppetEngine }> {
  const engine = new PuppetEngine();
  engine.contextWindow = 100_000;
  return { service: await startService({ ...options, otherEngines: { puppet: engine } }), engine };
}

async function sampleOf({ metrics }: TestService, name: string): Promise<number> {
  return samplesOf(await metrics.text()).get(name) ?? Number.NaN;
}

/** Checks that the counters of each ending match the ledger to the micro-credit. */
async function assertCharged(
  service: TestService,
  charged: Record<string, Partial<BucketAmounts>>,
): Promise<void> {
  const found = samplesOf(await service.metrics.text());
  const counted: Record<string, Partial<BucketAmounts>> = {};
  for (const [name, credits] of found) {
    const [, bucket, ending] =
      /^inkwell_charged_credits_total\{bucket="(\w+)",ending="(\w+)"\}$/.exec(name) ?? [];
    if (bucket === undefined || ending === undefined || credits === 0) continue;
    counted[ending] = { ...counted[ending], [bucket]: Math.round(credits * 1e6) };
  }
  assert.deepEqual(counted, charged);
  const rows = await service.store.usage({ limit: 100 });
  const taken = rows.reduce((sum, line) => sum + sumOf(paidOf(line)), 0);
  const told = Object.values(counted).flatMap((split) => Object.values(split));
  assert.equal(
    told.reduce((sum, micro) => sum + micro, 0),
    taken,
    "every credit is counted once",
  );
}

/** Makes an overdue hold of a dead process, with these completion tokens in its checkpoint. */
async function leaveBehind({ ledger, account }: TestService, id: string, made: number): Promise<void> {
  const owner = { account, key: "key1", price: { prompt: 10, completion: 30 }, ttlMs: 0 };
  const held = await ledger.apply(hold(id, 30_000, owner));
  assert.equal(held.kind, "held");
  // The checkpoint extends the hold, so that it cannot expire too early.
  const used = tokens(10, made);
  await ledger.apply({ kind: "extend", account, requestId: id, n: 1, moreMicro: 0, usage: used, ttlMs: 200 });
}

async function overdue({ store }: TestService, holds: number): Promise<void> {
  await until("the holds are overdue", async () => {
    return (await store.overdueHolds(Date.now(), { limit: 10 })).length === holds;
  });
}

test("counts an expired hold with the cost of its checkpoint, whether the sweeper or a request ends it", async () => {
  const { service } = await startPuppet();
  await using _ = service;
  await leaveBehind(service, "dead1", 10);
  await overdue(service, 1);
  await service.ledger.apply({ kind: "expire", account: "test", requestId: "dead1" });
  await service.ledger.apply({ kind: "expire", account: "test", requestId: "dead1" });
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  await assertCharged(service, { expired: { base: 400 } });

  await leaveBehind(service, "dead2", 20);
  await leaveBehind(service, "dead3", 30);
  await overdue(service, 2);
  await (await service.chat()).text();
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 3);
  await assertCharged(service, { expired: { base: 400 + 700 + 1000 }, stop: { base: 90 } });
  await service.ledger.apply({ kind: "expire", account: "test", requestId: "dead2" });
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 3);
});

test("counts expiries that a refused request found", async () => {
  const { service } = await startPuppet();
  await using _ = service;
  await leaveBehind(service, "dead", 10);
  await overdue(service, 1);
  const refused = await service.ledger.apply(hold("more", 5e9, { account: "test", key: "key1" }));
  assert.equal(refused.kind, "insufficient_credits");
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  await assertCharged(service, { expired: { base: 400 } });
});

/**
 * Begins an answer of the puppet. Its hold expires after a checkpoint with 128 tokens, half a
 * slice.
 */
async function expireUnderWay(service: TestService, engine: PuppetEngine): Promise<void> {
  await until("the engine has the request", () => engine.generations.length === 1);
  engine.last.begin();
  for (let n = 0; n < 128; n += 1) engine.last.token("x");
  const open = async () => (await service.store.holds({ limit: 1 }))[0];
  await until("a checkpoint is written", async () => (await open())?.completionTokens === 128);
  const { id } = (await open()) ?? { id: "" };
  using db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
  db.prepare("update hold set expires_ms = created_ms where id = ?").run(id);
  await service.ledger.apply({ kind: "expire", account: service.account, requestId: id });
}

for (const isLost of [false, true]) {
  test(`a settlement after the expiry counts the rest of the charge once${isLost ? ", even if its acknowledgement is lost" : ""}`, async () => {
    const { service, engine } = await startPuppet({ ledger: { retriesMs: [0, 0] } });
    await using _ = service;
    const answer = service.chat({ model: "puppet" });
    await expireUnderWay(service, engine);
    const checkpoint = 100 + 128 * 30;
    await assertCharged(service, { expired: { base: checkpoint } });
    if (isLost) loseNextAcknowledgement(service);
    engine.last.token("x");
    engine.last.end("stop");
    await (await answer).text();
    const lines = await service.store.usage({ limit: 9 });
    assert.deepEqual(
      lines.map(({ ending, late, costMicro }) => [ending, late, costMicro]),
      [
        ["expired", false, checkpoint],
        ["stop", true, 30],
      ],
    );
    await assertCharged(service, { expired: { base: checkpoint }, stop: { base: 30 } });
    assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  });
}

/** Loses the acknowledgement of the next commit. */
function loseNextAcknowledgement({ store }: TestService): void {
  const commit = store.commit.bind(store);
  store.commit = async (operations) => {
    store.commit = commit;
    await commit(operations);
    throw new StoreUnavailableError("the acknowledgement is lost");
  };
}

test("counts an expiry once if the acknowledgement of its commit is lost", async () => {
  const { service } = await startPuppet({ ledger: { retriesMs: [0, 0] } });
  await using _ = service;
  await leaveBehind(service, "dead1", 10);
  await overdue(service, 1);
  // A commit that is lost before it is written expires the hold when it is sent again.
  const commit = service.store.commit.bind(service.store);
  service.store.commit = () => {
    service.store.commit = commit;
    return Promise.reject(new StoreUnavailableError("the connection is cut"));
  };
  await (await service.chat()).text();
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  // After a lost acknowledgement, the commit that expired the hold is unknown.
  await leaveBehind(service, "dead2", 10);
  await overdue(service, 1);
  loseNextAcknowledgement(service);
  await (await service.chat()).text();
  assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  assert.deepEqual(await service.store.holds({ limit: 1 }), []);
});

test("counts and logs the tokens that a hold does not pay for, and charges none of them", async () => {
  const { service, engine } = await startPuppet({
    plan: {
      base: { credits: 1, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1M", align: "opening" },
    },
    price: { prompt: 10_000, completion: 300_000 },
  });
  await using _ = service;
  const uncharged = (kind: string) =>
    sampleOf(service, `inkwell_uncharged_tokens_total{model="puppet",kind="${kind}"}`);
  assert.deepEqual([await uncharged("prompt"), await uncharged("completion")], [0, 0]);
  const answer = service.chat({ model: "puppet" });
  await until("the engine has the request", () => engine.generations.length === 1);
  engine.last.begin();
  engine.last.usage.promptTokens = 12;
  for (let n = 0; n < 5; n += 1) engine.last.token("x");
  engine.last.end("length");
  await (await answer).text();
  const [row] = await service.store.usage({ limit: 1 });
  assert.deepEqual([row?.promptTokens, row?.completionTokens, row?.shortfallMicro], [10, 3, 0]);
  assert.deepEqual([await uncharged("prompt"), await uncharged("completion")], [2, 2]);
  const line = service.log.find(({ msg }) => /more tokens than the hold paid for/.test(String(msg)));
  assert.deepEqual(
    [line?.level, line?.model, line?.unchargedPromptTokens, line?.unchargedCompletionTokens],
    [50, "puppet", 2, 2],
  );
  await assertCharged(service, { credits: { base: 1_000_000 } });
});

for (const isLost of [false, true]) {
  test(`counts the shortfall of a late settlement once${isLost ? ", even if its acknowledgement is lost" : ""}`, async () => {
    const { service, engine } = await startPuppet({
      plan: {
        base: { credits: 1, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1M", align: "opening" },
      },
      price: { prompt: 10_000, completion: 300_000 },
      ledger: { retriesMs: [0, 0] },
    });
    await using _ = service;
    const answer = service.chat({ model: "puppet" });
    await until("the engine has the request", () => engine.generations.length === 1);
    engine.last.begin();
    for (let n = 0; n < 3; n += 1) engine.last.token("x");
    const { account, ledger, store } = service;
    const [{ id } = { id: "" }] = await store.holds({ limit: 1 });
    const used = tokens(10, 1);
    await ledger.apply({ kind: "extend", account, requestId: id, n: 9, moreMicro: 0, usage: used, ttlMs: 1 });
    using db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
    db.prepare("update hold set expires_ms = created_ms where id = ?").run(id);
    await ledger.apply({ kind: "expire", account, requestId: id });
    // Another request takes what the expiry has returned.
    const other = await ledger.apply(hold("other", 600_000, { account, key: "key1" }));
    assert.equal(other.kind, "held");
    if (isLost) loseNextAcknowledgement(service);
    engine.last.end("length");
    await (await answer).text();
    const lines = (await store.usage({ limit: 9 })).filter((each) => each.id === id);
    assert.deepEqual(
      lines.map(({ shortfallMicro, late }) => [shortfallMicro, late]),
      [
        [0, false],
        [600_000, true],
      ],
    );
    assert.equal(Math.round((await sampleOf(service, "inkwell_shortfall_credits_total")) * 1e6), 600_000);
    await assertCharged(service, { expired: { base: 400_000 } });
    await ledger.apply({ ...settle("other", 0, { account }), usage: tokens(0, 0) });
  });
}

test("counts a charge that the store never accepts as given up, and no credits for it", async () => {
  const { service, engine } = await startPuppet();
  await using _ = service;
  {
    const { account } = service;
    const answer = service.chat({ model: "puppet" });
    await until("the engine has the request", () => engine.generations.length === 1);
    using db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
    db.exec("pragma ignore_check_constraints = on");
    const setSpent = db.prepare("update account set base_spent = ? where id = ?");
    setSpent.run(-1, account);
    engine.last.begin();
    engine.last.end("stop");
    assert.equal((await answer).status, 500);
    assert.equal(await sampleOf(service, "inkwell_unsettled_requests_total"), 1);
    await assertCharged(service, {});
    setSpent.run(0, account);
    const [hold] = await service.store.holds({ limit: 1 });
    assert.ok(hold !== undefined, "it waits for its expiry");
    db.prepare("update hold set expires_ms = created_ms where id = ?").run(hold.id);
    await service.ledger.apply({ kind: "expire", account, requestId: hold.id });
    assert.equal(await sampleOf(service, "inkwell_expired_holds_total"), 1);
  }
});

test("shows a charge that waits for the store as late, and counts it once", async () => {
  const { service, engine } = await startPuppet({ ledger: { retriesMs: [], latePauseMs: 1 } });
  await using _ = service;
  const answer = service.chat({ model: "puppet" });
  await until("the engine has the request", () => engine.generations.length === 1);
  engine.last.begin();
  engine.last.token("x");
  const commit = service.store.commit.bind(service.store);
  service.store.commit = () => Promise.reject(new StoreUnavailableError("the disk is full"));
  engine.last.end("stop");
  assert.equal((await answer).status, 200, "the answer does not wait for it");
  assert.equal(await sampleOf(service, "inkwell_late_charges"), 1);
  await assertCharged(service, {});
  service.store.commit = commit;
  await until("it has been taken", () => service.ledger.late === 0);
  assert.equal(await sampleOf(service, "inkwell_late_charges"), 0);
  assert.equal(await sampleOf(service, "inkwell_unsettled_requests_total"), 0);
  await assertCharged(service, { stop: { base: 130 } });
});

test("counts answers with estimated tokens by reason", async () => {
  const { service, engine } = await startPuppet();
  await using _ = service;
  const reasonOf = async (reason: string) => {
    return await sampleOf(service, `inkwell_estimated_usages_total{model="puppet",reason="${reason}"}`);
  };
  for (const [reason, change] of [
    ["missing", { estimated: true }],
    ["absurd", { estimated: true, absurd: true }],
    ["cut", { estimated: true, endedHere: true }],
    ["none", { endedHere: true }],
  ] as const) {
    const before = engine.generations.length;
    const answer = service.chat({ model: "puppet" });
    await until("the engine has the request", () => engine.generations.length > before);
    engine.last.begin();
    Object.assign(engine.last.usage, change);
    engine.last.end("stop");
    await (await answer).text();
    if (reason !== "none") assert.equal(await reasonOf(reason), 1);
  }
  assert.deepEqual([await reasonOf("missing"), await reasonOf("absurd"), await reasonOf("cut")], [1, 1, 1]);
});
