/** The pipeline: every ending of the table at its head, what each charges, and that no hold outlives its request. */
import assert from "node:assert/strict";
import { afterEach, type TestContext, test as testOf } from "node:test";
import fc from "fast-check";
import { Ledger, StoreUnavailableError } from "../../src/credits/ledger.ts";
import type { Plan } from "../../src/credits/plan.ts";
import type { Price } from "../../src/credits/pricing.ts";
import type { Ending } from "../../src/credits/rows.ts";
import { Refusal } from "../../src/errors.ts";
import { Catalog } from "../../src/generation/catalog.ts";
import { EngineError } from "../../src/generation/engine.ts";
import { type AnswerEvent, generate, type Receipt } from "../../src/generation/generate.ts";
import type { ChatRequest } from "../../src/generation/request.ts";
import { audit } from "../fixtures/ledger-audit.ts";
import { type Bench, bench, credits, day, keyOf, planOf, plansOf, start } from "../fixtures/ledger-rows.ts";
import { PuppetEngine } from "../fixtures/puppet-engine.ts";

const holdTtlMs = 3000;
const price = { prompt: 10, completion: 30 };
/** What the puppet's prompt of ten tokens costs. */
const promptCost = 100;
/** A request that never ends fails its test instead of keeping the run waiting. */
function test(name: string, run: (t: TestContext) => Promise<void>): void {
  testOf(name, { timeout: 20_000 }, run);
}

/** Ends what a test that failed has left running; its heartbeat would keep the process alive. */
const leftovers: (() => void)[] = [];
afterEach(() => {
  for (const end of leftovers.splice(0)) end();
});

/** A thousand tokens' worth. */
const plenty = planOf("plenty", 1, 0);

interface Setup extends Bench {
  engine: PuppetEngine;
  receipts: Receipt[];
  unsettled: { requestId: string; reason: unknown }[];
  ledger: Ledger;
  abort: AbortController;
  run(
    change?: Partial<ChatRequest>,
    models?: readonly string[],
  ): AsyncGenerator<AnswerEvent, void, undefined>;
  /** What has been taken from the account and not given back. */
  spent(): number;
}

async function setup(plan: Plan = plenty, options: { price?: Price } = {}): Promise<Setup> {
  const made = await bench(plan);
  const engine = new PuppetEngine();
  const model = { id: "model", engine, price: options.price ?? price, created: 0, ownedBy: "us" };
  const receipts: Receipt[] = [];
  const unsettled: Setup["unsettled"] = [];
  const abort = new AbortController();
  const ledger = new Ledger(made.store, { retriesMs: [], latePauseMs: 1 });
  leftovers.push(() => void ledger.close(0));
  const dependencies = {
    catalog: new Catalog([model]),
    ledger,
    holdTtlMs,
    onSettled: (receipt: Receipt) => receipts.push(receipt),
    onUnsettled: (requestId: string, reason: unknown) => unsettled.push({ requestId, reason }),
  };
  const [before] = made.buckets();
  let count = 0;
  return {
    ...made,
    engine,
    ledger,
    receipts,
    unsettled,
    abort,
    run(change = {}, models = ["*"]) {
      count += 1;
      const caller = { accountId: "ada", keyId: "key", plan, models };
      const request = { model: "model", messages: [], sampling: { stop: [] }, reasoning: {}, ...change };
      const events = generate(dependencies, caller, request, `r${count}`, abort.signal);
      leftovers.push(() => {
        for (const generation of engine.generations) void generation.stop();
        events.return().catch(() => {});
      });
      return events;
    },
    spent: () => before - made.buckets()[0],
  };
}

/** All further events, and what was thrown after them. */
async function rest(events: AsyncIterable<AnswerEvent>): Promise<{ types: string[]; error: unknown }> {
  const types: string[] = [];
  try {
    for await (const event of events) types.push(event.type);
  } catch (error) {
    return { types, error };
  }
  return { types, error: null };
}

/** The request as it came to its end: charged so much, recorded so, and nothing left open. */
async function assertEnded(made: Setup, ending: Ending, charged: number): Promise<void> {
  assert.deepEqual(made.store.openHolds("ada"), [], "no hold is left open");
  assert.equal(made.spent(), charged, "what was charged");
  assert.equal(made.receipts.length, 1, "one receipt");
  assert.equal(made.receipts[0]?.ending, ending);
  assert.equal(made.receipts[0]?.cost, charged);
  assert.equal(made.store.receipt("ada", "r1")?.ending, ending);
  assert.equal(made.store.receipt("ada", "r1")?.cost, charged);
  assert.deepEqual(made.unsettled, []);
  for (const generation of made.engine.generations) {
    assert.ok(generation.isStopped, "the engine works for nobody (litellm#30244)");
  }
  await audit(made.store);
}

