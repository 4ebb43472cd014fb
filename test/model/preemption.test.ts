/**
 * Slots shared among accounts, on the real engine: an answer is paused for another account, and
 * continues without a difference. Tests the order of events. npm run bench -- fairness measures
 * times.
 */

import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { EngineError, type EngineLoad, type Generation } from "../../src/chat/engine.ts";
import type { SlotsLimits } from "../../src/engines/llama/process/decode-slots.ts";
import type { LlamaEngine } from "../../src/engines/llama/process/engine.ts";
import { readEvents } from "../fixtures/events.ts";
import {
  type Answer,
  ask,
  asked,
  begin,
  collect,
  miniaturePath,
  prepare,
  startMiniature,
} from "../fixtures/llama-engine.ts";
import { errorOf, type ServiceOptions, startService, type TestService } from "../fixtures/service.ts";
import { isThorough, releaseTest, some } from "../fixtures/thorough.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until as reached } from "../fixtures/until.ts";

/** The miniature answers this without end. */
const endless = "Something endless, please.";
const modelPath = process.env.INKWELL_TEST_MODEL ?? miniaturePath;
const never = 1e9;
/** Gives way at once, and comes back when the other has ended. */
const atOnce: SlotsLimits = { runMinMs: 0, turnMs: never, blockedMaxMs: never, pausedMaxMs: never };
const question = (account: string, maxTokens = 400) => ({
  account,
  maxTokens,
  sampling: { seed: 11, temperature: 1.4, frequencyPenalty: 0.3 },
});

async function start(
  t: TestContext,
  options: Parameters<typeof startMiniature>[0] = {},
): Promise<LlamaEngine> {
  const engine = await startMiniature({ parallel: 1, slotsLimits: atOnce, ...options });
  t.after(() => engine.close());
  return engine;
}

let shared: Promise<LlamaEngine> | undefined;
after(async () => (await shared)?.close());

/** An engine for tests that leave it without answers. */
function sharedEngine(): Promise<LlamaEngine> {
  shared ??= startMiniature({ parallel: 1, contextWindow: 8192, slotsLimits: atOnce });
  return shared;
}

/** Reads it in the background. */
function read(generation: Generation): Promise<Answer> {
  const answer = collect(generation);
  answer.catch(() => {});
  return answer;
}

async function until(engine: LlamaEngine, isSo: (load: EngineLoad) => boolean): Promise<void> {
  await reached(`the load of the engine: ${isSo}`, () => isSo(engine.load()));
}

const failsWith = (failure: string) => (error: unknown) =>
  error instanceof EngineError && error.failure === failure;

/**
 * Anna's answer, paused after some tokens, and Boris's, which has its slot. Boris's prompt is
 * ready before, so that Anna's answer cannot end meanwhile. His answer waits for pay until hers
 * has been seen to be paused, however short his is.
 */
async function startPaused(engine: LlamaEngine, annaTokens = 400, borisTokens = 900) {
  const prepared = await prepare(engine, endless, { account: "boris" });
  const anna = await begin(engine, endless, question("anna", annaTokens));
  const answer = read(anna);
  while (anna.usage.completionTokens < 20) await nextTurn();
  const { sampling } = question("boris");
  const boris = prepared.generate({ ...asked(borisTokens, sampling), paidTokens: 5 });
  const borisAnswer = read(boris);
  await until(engine, ({ paused }) => paused === 1);
  await until(engine, () => boris.started);
  boris.extendBudget(borisTokens, false);
  return { anna, answer, boris, borisAnswer };
}

