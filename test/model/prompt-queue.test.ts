/** Each account's time for prompts on the decoder's thread. No model, no clock. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { EngineError } from "../../src/chat/engine.ts";
import { PromptQueue } from "../../src/engines/llama/process/prompt-queue.ts";
import type { ToChild } from "../../src/engines/llama/protocol.ts";

/** A child that takes `workMs` for each prompt, which is answered by hand. */
function start(t: TestContext, disturbing: string[], workMs: number) {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const clock = { nowMs: 0 };
  const asked: number[] = [];
  const queue = new PromptQueue({
    waitMs: 15_000,
    stallMs: 60_000,
    send: (message: ToChild) => {
      if (message.type === "prepare") asked.push(message.id);
    },
    stalled: () => assert.fail("nothing hangs"),
    disturbs: (account) => disturbing.includes(account),
    nowMs: () => clock.nowMs,
  });
  queue.resume();
  const tick = (ms: number): void => {
    clock.nowMs += ms;
    t.mock.timers.tick(ms);
  };
  const outcomes: string[] = [];
  const ask = (account: string): void => {
    const prompt = { accountId: account, messages: [], reasoning: {} };
    queue.prepare(prompt, new AbortController().signal).then(
      () => outcomes.push(account),
      (error: unknown) => outcomes.push(error instanceof EngineError ? error.failure : String(error)),
    );
  };
  /** Answers what is asked for so many milliseconds. Returns how many prompts that were. */
  const run = async (forMs: number): Promise<number> => {
    let answered = 0;
    for (let ms = 0; ms < forMs; ms += 10) {
      const id = asked.shift();
      if (id !== undefined) {
        answered += 1;
        queue.receive({ type: "prepared", id, promptTokens: 9, prompt: null, workMs });
      }
      tick(10);
      await Promise.resolve();
    }
    return answered;
  };
  return { ask, run, outcomes };
}

test("a flood of prompts takes a tenth of the time beside other answers, and all of it alone", async (t) => {
  const disturbing = ["anna"];
  const { ask, run } = start(t, disturbing, 10);
  for (let n = 0; n < 200; n++) ask("anna");
  const first = await run(3000);
  assert.ok(first >= 40 && first <= 55, `${first} prompts of 10 ms in 3 s, of which 20 are the burst`);
  disturbing.pop();
  await run(200);
  assert.ok((await run(500)) >= 45);
});

test("other accounts go first while an account waits for its budget", async (t) => {
  const { ask, run, outcomes } = start(t, ["anna", "boris"], 100);
  for (let n = 0; n < 5; n++) ask("anna");
  await run(500);
  const before = outcomes.length;
  ask("boris");
  ask("boris");
  await run(30);
  assert.deepEqual(outcomes.slice(before), ["boris", "boris"]);
});

test("refuses a prompt as overloaded if its account's budget delays it too long", async (t) => {
  const { ask, run, outcomes } = start(t, ["anna"], 1000);
  for (let n = 0; n < 5; n++) ask("anna");
  await run(16_000);
  assert.deepEqual(outcomes, ["anna", "anna", "overloaded", "overloaded", "overloaded"]);
});