/** Nothing was held, nothing recorded. */
async function assertUntouched(made: Setup): Promise<void> {
  assert.equal(made.spent(), 0);
  assert.deepEqual(made.receipts, []);
  assert.equal(made.engine.generations.length, 0);
  assert.deepEqual(
    (await made.store.journal("ada", { limit: 10 })).map((row) => row.kind),
    ["open"],
  );
}

function assertRefusal(error: unknown, code: string): asserts error is Refusal {
  assert.ok(error instanceof Refusal, `a refusal, not ${String(error)}`);
  assert.equal(error.code, code);
}

async function accepted(events: AsyncIterator<AnswerEvent>): Promise<void> {
  const first = await events.next();
  assert.equal(first.done === true ? "nothing" : first.value.type, "accepted");
}

/** As many turns of the event loop as an operation of the ledger takes. */
async function turn(): Promise<void> {
  for (let n = 0; n < 4; n += 1) await new Promise(setImmediate);
}

// What ends by itself

test("a whole answer: accepted, its texts, its end; exact usage charged", async () => {
  const made = await setup();
  const events = made.run({ maxTokens: 20 });
  const first = await events.next();
  assert.deepEqual(first.value, { type: "accepted", rates: {}, promptTokens: 10 });
  assert.equal(made.spent(), promptCost + 20 * 30, "the whole of what it may make is held");
  const generation = made.engine.last;
  generation.begin();
  const logprobs = [{ token: "lo", logprob: -0.5, bytes: [108, 111], topLogprobs: [] }];
  generation.token("Hel");
  generation.token("lo", logprobs);
  generation.end("stop");
  assert.deepEqual((await events.next()).value, { type: "text", text: "Hel" });
  assert.deepEqual((await events.next()).value, { type: "text", text: "lo", logprobs });
  assert.deepEqual((await events.next()).value, {
    type: "end",
    finishReason: "stop",
    usage: { promptTokens: 10, cachedTokens: 0, completionTokens: 2, reasoningTokens: 0, estimated: false },
  });
  assert.equal((await events.next()).done, true);
  await assertEnded(made, "stop", 160);
});

test("the charge is on disk before the end is told", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.end("stop");
  await events.next();
  await events.next();
  await assertEnded(made, "stop", 130);
  await events.return();
});

test("an answer that reaches its own max_tokens is a length, not the credits' end", async () => {
  const made = await setup();
  const events = made.run({ maxTokens: 1 });
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 1);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.end("length");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "length", 130);
});

test("max_tokens beyond the window is what the window leaves", async () => {
  for (const change of [{}, { maxTokens: 1_000_000 }]) {
    const made = await setup();
    const events = made.run(change);
    await accepted(events);
    assert.equal(made.engine.last.options.maxTokens, 90);
    await events.return();
  }
});

test("the hold lowers the token limit to what it buys, and reaching that is the credits' end", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 10_000, completion: 200_000 } });
  const events = made.run({ maxTokens: 50 });
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 4);
  made.engine.last.begin();
  for (let n = 0; n < 4; n += 1) made.engine.last.token("x");
  made.engine.last.end("length");
  assert.deepEqual(await rest(events), { types: ["text", "text", "text", "text", "end"], error: null });
  await assertEnded(made, "credits", 900_000);
});

test("a stop within what the credits bought is a stop", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 10_000, completion: 200_000 } });
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 100_000);
});

test("free completion tokens are bounded by the window alone", async () => {
  const made = await setup(plenty, { price: { prompt: 10, completion: 0 } });
  const events = made.run();
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 90);
  await events.return();
});

test("thinking is charged as completion tokens", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  for (let n = 0; n < 3; n += 1) made.engine.last.think();
  made.engine.last.token("x");
  made.engine.last.end("stop");
  await rest(events);
  await assertEnded(made, "stop", promptCost + 4 * 30);
  assert.equal(made.store.receipt("ada", "r1")?.reasoningTokens, 3);
});