test("answers others while eight requests of 7000 tokens want four slots", async (t) => {
  const engine = await startMiniature({ parallel: 4, contextWindow: 8192 });
  t.after(() => engine.close());
  const flood = await Promise.all(
    Array.from({ length: 8 }, () => begin(engine, endless, question("anna", 7000))),
  );
  const answers = flood.map(read);
  await until(engine, ({ running, waiting }) => running === 4 && waiting === 4);
  for (const others of isThorough ? [1, 2, 4, 8] : [2, 8]) {
    const newcomers = Array.from({ length: others }, (_, n) =>
      ask(engine, "Hello!", question(`other ${n}`, 10)),
    );
    for (const { usage } of await Promise.all(newcomers)) assert.ok(usage.completionTokens > 0);
  }
  const { running, waiting, paused = 0 } = engine.load();
  assert.equal(running + waiting + paused, 8, "none of the flood has ended");
  await Promise.all(flood.map((generation) => generation.stop()));
  for (const { usage } of flood) assert.ok(usage.completionTokens < 7000);
  await Promise.allSettled(answers);
});

for (const [how, pausedBytesMax] of [
  ["with its state in memory", 2 ** 30],
  ["evaluated again for want of memory", 0],
] as const) {
  test(`a long answer gives its slot to another account and continues, ${how}`, async (t) => {
    const isShared = pausedBytesMax > 0 && modelPath === miniaturePath;
    const engine = isShared ? await sharedEngine() : await start(t, { pausedBytesMax, modelPath });
    const undisturbed = await ask(engine, endless, question("carla"));
    const { completionTokens } = undisturbed.usage;
    assert.ok(completionTokens > 100, `${completionTokens} tokens`);
    const { anna, answer, borisAnswer } = await startPaused(engine, 400, 30);
    const whilePaused = anna.usage.completionTokens;
    assert.ok((await borisAnswer).usage.completionTokens > 0);
    assert.ok(whilePaused < completionTokens, "Boris was answered first");
    const { text, usage, finishReason } = await answer;
    if (pausedBytesMax > 0) {
      assert.equal(text, undisturbed.text);
      assert.deepEqual({ ...usage, cachedTokens: 0 }, { ...undisturbed.usage, cachedTokens: 0 });
      assert.equal(finishReason, undisturbed.finishReason);
    } else assert.ok(text.startsWith(undisturbed.text.slice(0, 40)), "what was made before the pause stays");
  });
}

test("a paused answer generates no token, and continues when a slot is free", async () => {
  const engine = await sharedEngine();
  const { anna, answer, boris } = await startPaused(engine);
  const { completionTokens } = anna.usage;
  const borisBefore = boris.usage.completionTokens;
  await reached("50 tokens", () => boris.usage.completionTokens >= borisBefore + 50);
  assert.equal(anna.usage.completionTokens, completionTokens);
  assert.deepEqual(
    { ...engine.load(), starvedMs: 0, oldestWaitMs: 0 },
    {
      running: 1,
      waiting: 0,
      paused: 1,
      oldestWaitMs: 0,
      starvedMs: 0,
    },
  );
  await boris.stop();
  assert.equal((await answer).usage.completionTokens, 400);
  assert.equal(engine.load().paused, 0);
});

test("accounts that take turns token by token get the same text as alone", async (t) => {
  const engine = await start(t, { slotsLimits: { ...atOnce, turnMs: 0 } });
  const accounts = ["anna", "boris", "carla"];
  const alone = await ask(engine, endless, question("alone", 150));
  const prepared = await Promise.all(accounts.map((account) => prepare(engine, endless, { account })));
  const { sampling } = question("alone");
  // No answer can end before it is paid for in full.
  const generations = prepared.map((each) => each.generate({ ...asked(150, sampling), paidTokens: 40 }));
  const answers = generations.map(read);
  await until(engine, ({ paused }) => paused === 2);
  assert.equal(engine.load().running, 1, "all three began before the first ended");
  for (const generation of generations) generation.extendBudget(150, false);
  for (const { text } of await Promise.all(answers)) assert.equal(text, alone.text);
});

