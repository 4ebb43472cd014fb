/**
 * Distinguishes a hung child process from an idle one. The real child is halted (SIGSTOP), or
 * makes a native call that never returns.
 */
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { EngineError } from "../../src/chat/engine.ts";
import { type LlamaEngine, stallMsOf } from "../../src/engines/llama/process/engine.ts";
import { ProgressWatch } from "../../src/engines/llama/process/progress-watch.ts";
import { PromptQueue } from "../../src/engines/llama/process/prompt-queue.ts";
import type { ToChild } from "../../src/engines/llama/protocol.ts";
import { codeOf } from "../../src/errors.ts";
import { readEvents } from "../fixtures/events.ts";
import {
  ask,
  asked,
  begin,
  collect,
  prepare,
  RecordedLog,
  startMiniature,
} from "../fixtures/llama-engine.ts";
import { startService, type TestService } from "../fixtures/service.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";

const endless = "Something endless, please.";
/**
 * Longer than a machine with much else to do holds up a step of the miniature; a test that waits
 * for it lasts a little longer.
 */
const stallMs = 2500;

/** One for tests that leave it without answers. Its child is another one after each hang. */
let engine: LlamaEngine;
const log = new RecordedLog();
let onDecode = () => {};

before(async () => {
  engine = await startMiniature({ parallel: 1, stallMs, log, onDecode: () => onDecode() });
});

afterEach(() => {
  onDecode = () => {};
});

after(() => engine.close());

function halt(engine: LlamaEngine): number {
  const { pid } = engine;
  assert.ok(pid !== undefined, "there is a child");
  process.kill(pid, "SIGSTOP");
  return pid;
}

/** On a machine that stands still, the child may have been killed meanwhile. */
function resume(pid: number): void {
  try {
    process.kill(pid, "SIGCONT");
  } catch (error) {
    if (codeOf(error) !== "ESRCH") throw error;
  }
}

function isFailed(error: unknown): boolean {
  return error instanceof EngineError && error.failure === "failed";
}

/** A chat request to the engine, which the service calls `miniature`. */
function chat(service: TestService, content: string, body: object = {}): Promise<Response> {
  return service.chat({ model: "miniature", messages: [{ role: "user", content }], ...body });
}

// lifecycle.test.ts has children that hang during a prompt and a stop.
releaseTest("kills a child that halts before a request, and the next child answers", async () => {
  const prepared = await prepare(engine, "Hi");
  const hung = halt(engine);
  const answer = await collect(prepared.generate(asked(3)));
  assert.equal(answer.usage.completionTokens, 3);
  assert.notEqual(engine.pid, hung);
  assert.ok(log.lines.some((line) => line.startsWith("error") && line.includes("has made no progress")));
});

test("a stream ends with an error and is charged if the child halts, and the next one is answered", async () => {
  await using service = await startService({ otherEngines: { miniature: engine } });
  let decodes = 0;
  let hung: number | undefined;
  onDecode = () => {
    decodes += 1;
    if (decodes === 20) hung = halt(engine);
  };
  const response = await chat(service, endless, { stream: true });
  assert.equal(response.status, 200);
  const { error, done, texts } = readEvents(await response.text());
  assert.equal(error?.code, "upstream_error");
  assert.equal(done, false);
  const row = await service.receipt(response.headers.get("x-request-id") ?? "");
  assert.ok(row !== undefined);
  assert.equal(row.ending, "engine_failed");
  assert.ok(texts.length > 0 && row.completionTokens >= texts.length);
  assert.equal(row.costMicro, 10 * row.promptTokens + 30 * row.completionTokens);
  assert.equal((await chat(service, "Hi", { max_tokens: 2 })).status, 200);
  assert.ok(hung !== undefined);
  assert.notEqual(engine.pid, hung);
});

test("kills a child whose native call never returns, although it still replies", async (t) => {
  const module = fileURLToPath(new URL("../fixtures/stuck-worker.ts", import.meta.url));
  const log = new RecordedLog();
  const environment = { ...process.env, NODE_OPTIONS: `--import=${module} --allow-fs-read=${module}` };
  const engine = await startMiniature({ parallel: 2, stallMs, environment, log });
  t.after(() => engine.close());
  const running = await begin(engine, endless, { maxTokens: 900 });
  const { pid } = engine;
  assert.ok(pid !== undefined);
  const events = running[Symbol.asyncIterator]();
  await events.next();
  process.kill(pid, "SIGUSR2");
  await assert.rejects(async () => {
    for (;;) {
      const { done } = await events.next();
      if (done === true) return;
      await prepare(engine, "Hi");
    }
  }, isFailed);
  assert.ok(log.lines.some((line) => line.includes("has made no progress")));
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
});