test("cached prompt tokens are charged at their price", async () => {
  const made = await setup(plenty, { price: { ...price, cachedPrompt: 1 } });
  const events = made.run();
  await accepted(events);
  made.engine.last.begin(8);
  made.engine.last.token("x");
  made.engine.last.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 2 * 10 + 8 + 30);
});

test("an answer without a token is charged by its own usage, which is also what the client is told", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.usage.promptTokens = 12;
  made.engine.last.usage.cachedTokens = 11;
  made.engine.last.end("stop");
  const end = await events.next();
  assert.ok(end.done !== true && end.value.type === "end");
  assert.equal(end.value.usage.promptTokens, 12);
  await events.next();
  await assertEnded(made, "stop", 120);
});

test("what an upstream left for us to count is marked as estimated on the receipt", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.usage.estimated = true;
  made.engine.last.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 130);
  assert.equal(made.store.receipt("ada", "r1")?.estimated, true);
});

test("an engine that makes more than it was told to never takes the balance below zero", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 10_000, completion: 200_000 } });
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  for (let n = 0; n < 7; n += 1) made.engine.last.token();
  made.engine.last.end("length");
  await rest(events);
  assert.equal(made.receipts[0]?.cost, 1_500_000);
  assert.equal(made.receipts[0]?.shortfall, 500_000);
  assert.deepEqual(made.buckets(), [0, 0, 0]);
  await audit(made.store);
});

// Refused beforehand

test("a model that is not offered is refused before anything is asked of an engine", async () => {
  const made = await setup();
  const { error } = await rest(made.run({ model: "other" }));
  assertRefusal(error, "model_not_found");
  assert.equal(error.param, "model");
  assert.equal(made.engine.prompts.length, 0);
  await assertUntouched(made);
});

test("a model outside the plan's list or the key's is refused, the key's never widening the plan's", async () => {
  for (const [ofPlan, ofKey] of [
    [["other"], ["*"]],
    [["*"], ["other"]],
    [["other"], ["model"]],
    [["*"], []],
  ] as const) {
    const made = await setup(planOf("narrow", 1, 0, { models: ofPlan }));
    const { error } = await rest(made.run({}, ofKey));
    assertRefusal(error, "model_not_allowed");
    await assertUntouched(made);
  }
});

test("a prompt that leaves no room for a token is refused with the numbers, before the hold", async () => {
  const made = await setup();
  made.engine.promptTokens = 100;
  const { error } = await rest(made.run());
  assertRefusal(error, "context_length_exceeded");
  assert.match(error.message, /100 tokens.*takes 100/);
  await assertUntouched(made);
  made.engine.promptTokens = 99;
  const events = made.run();
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 1);
  await events.return();
});

test("what an engine fails with while it counts the prompt is told as a refusal, and nothing is held", async () => {
  for (const [failure, code] of [
    ["overloaded", "overloaded"],
    ["unavailable", "model_unavailable"],
    ["failed", "upstream_error"],
    ["timeout", "upstream_timeout"],
  ] as const) {
    const made = await setup();
    made.engine.whilePreparing = () => {
      throw new EngineError(failure, "/secret/path said no", { retryAfterSeconds: 300 });
    };
    const { error } = await rest(made.run());
    assertRefusal(error, code);
    assert.doesNotMatch(error.message, /secret/);
    assert.equal(error.detail, "/secret/path said no");
    if (code === "overloaded") assert.equal(error.retryAfterSeconds, 300);
    await assertUntouched(made);
  }
});

test("a balance that cannot pay the prompt and one token is a 402 that says when credits come back", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 100_000, completion: 1 } });
  const { error } = await rest(made.run());
  assertRefusal(error, "insufficient_credits");
  assert.match(error.message, new RegExp(new Date(start + day).toISOString().replaceAll(".", "\\.")));
  await assertUntouched(made);
});

test("a balance that pays the prompt and one token exactly is enough", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 90_000, completion: 100_000 } });
  const events = made.run();
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 1);
  await events.return();
});

test("credits that another request holds are a 429, not a 402", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 1, completion: 100_000 } });
  const first = made.run();
  await accepted(first);
  const { error } = await rest(made.run());
  assertRefusal(error, "credits_reserved");
  assert.equal(error.retryAfterSeconds, 1);
  await first.return();
});