test("all answers are complete under contention, whether copied, evaluated again or moved", async (t) => {
  const limits = { runMinMs: 0, turnMs: 0, blockedMaxMs: 0, pausedMaxMs: 20 };
  // Other tests here have answers of each way.
  for (const pausedBytesMax of some([200_000, 0, 2 ** 30], 3)) {
    const engine = await start(t, { parallel: 2, pausedBytesMax, slotsLimits: limits });
    const generations: Generation[] = [];
    for (const account of ["anna", "boris", "carla", "dora"])
      for (const tokens of [30, 60])
        generations.push(await begin(engine, `${endless} ${tokens}`, question(account, tokens)));
    const counts = (await Promise.all(generations.map(read))).map(({ usage }) => usage.completionTokens);
    assert.deepEqual(counts, [30, 60, 30, 60, 30, 60, 30, 60], `${pausedBytesMax} bytes`);
    assert.deepEqual(engine.load(), { running: 0, waiting: 0, paused: 0, oldestWaitMs: 0, starvedMs: 0 });
    await engine.close();
  }
});

test("a paused answer ends at once when its client disconnects, and the other continues", async () => {
  const engine = await sharedEngine();
  const { anna, boris, borisAnswer } = await startPaused(engine, 400, 300);
  const { completionTokens } = anna.usage;
  await anna.stop();
  assert.equal(anna.usage.completionTokens, completionTokens, "what it had made, to be charged");
  assert.ok(boris.usage.completionTokens < 300, "it did not wait for its slot");
  assert.equal(engine.load().paused, 0);
  assert.equal((await borisAnswer).usage.completionTokens, 300);
});

test("a paused answer ends while paused if its budget is not extended", async () => {
  const engine = await sharedEngine();
  const { anna, answer, boris } = await startPaused(engine);
  const { completionTokens } = anna.usage;
  anna.extendBudget(completionTokens, true);
  const { finishReason, usage } = await answer;
  assert.equal(finishReason, "length");
  assert.equal(usage.completionTokens, completionTokens);
  await boris.stop();
});

test("an answer that waits for its budget gives up its slot and returns when it is extended", async (t) => {
  const engine = await start(t, { slotsLimits: { ...atOnce, runMinMs: never, blockedMaxMs: 0 } });
  const prepared = await prepare(engine, endless, { account: "anna" });
  const anna = prepared.generate({ ...asked(100), paidTokens: 10 });
  const answer = read(anna);
  await reached("ten tokens", () => anna.usage.completionTokens >= 10);
  const other = await ask(engine, endless, question("anna", 20));
  assert.equal(other.usage.completionTokens, 20, "of its own account as well");
  assert.equal(engine.load().paused, 1);
  anna.extendBudget(100, false);
  assert.equal((await answer).usage.completionTokens, 100);
});

test("paused answers fail with their usage when the child is killed, and the next request is answered", async () => {
  const engine = await sharedEngine();
  const { anna, answer, borisAnswer } = await startPaused(engine);
  assert.ok(engine.pid !== undefined);
  process.kill(engine.pid, "SIGKILL");
  await assert.rejects(answer, failsWith("failed"));
  await assert.rejects(borisAnswer, failsWith("failed"));
  assert.ok(anna.started && anna.usage.completionTokens >= 20);
  assert.equal((await ask(engine, "Hi", question("carla", 3))).usage.completionTokens, 3);
  assert.equal(engine.load().paused, 0);
});

// stall.test.ts has other waits.
releaseTest("a long pause is not mistaken for a hung child", async (t) => {
  const stallMs = 1500;
  const engine = await start(t, { stallMs });
  const anna = await begin(engine, endless, question("anna", 400));
  const answer = read(anna);
  await reached("a token", () => anna.usage.completionTokens > 0);
  // Boris's waits for pay in its slot, so that nothing at all is decoded.
  const boris = (await prepare(engine, endless, { account: "boris" })).generate({
    ...asked(50),
    paidTokens: 5,
  });
  const borisAnswer = read(boris);
  await until(engine, ({ paused }) => paused === 1);
  const { pid } = engine;
  await sleep(1.5 * stallMs);
  assert.equal(engine.pid, pid);
  boris.extendBudget(50, false);
  assert.equal((await borisAnswer).usage.completionTokens, 50);
  assert.equal((await answer).usage.completionTokens, 400);
});

