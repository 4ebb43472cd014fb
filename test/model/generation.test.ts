/** Events that a generation may be ahead of its reader, alone and while others wait. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LlamaGeneration } from "../../src/engines/llama/process/generation.ts";
import type { TextEvent } from "../../src/engines/llama/protocol.ts";
import { eventsOf } from "../fixtures/batches.ts";

const window = 32;

/** A generation whose child fills its room. `left`: events that may wait for slow readers. */
function begin(left = 1_000_000, topLogprobs?: number) {
  const state = { room: window, made: 0, left };
  const generation = new LlamaGeneration(
    {
      id: 1,
      accountId: "anna",
      prompt: { tokens: new Uint32Array(5), thinking: false },
      maxTokens: 10_000,
      paidTokens: 10_000,
      sampling: { stop: [], ...(topLogprobs === undefined ? {} : { logprobs: true, topLogprobs }) },
    },
    {
      send: (message) => {
        if (message.type === "grant") state.room += message.events;
      },
      cancel: (cancelled) => cancelled.finish(),
      reserve: (items) => {
        if (items > state.left) return false;
        state.left -= items;
        return true;
      },
    },
    () => {},
  );
  const makeAll = () => {
    const events: TextEvent[] = Array.from({ length: state.room }, () => ({ type: "text", text: "a" }));
    state.room = 0;
    state.made += events.length;
    generation.receive({ id: 1, events, cachedTokens: 0, completionTokens: state.made, reasoningTokens: 0 });
  };
  const reader = eventsOf(generation);
  const read = async (events: number) => {
    for (let index = 0; index < events; index++) assert.equal((await reader.next()).value?.type, "text");
  };
  return { generation, state, makeAll, read };
}

test("runs ahead one window at a time while others wait, and is not due without room", () => {
  const { generation, state, makeAll } = begin();
  generation.runAhead();
  assert.equal(state.room, window, "its reader is not behind");
  for (let windows = 1; windows <= 5; windows++) {
    makeAll();
    assert.equal(state.made, windows * window);
    assert.equal(generation.isDue, false);
    generation.runAhead();
    generation.runAhead();
    assert.equal(state.room, window);
    assert.equal(generation.isDue, true);
  }
});

test("waits for its reader to catch up when no other generation waits", async () => {
  const { generation, state, makeAll, read } = begin();
  for (let windows = 0; windows < 4; windows++) {
    makeAll();
    generation.runAhead();
  }
  makeAll();
  assert.equal(state.made, 5 * window);
  await read(4 * window);
  assert.equal(state.room, 0);
  assert.equal(state.left, 1_000_000, "given back as it is read");
  await read(window / 2);
  assert.equal(state.room, window / 2);
});

test("limits the events for all slow readers together, including log-probabilities", () => {
  const plain = begin(3 * window);
  const spelled = begin(3 * window * 22, 20);
  for (const { generation, makeAll, state } of [plain, spelled]) {
    for (let windows = 0; windows < 9; windows++) {
      makeAll();
      generation.runAhead();
    }
    assert.equal(state.made, 4 * window);
    assert.equal(state.left, 0);
    assert.equal(generation.isDue, false);
  }
});

test("frees the memory of a reader that has gone, also after the end of the answer", async () => {
  for (const ends of [true, false]) {
    const { generation, state, makeAll } = begin(3 * window);
    makeAll();
    generation.runAhead();
    makeAll();
    if (ends) {
      const ending = { type: "length" } as const;
      const progress = {
        id: 1,
        events: [],
        cachedTokens: 0,
        completionTokens: state.made,
        reasoningTokens: 0,
      };
      generation.receive({ ...progress, ending });
    }
    assert.equal(state.left, 2 * window);
    await generation.stop();
    await generation.stop();
    assert.equal(state.left, 3 * window);
    generation.runAhead();
    assert.equal(state.left, 3 * window);
  }
});