test("each reason of the ledger to refuse is told in its own words", async () => {
  const limited = planOf("limited", 1, 0, { limits: { requestsPerMinute: 1 } });
  const byRate = await setup(limited);
  const running = byRate.run();
  await accepted(running);
  const rate = await rest(byRate.run());
  assertRefusal(rate.error, "rate_limit_exceeded");
  assert.match(rate.error.message, /this account's plan is 1 requests per minute/);
  assert.equal(rate.error.retryAfterSeconds, 60);
  await running.return();

  const byTokens = await setup(planOf("limited", 1, 0, { limits: { tokensPerMinute: 9 } }));
  const long = await rest(byTokens.run());
  assertRefusal(long.error, "rate_limit_exceeded");
  assert.match(long.error.message, /send a shorter one/);

  const byCount = await setup(planOf("limited", 1, 0, { limits: { concurrent: 1 } }));
  const other = byCount.run();
  await accepted(other);
  const concurrent = await rest(byCount.run());
  assertRefusal(concurrent.error, "concurrency_limit_exceeded");
  await other.return();

  const byKey = await setup();
  await byKey.store.revokeKey("key", start);
  assertRefusal((await rest(byKey.run())).error, "invalid_api_key");

  const byRow = await setup();
  byRow.store.damage("ada", { base: -1 });
  assertRefusal((await rest(byRow.run())).error, "balance_unavailable");

  const byPlan = await setup();
  byPlan.store.plans = plansOf();
  assertRefusal((await rest(byPlan.run())).error, "balance_unavailable");
});

test("a store that cannot take the hold lets nothing through to the engine", async () => {
  const made = await setup();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  const { error } = await rest(made.run());
  assert.ok(error instanceof StoreUnavailableError);
  await assertUntouched(made);
});

// The client goes away

test("a client that is gone before the prompt is counted costs nothing and holds nothing", async () => {
  const made = await setup();
  made.abort.abort();
  made.engine.whilePreparing = (signal) => signal.throwIfAborted();
  assert.deepEqual(await rest(made.run()), { types: [], error: null });
  await assertUntouched(made);
});

test("a client that goes while the prompt is counted costs nothing, whatever the engine makes of it", async () => {
  for (const afterwards of ["answers", "throws"]) {
    const made = await setup();
    made.engine.whilePreparing = () => {
      made.abort.abort();
      if (afterwards === "throws") throw new EngineError("unavailable", "aborted");
    };
    assert.deepEqual(await rest(made.run()), { types: [], error: null });
    await assertUntouched(made);
  }
});

test("a client that goes while the hold is being written gets it back (suna#6835)", async () => {
  const made = await setup();
  made.store.hooks = { before: () => made.abort.abort() };
  assert.deepEqual(await rest(made.run()), { types: [], error: null });
  assert.equal(made.engine.generations.length, 0);
  await assertEnded(made, "refused", 0);
});

test("a client that goes while the request is queued pays nothing", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.abort.abort();
  assert.deepEqual(await rest(events), { types: [], error: null });
  await assertEnded(made, "client_gone", 0);
});

test("a client that goes before the first token, the engine at work, pays the prompt (litellm#31499)", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  const next = events.next();
  await turn();
  made.abort.abort();
  assert.equal((await next).done, true);
  await assertEnded(made, "client_gone", promptCost);
});

test("a client that goes in mid-stream pays the prompt and every token made, read or not (llmgateway#3331)", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  for (let n = 0; n < 5; n += 1) made.engine.last.token("x");
  await events.next();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "client_gone", promptCost + 5 * 30);
});

test("a client that goes while only thinking was made pays for the thinking", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.think();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "client_gone", 130);
});

test("a client that goes when all has been made is charged as an answer that came to its end", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.end("stop");
  await turn();
  made.abort.abort();
  await rest(events);
  await assertEnded(made, "stop", 130);
});

test("a reader that returns instead of aborting ends the request just so", async () => {
  const queued = await setup();
  const first = queued.run();
  await accepted(first);
  await first.return();
  await assertEnded(queued, "client_gone", 0);

  const atWork = await setup();
  const second = atWork.run();
  await accepted(second);
  atWork.engine.last.begin();
  await second.return();
  await assertEnded(atWork, "client_gone", promptCost);

  const midStream = await setup();
  for await (const event of midStream.run()) {
    if (event.type === "accepted") {
      midStream.engine.last.begin();
      midStream.engine.last.token("x");
      midStream.engine.last.token("y");
    } else break;
  }
  await assertEnded(midStream, "client_gone", 160);
});