test("a child whose answers wait for budgets and slow readers is not killed", async (t) => {
  const log = new RecordedLog();
  const engine = await startMiniature({ parallel: 2, stallMs, log });
  t.after(() => engine.close());
  const unpaid = (await prepare(engine, endless)).generate({ ...asked(40), paidTokens: 3 });
  const slow = (await prepare(engine, endless)).generate(asked(100));
  const reader = slow[Symbol.asyncIterator]();
  await reader.next();
  await until("one waits for pay", () => unpaid.usage.completionTokens === 3);
  await until("the other waits for its reader", () => slow.usage.completionTokens >= 32);
  const { pid } = engine;

  // A child would be killed in this time.
  await pause(1.5 * stallMs);
  assert.equal(engine.pid, pid);
  assert.deepEqual(
    log.lines.filter((line) => line.startsWith("error")),
    [],
  );
  unpaid.extendBudget(40, false);
  assert.equal((await collect(unpaid)).usage.completionTokens, 40);
  for (let next = await reader.next(); next.done !== true; ) next = await reader.next();
  assert.equal(slow.usage.completionTokens, 100);
  assert.equal(engine.pid, pid);
});

releaseTest(
  "detects a halted child by a stop that is due while the answer waits for its budget",
  async () => {
    const unpaid = (await prepare(engine, endless)).generate({ ...asked(40), paidTokens: 3 });
    await until("it waits for pay", () => unpaid.usage.completionTokens === 3);
    const hung = halt(engine);
    await unpaid.stop();
    assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
    assert.notEqual(engine.pid, hung);
  },
);

test("a prompt may take longer than the limit of one step", () =>
  // A process that hears of steps late stops the engine too seldom.
  unlessStalled(async () => {
    const { pid } = engine;
    let steps = 0;
    // Each step of the prompt takes a third of the limit, as on a slow machine.
    onDecode = () => {
      steps += 1;
      const slow = halt(engine);
      setTimeout(() => resume(slow), stallMs / 3);
    };
    const startedMs = performance.now();
    assert.equal((await ask(engine, "word ".repeat(500), { maxTokens: 1 })).usage.completionTokens, 1);
    assert.ok(steps > 500 / 64, "each part is told of");
    assert.ok(performance.now() - startedMs > stallMs);
    assert.equal(engine.pid, pid);
  }));

test("the limit of a step is a minute plus one for each GiB", () => {
  assert.equal(stallMsOf({ sizeBytes: 0 }), 60_000);
  assert.equal(stallMsOf({ sizeBytes: 4 * 2 ** 30 }), 300_000);
});

test("a prompt without a caller is not attempted again after a hang, and the next one gets its turn", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const asked: ToChild[] = [];
  let stalls = 0;
  const queue = new PromptQueue({
    waitMs: 500,
    stallMs: 1000,
    send: (message) => asked.push(message),
    disturbs: () => false,
    stalled: () => {
      stalls += 1;
    },
  });
  const signal = new AbortController().signal;
  const prompt = { accountId: "anna", messages: [], reasoning: {} };
  queue.resume();
  const hung = queue.prepare(prompt, signal);
  const late = assert.rejects(hung, (error) => error instanceof EngineError && error.failure === "timeout");
  t.mock.timers.tick(500);
  await late;
  assert.equal(stalls, 0);
  t.mock.timers.tick(750);
  assert.equal(stalls, 1);
  queue.suspend();
  queue.resume();
  assert.equal(asked.length, 1);
  const next = queue.prepare(prompt, signal);
  assert.equal(asked.length, 2);
  queue.receive({ type: "prepared", id: 2, promptTokens: 7, prompt: null, workMs: 1 });
  assert.equal((await next).promptTokens, 7);
  t.mock.timers.tick(10_000);
  assert.equal(stalls, 1);
});

function watch(boundMs: number) {
  const state = { isDue: true, stalls: 0 };
  const watching = new ProgressWatch({
    boundMs,
    isDue: () => state.isDue,
    stalled: () => {
      state.stalls += 1;
    },
  });
  return { state, watching };
}

test("due work gets its time from the last progress, and is given up once", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { state, watching } = watch(1000);
  watching.look();
  t.mock.timers.tick(900);
  watching.heard();
  t.mock.timers.tick(1000);
  assert.equal(state.stalls, 0);
  t.mock.timers.tick(250);
  assert.equal(state.stalls, 1);
  t.mock.timers.tick(10_000);
  assert.equal(state.stalls, 1);
});

test("work that becomes due again gets its whole time", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { state, watching } = watch(1000);
  watching.look();
  t.mock.timers.tick(900);
  state.isDue = false;
  watching.look();
  t.mock.timers.tick(10_000);
  state.isDue = true;
  watching.look();
  // Other work that becomes due does not extend the time.
  t.mock.timers.tick(900);
  watching.look();
  assert.equal(state.stalls, 0);
  t.mock.timers.tick(350);
  assert.equal(state.stalls, 1);
});

test("a process that was suspended itself reports no stall", async () => {
  const { state, watching } = watch(40);
  watching.look();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  await pause(0);
  assert.equal(state.stalls, 0);
  watching.stop();
});