/** They take longer than Boris's request needs to come in. */
const annaTokens = 1000;

/** Kept, because the connection of an answer that is collected as garbage is closed. */
const unread: Response[] = [];

/**
 * A stream of the service's own account, and one of Boris's that has taken its slot. Boris does
 * not read the answer, so it fills the connection and does not end by itself.
 */
async function startPausedRequest(engine: LlamaEngine, service: TestService) {
  await service.ledger.apply({ kind: "open", account: "boris", plan: "test", by: "test" });
  const borisKey = await service.addKey({ account: "boris" });
  const chat = (key: string, body: object, signal: AbortSignal) => {
    const messages = [{ role: "user", content: endless }];
    const headers = { authorization: `Bearer ${key}` };
    return service.chat(
      { model: "miniature", messages, seed: 1, stream: true, ...body },
      { headers, signal },
    );
  };
  const [anna, boris] = [new AbortController(), new AbortController()];
  const response = await chat(service.key, { max_tokens: annaTokens }, anna.signal);
  const requestId = response.headers.get("x-request-id") ?? "";
  const text = response.text();
  text.catch(() => {});
  const answer = await chat(borisKey, { max_tokens: 7000, logprobs: true, top_logprobs: 20 }, boris.signal);
  assert.equal(answer.status, 200);
  unread.push(answer);
  await until(engine, ({ paused }) => paused === 1);
  return { anna, boris, requestId, text, again: () => chat(service.key, {}, anna.signal) };
}

async function startWithService(options: ServiceOptions = {}) {
  const engine = await sharedEngine();
  const service = await startService({ otherEngines: { miniature: engine }, ...options });
  return { engine, service };
}

test("a paused request counts as running, keeps its hold and connection, and is charged normally", () =>
  unlessStalled(async () => {
    const holdTtlMs = 2000;
    const plan = { limits: { concurrent: 1 } };
    const { engine, service } = await startWithService({ plan, holdTtlMs, keepAliveMs: 50 });
    await using _ = service;
    const { boris, text, requestId, again } = await startPausedRequest(engine, service);
    const refused = await again();
    assert.equal(refused.status, 429);
    assert.equal((await errorOf(refused)).code, "concurrency_limit_exceeded");
    await sleep(1.25 * holdTtlMs);
    assert.equal(engine.load().paused, 1, "still paused");
    assert.equal((await service.store.accountSnapshot(service.account))?.account.holds, 1);
    boris.abort();
    const received = await text;
    assert.match(received, /^: keep-alive$/m);
    const { done, error, texts } = readEvents(received);
    assert.deepEqual([done, error], [true, null]);
    const row = await service.receipt(requestId);
    assert.deepEqual([row?.ending, row?.completionTokens], ["length", annaTokens]);
    assert.ok(texts.length > 0);
  }));

test("a paused request whose client disconnects is settled at once for its tokens", async () => {
  const { engine, service } = await startWithService();
  await using _ = service;
  const { anna, boris, requestId } = await startPausedRequest(engine, service);
  anna.abort();
  await until(engine, ({ paused, running }) => paused === 0 && running === 1);
  await reached("the receipt", async () => (await service.receipt(requestId)) !== undefined);
  const row = await service.receipt(requestId);
  assert.ok(row !== undefined);
  assert.equal(row.ending, "client_gone");
  assert.ok(row.completionTokens < annaTokens);
  assert.equal(row.costMicro, 10 * row.promptTokens + 30 * row.completionTokens);
  boris.abort();
});

test("close ends paused answers like running ones", async () => {
  const engine = await sharedEngine();
  const { anna, answer, borisAnswer } = await startPaused(engine);
  await engine.close();
  await assert.rejects(answer, failsWith("unavailable"));
  await assert.rejects(borisAnswer, failsWith("unavailable"));
  assert.ok(anna.usage.completionTokens >= 20);
});