test("a reader that returns before it has asked for anything has held nothing", async () => {
  const made = await setup();
  await made.run().return();
  await assertUntouched(made);
});

// The service stops

test("a request that the service ends is charged for what was made, and told why", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  await events.next();
  const reason = new Refusal("shutting_down", "The service is stopping.");
  made.abort.abort(reason);
  assert.deepEqual(await rest(events), { types: [], error: reason });
  await assertEnded(made, "shutdown", 130);
});

test("a request that the service ends while it is queued costs nothing", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  const reason = new Refusal("shutting_down", "The service is stopping.");
  made.abort.abort(reason);
  assert.deepEqual(await rest(events), { types: [], error: reason });
  await assertEnded(made, "shutdown", 0);
});

test("a request that the service ends before or during its hold is told why and holds nothing", async () => {
  const reason = new Refusal("shutting_down", "The service is stopping.");
  const before = await setup();
  before.abort.abort(reason);
  assert.deepEqual(await rest(before.run()), { types: [], error: reason });
  await assertUntouched(before);

  const during = await setup();
  during.store.hooks = { before: () => during.abort.abort(reason) };
  assert.deepEqual(await rest(during.run()), { types: [], error: reason });
  await assertEnded(during, "refused", 0);
});

// The engine fails

test("an engine whose queue is full refuses with retry-after, and the hold goes back", async () => {
  const made = await setup();
  made.engine.refusal = new EngineError("overloaded", "16 wait", { retryAfterSeconds: 7 });
  const { types, error } = await rest(made.run());
  assert.deepEqual(types, [], "no byte of a 200");
  assertRefusal(error, "overloaded");
  assert.equal(error.retryAfterSeconds, 7);
  await assertEnded(made, "refused", 0);
});

test("an engine that fails before the first token charges nothing, begun or not (otari#128, new-api#4168)", async () => {
  for (const isBegun of [false, true]) {
    const made = await setup();
    const events = made.run();
    await accepted(events);
    if (isBegun) made.engine.last.begin();
    made.engine.last.fail(new EngineError("failed", "exit code 134"));
    const { types, error } = await rest(events);
    assert.deepEqual(types, []);
    assertRefusal(error, "upstream_error");
    await assertEnded(made, "engine_failed", 0);
  }
});

test("an engine that fails in mid-stream charges the prompt and every token made", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.token("y");
  made.engine.last.fail(new EngineError("timeout", "no token for 60 s"));
  const { types, error } = await rest(events);
  assert.deepEqual(types, ["text", "text"]);
  assertRefusal(error, "upstream_timeout");
  await assertEnded(made, "engine_failed", 160);
});

test("a defect in an engine comes out as it is, and the hold goes back", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  const defect = new TypeError("undefined is no function");
  made.engine.last.fail(defect);
  assert.deepEqual(await rest(events), { types: [], error: defect });
  await assertEnded(made, "engine_failed", 0);

  const early = await setup();
  early.engine.refusal = defect;
  assert.deepEqual(await rest(early.run()), { types: [], error: defect });
  await assertEnded(early, "refused", 0);
});

test("a generation that just ends is a failure, not a complete answer", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.break();
  const { types, error } = await rest(events);
  assert.deepEqual(types, ["text"]);
  assertRefusal(error, "upstream_error");
  await assertEnded(made, "engine_failed", 130);
});

// Heartbeats

/** A third of the hold's life passes, for timers and ledger alike. */
async function beat(t: TestContext, made: Setup): Promise<void> {
  made.clock.nowMs += holdTtlMs / 3;
  t.mock.timers.tick(holdTtlMs / 3);
  await turn();
}

test("a long answer keeps its hold alive as long as it runs, a slow reader's too", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  for (let n = 0; n < 20; n += 1) {
    made.engine.last.token("x");
    await beat(t, made);
    const outcome = await made.apply({ kind: "expire", account: "ada", hold: "r1" });
    assert.equal(outcome.kind, "alive");
  }
  made.engine.last.end("stop");
  await rest(events);
  await assertEnded(made, "stop", promptCost + 20 * 30);
});

test("no checkpoint is written after the request has ended", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  await events.return();
  const commits = made.store.batches.length;
  for (let n = 0; n < 5; n += 1) await beat(t, made);
  assert.equal(made.store.batches.length, commits);
});

