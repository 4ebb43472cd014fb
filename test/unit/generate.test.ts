/** The pipeline: a whole answer and what it charges, what limits it, and all endings at once. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { EngineError } from "../../src/chat/engine.ts";
import { Refusal } from "../../src/errors.ts";
import { addKey, credits, keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { begun, price, promptCost, queued, setup, test, turn } from "../fixtures/pipeline.ts";
import { assertEnded, assertRefusal, rest } from "../fixtures/pipeline-results.ts";
import { share } from "../fixtures/thorough.ts";

// Answers that end by themselves

test("yields accepted, the texts and the end, and charges the exact usage", async () => {
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

test("records the charge before it sends the end", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.end("stop");
  await events.next();
  await events.next();
  await assertEnded(made, "stop", 130);
  await events.return();
});

test("ends with length, not with credits, at the max_tokens of the request", async () => {
  const { made, events, generation } = await queued({ ask: { maxTokens: 1 } });
  assert.equal(generation.options.maxTokens, 1);
  generation.begin();
  generation.token("x");
  generation.end("length");
  assert.deepEqual(await rest(events), { types: ["text", "end"], error: null });
  await assertEnded(made, "length", 130);
});

test("lowers max_tokens to the tokens that the window leaves", async () => {
  for (const change of [{}, { maxTokens: 1_000_000 }]) {
    const { events, generation } = await queued({ ask: change });
    assert.equal(generation.options.maxTokens, 90);
    await events.return();
  }
});

test("ends with length at the limit of the model", async () => {
  for (const ask of [{}, { maxTokens: 1_000_000 }]) {
    const made = await setup(undefined, { outputTokensMax: 3 });
    const events = made.run(ask);
    await events.next();
    const generation = made.engine.last;
    assert.equal(generation.options.maxTokens, 3);
    generation.begin();
    for (let n = 0; n < 3; n += 1) generation.token("x");
    generation.end("length");
    await rest(events);
    await assertEnded(made, "length", promptCost + 90);
  }
  const { events, generation } = await queued({ ask: { maxTokens: 2 }, outputTokensMax: 3 });
  assert.equal(generation.options.maxTokens, 2);
  await events.return();
});

test("holds credits for the default max_tokens of the model, and ends with length there", async () => {
  const made = await setup(undefined, { defaults: { maxTokens: 2 } });
  const events = made.run();
  await events.next();
  assert.equal(made.spent(), promptCost + 2 * 30);
  const generation = made.engine.last;
  generation.begin();
  generation.token("x");
  generation.token("x");
  generation.end("length");
  await rest(events);
  await assertEnded(made, "length", promptCost + 2 * 30);
});

test("lowers the token limit to the credits, and ends with credits there", async () => {
  const { made, events, generation } = await queued({
    plan: planOf("poor", 1, 0),
    price: { prompt: 10_000, completion: 200_000 },
    ask: { maxTokens: 50 },
  });
  assert.equal(generation.options.maxTokens, 4);
  generation.begin();
  for (let n = 0; n < 4; n += 1) generation.token("x");
  generation.end("length");
  assert.deepEqual(await rest(events), { types: ["text", "text", "text", "text", "end"], error: null });
  await assertEnded(made, "credits", 900_000);
});

test("ends with stop if the answer stops before the credits end", async () => {
  const { made, events, generation } = await begun({
    plan: planOf("poor", 1, 0),
    price: { prompt: 10_000, completion: 200_000 },
  });
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 100_000);
});

test("limits free completion tokens only by the window", async () => {
  const { events, generation } = await queued({ price: { prompt: 10, completion: 0 } });
  assert.equal(generation.options.maxTokens, 90);
  await events.return();
});

test("charges thinking as completion tokens", async () => {
  const { made, events, generation } = await begun();
  for (let n = 0; n < 3; n += 1) generation.think();
  generation.token("x");
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", promptCost + 4 * 30);
  assert.equal(made.store.receipt("ada", "r1")?.reasoningTokens, 3);
});

test("charges cached prompt tokens at their price", async () => {
  const { made, events, generation } = await begun({ price: { ...price, cachedPrompt: 1 }, cachedTokens: 8 });
  generation.token("x");
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 2 * 10 + 8 + 30);
});

test("charges an answer without tokens by the usage that the client gets", async () => {
  const { made, events, generation } = await begun();
  generation.usage.promptTokens = 9;
  generation.usage.cachedTokens = 8;
  generation.end("stop");
  const end = await events.next();
  assert.ok(end.done !== true && end.value.type === "end");
  assert.equal(end.value.usage.promptTokens, 9);
  await events.next();
  await assertEnded(made, "stop", 90);
});

test("never charges more prompt tokens than the bound, and records the rest as uncharged", async () => {
  const { made, events, generation } = await begun();
  generation.usage.promptTokens = 12;
  generation.usage.cachedTokens = 11;
  generation.token("x");
  generation.end("stop");
  await events.next();
  const end = await events.next();
  assert.ok(end.done !== true && end.value.type === "end");
  assert.deepEqual([end.value.usage.promptTokens, end.value.usage.cachedTokens], [10, 10]);
  await events.next();
  await assertEnded(made, "stop", 130);
  assert.deepEqual(made.receipts[0]?.uncharged, { promptTokens: 2, completionTokens: 0 });
});

test("marks usage without counts of the upstream as estimated on the receipt", async () => {
  const { made, events, generation } = await begun();
  generation.token("x");
  generation.usage.estimated = true;
  generation.end("stop");
  await rest(events);
  await assertEnded(made, "stop", 130);
  assert.equal(made.store.receipt("ada", "r1")?.estimated, true);
});

test("never takes the balance below zero if an engine exceeds its limit", async () => {
  const { made, events, generation } = await begun({
    plan: planOf("poor", 1, 0),
    price: { prompt: 10_000, completion: 200_000 },
  });
  for (let n = 0; n < 7; n += 1) generation.token();
  generation.end("length");
  await rest(events);
  assert.deepEqual([made.receipts[0]?.costMicro, made.receipts[0]?.shortfallMicro], [900_000, 0]);
  assert.deepEqual(made.buckets(), [100_000, 0, 0]);
  assert.deepEqual(made.receipts[0]?.uncharged, { promptTokens: 0, completionTokens: 3 });
});

// All of it at once

const endings = ["stop", "fail", "defect", "abort", "shutdown", "return", "break"] as const;
const defect = new TypeError("undefined is no function");
const stopping = new Refusal("shutting_down", "The service is stopping.");

type Step = "token" | "think" | "read" | "turn";

/** A request that makes these steps, if it has begun, and ends. */
async function endRequest(
  stream: boolean,
  isBegun: boolean,
  steps: readonly Step[],
  ending: (typeof endings)[number],
): Promise<void> {
  const { made, events, generation } = await queued({ ask: { stream } });
  let unread = 0;
  let isDelivered = false;
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
        isDelivered = stream;
        unread -= 1;
      }
    }
  }
  const made_ = generation.usage.completionTokens;
  if (ending === "stop") generation.end("stop");
  else if (ending === "fail") generation.fail(new EngineError("timeout", "no token for 60 s"));
  else if (ending === "defect") generation.fail(defect);
  else if (ending === "break") generation.break();
  else if (ending === "abort") made.abort.abort();
  else if (ending === "shutdown") made.abort.abort(stopping);
  if (ending === "return") await events.return();
  else {
    const { types, error } = await rest(events);
    if (types.includes("text")) isDelivered = stream;
    const texts = Array.from({ length: unread }, () => "text");
    if (ending === "stop") texts.push("end");
    if (!made.abort.signal.aborted) assert.deepEqual(types, texts);
    if (ending === "fail") assertRefusal(error, "upstream_timeout");
    else if (ending === "break") assertRefusal(error, "upstream_error");
    else assert.equal(error, { defect, shutdown: stopping, stop: null, abort: null }[ending]);
  }

  const recorded = {
    stop: "stop",
    fail: "engine_failed",
    defect: "engine_failed",
    break: "engine_failed",
    abort: "client_gone",
    return: "client_gone",
    shutdown: "shutdown",
  } as const;
  const isOurs = recorded[ending] === "engine_failed" || ending === "shutdown";
  const paysPrompt = made_ > 0 || ending === "stop" || isBegun;
  const cost = isOurs && !isDelivered ? 0 : (paysPrompt ? promptCost : 0) + made_ * 30;
  await assertEnded(made, recorded[ending], cost);
}

for (const ending of endings) {
  test(`a request that ends with ${ending} is charged as the table says, and its hold ends`, async () => {
    for (const stream of [true, false]) {
      await endRequest(stream, false, [], ending);
      for (const steps of [[], ["think"], ["token", "token"], ["token", "token", "read"]] as const)
        await endRequest(stream, true, steps, ending);
    }
  });
}

test("property: so is any request", async () => {
  const stepArb = fc.constantFrom<Step>("token", "token", "think", "read", "turn");
  const property = fc.asyncProperty(
    fc.boolean(),
    fc.boolean(),
    fc.array(stepArb, { maxLength: 8 }),
    fc.constantFrom(...endings),
    endRequest,
  );
  await fc.assert(property, { numRuns: share(500) });
});

test("ends every hold of concurrent requests with different endings, and the journal matches the balance", async () => {
  const made = await setup(planOf("plenty", 1, 0));
  await addKey(made.store, keyOf("other", "ada"));
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
    made.receipts.reduce((sum, receipt) => sum + receipt.costMicro, 0),
  );
  assert.ok(made.spent() > 0 && made.spent() < credits(1));
});
