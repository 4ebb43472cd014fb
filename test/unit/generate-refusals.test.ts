/**
 * The pipeline: what is refused before an engine is asked, and that nothing is held or recorded
 * for it.
 */
import assert from "node:assert/strict";
import { EngineError } from "../../src/chat/engine.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { planOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { accepted, queued, setup, test } from "../fixtures/pipeline.ts";
import { assertRefusal, assertUntouched, rest } from "../fixtures/pipeline-results.ts";
import { day, start } from "../fixtures/times.ts";

test("refuses an unknown model before an engine is called", async () => {
  const made = await setup();
  const { error } = await rest(made.run({ model: "other" }));
  assertRefusal(error, "model_not_found");
  assert.equal(error.param, "model");
  assert.equal(made.engine.prompts.length, 0);
  await assertUntouched(made);
});

test("refuses a model that the plan or the key does not allow; a key cannot extend its plan", async () => {
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

test("refuses a prompt that fills the window before the hold, with the size of the window", async () => {
  const made = await setup();
  made.engine.promptTokens = 100;
  const { error } = await rest(made.run());
  assertRefusal(error, "context_length_exceeded");
  assert.match(error.message, /^This model's maximum context length is 100 tokens\. /);
  await assertUntouched(made);
  made.engine.promptTokens = 99;
  const events = made.run();
  await accepted(events);
  assert.equal(made.engine.last.options.maxTokens, 1);
  await events.return();
});

test("converts a failure to count the prompt to a refusal, and holds nothing", async () => {
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

test("responds 402 with the time of the refresh if the balance cannot pay the prompt and one token", async () => {
  const made = await setup(planOf("poor", 3, 0), { price: { prompt: 100_000, completion: 1 } });
  await made.ledger.apply(hold("spent", 2_500_000));
  await made.ledger.apply(settle("spent", 2_500_000));
  const { error } = await rest(made.run());
  assertRefusal(error, "insufficient_credits");
  assert.match(error.message, new RegExp(new Date(start + day).toISOString().replaceAll(".", "\\.")));
  assert.equal(made.engine.generations.length, 0);
});

test("accepts a balance that pays exactly the prompt and one token", async () => {
  const { events, generation } = await queued({
    plan: planOf("poor", 1, 0),
    price: { prompt: 90_000, completion: 100_000 },
  });
  assert.equal(generation.options.maxTokens, 1);
  await events.return();
});

test("responds 429, not 402, if another request holds the credits", async () => {
  const made = await setup(planOf("poor", 1, 0), { price: { prompt: 1, completion: 100_000 } });
  const first = made.run();
  await accepted(first);
  const { error } = await rest(made.run());
  assertRefusal(error, "credits_reserved");
  assert.equal(error.retryAfterSeconds, 1);
  await first.return();
});

test("has a message for each refusal of the ledger", async () => {
  const limited = planOf("limited", 1, 0, { limits: { requestsPerMinute: 1 } });
  const byRate = await setup(limited);
  const running = byRate.run();
  await accepted(running);
  const rate = await rest(byRate.run());
  assertRefusal(rate.error, "rate_limit_exceeded");
  assert.match(rate.error.message, /this account's plan is 1 request per minute/);
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
  await revokeKey(byKey.store, "key");
  assertRefusal((await rest(byKey.run())).error, "invalid_api_key");

  const byRow = await setup();
  byRow.store.damage("ada", { holds: 0.5 });
  assertRefusal((await rest(byRow.run())).error, "balance_unavailable");

  const byPlan = await setup();
  byPlan.store.losePlans();
  assertRefusal((await rest(byPlan.run())).error, "balance_unavailable");
});

test("does not call the engine if the store cannot record the hold", async () => {
  const made = await setup();
  made.store.hooks = { before: () => Promise.reject(new StoreUnavailableError("disk full")) };
  const { error } = await rest(made.run());
  assert.ok(error instanceof StoreUnavailableError);
  await assertUntouched(made);
});