test("when the process dies, the last checkpoint is charged and the rest returns", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  await beat(t, made);
  made.engine.last.token("y");
  // Dead: no timer, no settlement.
  made.clock.nowMs += holdTtlMs;
  assert.equal((await made.apply({ kind: "expire", account: "ada", hold: "r1" })).kind, "expired");
  assert.equal(made.spent(), 130);
  await audit(made.store);
});

test("a process that dies while the request is queued charges nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  for (let n = 0; n < 3; n += 1) await beat(t, made);
  made.clock.nowMs += holdTtlMs;
  assert.equal((await made.apply({ kind: "expire", account: "ada", hold: "r1" })).kind, "expired");
  assert.equal(made.spent(), 0);
});

test("a heartbeat that finds its hold gone stops the engine, and what was made is charged late", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  await events.next();
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", hold: "r1" });
  assert.equal(made.spent(), 0);
  const next = rest(events);
  await beat(t, made);
  const { types, error } = await next;
  assert.deepEqual(types, []);
  assertRefusal(error, "internal_error");
  await assertEnded(made, "engine_failed", 130);
});

test("a hold that is lost just as the answer ends is charged all the same", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", hold: "r1" });
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.end("stop");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "stop", 130);
});

test("a store that misses a heartbeat does not stop the answer", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  made.store.hooks = {};
  await beat(t, made);
  made.engine.last.end("stop");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "stop", 130);
});

test("an answer whose hold may have run out is stopped, though the store does not answer at all", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  const gate = Promise.withResolvers<void>();
  made.store.hooks = { before: () => gate.promise };
  const end = rest(events);
  await beat(t, made);
  await beat(t, made);
  assert.ok(!made.engine.last.isStopped);
  await beat(t, made);
  assert.ok(made.engine.last.isStopped, "no engine works without an open hold");
  gate.resolve();
  const { types, error } = await end;
  assert.deepEqual(types, ["text"]);
  assertRefusal(error, "internal_error");
  await assertEnded(made, "engine_failed", 130);
});

test("a heartbeat that came through late counts from when it was asked for", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  for (let n = 0; n < 3; n += 1) await beat(t, made);
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  await beat(t, made);
  assert.ok(!made.engine.last.isStopped);
  await beat(t, made);
  assert.ok(made.engine.last.isStopped);
  made.store.hooks = {};
  assertRefusal((await rest(events)).error, "internal_error");
});

test("a checkpoint under way is decided before the settlement, and no other follows it", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  const gate = Promise.withResolvers<void>();
  made.store.hooks = { before: () => gate.promise };
  await beat(t, made);
  made.engine.last.token("x");
  made.engine.last.end("stop");
  const end = rest(events);
  await turn();
  assert.deepEqual(made.receipts, [], "its end waits for the charge");
  gate.resolve();
  assert.deepEqual(await end, { types: ["text", "end"], error: null });
  await beat(t, made);
  const kinds = made.store.batches.slice(-2).map((batch) => batch.map((operation) => operation.kind));
  assert.deepEqual(kinds, [["extend"], ["settle"]]);
  await assertEnded(made, "stop", 130);
});

test("the end of an answer waits for no other attempt at a checkpoint that failed", async (t) => {
  // The pause before that attempt is never over here.
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("busy")) };
  await beat(t, made);
  made.store.hooks = {};
  made.engine.last.end("stop");
  assert.deepEqual(await rest(events), { types: ["end"], error: null });
  await assertEnded(made, "stop", promptCost);
});

// The settlement fails

test("an answer whose charge the store cannot take has its end, and is charged as soon as the store can", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.token("x");
  made.engine.last.end("stop");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  assert.equal(made.receipts.length, 0);
  assert.equal(made.ledger.late, 1);
  assert.equal(made.store.openHolds("ada").length, 1);
  // So long that the hold is gone when the store is back: what its checkpoint had not is charged.
  made.clock.nowMs += holdTtlMs;
  made.store.hooks = {};
  await made.apply({ kind: "expire", account: "ada", hold: "r1" });
  await made.ledger.close(10_000);
  await assertEnded(made, "stop", 130);
  assert.equal(made.receipts[0]?.isLate, true);
  await audit(made.store);
});

