/** Progress that is reported in parts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Outbox } from "../../src/engines/llama/decode/outbox.ts";
import type { JobEnding, JobProgress } from "../../src/engines/llama/protocol.ts";

function progress(id: number, texts: readonly string[], ending?: JobEnding): JobProgress {
  const events = texts.map((text) => ({ type: "text" as const, text }));
  const counts = { id, cachedTokens: 1, completionTokens: 2, reasoningTokens: 0 };
  return ending === undefined ? { ...counts, events } : { ...counts, events, ending };
}

function numbers(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${index}`);
}

test("takes the small progress of all jobs at once", () => {
  const outbox = new Outbox();
  const all = [progress(1, ["a"]), progress(2, []), progress(1, ["b"], { type: "stop" })];
  for (const each of all) outbox.add(each);
  assert.equal(outbox.isEmpty, false);
  assert.deepEqual(
    outbox.take().sort((left, right) => left.id - right.id),
    [all[0], all[2], all[1]],
  );
  assert.equal(outbox.isEmpty, true);
  assert.deepEqual(outbox.take(), []);
});

test("splits a burst, keeps its order, and reports the ending with the last part", () => {
  const outbox = new Outbox();
  const texts = numbers(10_000);
  outbox.add(progress(1, texts, { type: "length" }));
  outbox.add(progress(2, ["other"]));
  const first = outbox.take();
  assert.deepEqual(first.find(({ id }) => id === 2)?.events, [{ type: "text", text: "other" }]);
  const parts = first.filter(({ id }) => id === 1);
  while (!outbox.isEmpty) {
    const taken = outbox.take();
    assert.ok(taken.reduce((sum, { events }) => sum + events.length, 0) <= 128);
    parts.push(...taken);
  }
  assert.deepEqual(
    parts.flatMap(({ events }) => events.map(({ text }) => text)),
    texts,
  );
  assert.deepEqual(
    parts.map(({ ending }) => ending),
    [...parts.slice(1).map(() => undefined), { type: "length" }],
  );
  for (const { cachedTokens, completionTokens } of parts)
    assert.deepEqual([cachedTokens, completionTokens], [1, 2]);
});

test("progress that follows a burst comes after all of it", () => {
  const outbox = new Outbox();
  outbox.add(progress(1, numbers(300)));
  outbox.add(progress(1, ["last"], { type: "stopped" }));
  const taken: JobProgress[] = [];
  while (!outbox.isEmpty) taken.push(...outbox.take());
  assert.deepEqual(
    taken.flatMap(({ events }) => events.map(({ text }) => text)),
    [...numbers(300), "last"],
  );
  assert.deepEqual(taken.at(-1)?.ending, { type: "stopped" });
});