test("a charge that waits for the store is given up with the ledger, and its last checkpoint stands", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.end("stop");
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  assert.deepEqual(await rest(events), { types: ["end"], error: null });
  await made.ledger.close(1);
  await turn();
  assert.deepEqual(
    made.unsettled.map(({ requestId }) => requestId),
    ["r1"],
  );
  made.store.hooks = {};
  made.clock.nowMs += holdTtlMs;
  await made.apply({ kind: "expire", account: "ada", hold: "r1" });
  await audit(made.store);
});

test("a client that has gone before the store came back is charged when it does", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  made.abort.abort();
  assert.deepEqual(await rest(events), { types: [], error: null });
  made.store.hooks = {};
  await made.ledger.close(10_000);
  await assertEnded(made, "client_gone", 100);
});

test("a settlement that fails hides no failure of the engine", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  made.engine.last.fail(new EngineError("failed", "exit code 134"));
  assertRefusal((await rest(events)).error, "upstream_error");
  made.store.hooks = {};
  await made.ledger.close(10_000);
  await assertEnded(made, "engine_failed", 0);
});

test("an account that became invalid while its request ran is told to the operator", async () => {
  const made = await setup();
  const events = made.run();
  await accepted(events);
  made.engine.last.begin();
  made.engine.last.end("stop");
  made.store.plans = plansOf();
  assertRefusal((await rest(events)).error, "internal_error");
  assert.equal(made.unsettled.length, 1);
});

// All of it at once

test("property: however a request goes, its charge is the table's and its hold ends", async () => {
  const stepArb = fc.constantFrom("token", "token", "think", "read", "turn");
  const endArb = fc.constantFrom("stop", "fail", "defect", "abort", "shutdown", "return", "break");
  const property = fc.asyncProperty(
    fc.boolean(),
    fc.array(stepArb, { maxLength: 8 }),
    endArb,
    async (isBegun, steps, ending) => {
      const made = await setup();
      const events = made.run();
      await accepted(events);
      const generation = made.engine.last;
      let unread = 0;
      if (isBegun) {
        generation.begin();
        for (const step of steps) {
          if (step === "token") {
            generation.token("x");
            unread += 1;
          } else if (step === "think") generation.think();
          else if (step === "turn") await turn();
          else if (unread > 0) {
            await events.next();
            unread -= 1;
          }
        }
      }
      const made_ = generation.usage.completionTokens;
      if (ending === "stop") generation.end("stop");
      else if (ending === "fail") generation.fail(new EngineError("failed", ""));
      else if (ending === "defect") generation.fail(new TypeError(""));
      else if (ending === "break") generation.break();
      else if (ending === "abort") made.abort.abort();
      else if (ending === "shutdown") made.abort.abort(new Refusal("shutting_down", ""));
      if (ending === "return") await events.return();
      else await rest(events);

      const recorded = {
        stop: "stop",
        fail: "engine_failed",
        defect: "engine_failed",
        break: "engine_failed",
        abort: "client_gone",
        return: "client_gone",
        shutdown: "shutdown",
      } as const;
      const isFailure = recorded[ending] === "engine_failed";
      const paysPrompt = made_ > 0 || ending === "stop" || (isBegun && !isFailure);
      await assertEnded(made, recorded[ending], (paysPrompt ? promptCost : 0) + made_ * 30);
    },
  );
  await fc.assert(property, { numRuns: 300 });
});

test("many requests of one account at once, each ending in another way: every hold ends, the journal is the balance", async () => {
  const made = await setup(planOf("plenty", 1, 0));
  await made.store.addKey(keyOf("other", "ada"));
  await Promise.all(
    Array.from({ length: 60 }, async (_, n) => {
      const events = made.run({ maxTokens: 20 });
      const first = await events.next();
      if (first.done === true) return;
      const generation = made.engine.generations[n];
      assert.ok(generation !== undefined);
      generation.begin();
      for (let made = 0; made < n % 7; made += 1) generation.token("x");
      if (n % 4 === 0) generation.end("stop");
      else if (n % 4 === 1) generation.fail(new EngineError("failed", ""));
      else if (n % 4 === 2) generation.break();
      if (n % 4 === 3) await events.return();
      else await rest(events);
    }),
  );
  assert.deepEqual(made.store.openHolds("ada"), []);
  assert.equal(made.receipts.length, 60);
  assert.equal(
    made.spent(),
    made.receipts.reduce((sum, receipt) => sum + receipt.cost, 0),
  );
  assert.ok(made.spent() > 0 && made.spent() < credits(1));
  await audit(made.store);
});
