/** The decode loop step by step, over a scripted backend. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Decoder } from "../../src/engines/llama/decode/decoder.ts";
import type {
  Backend,
  BatchEntry,
  Sampler,
  SavedState,
} from "../../src/engines/llama/decode/native-backend.ts";
import { SavedStates } from "../../src/engines/llama/decode/saved-states.ts";
import { Vocabulary } from "../../src/engines/llama/prompt/vocabulary.ts";
import type { JobProgress, JobSpec } from "../../src/engines/llama/protocol.ts";

const endOfTurn = 256;
const closeTag = 258;
const vocabulary = new Vocabulary({
  kind: "llama",
  tokens: [
    ...Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).padStart(2, "0")}>`),
    "<|end|>",
    "<think>",
    "</think>",
  ],
  types: [...Array.from({ length: 256 }, () => 6), 3, 4, 4],
  addSpacePrefix: false,
  spell: () => "",
});

/**
 * Says the script of each sequence's prompt (its last token chooses), token by token; records what
 * it was asked to do.
 */
class ScriptedBackend implements Backend {
  readonly chunkTokens = 4;
  readonly tokensPerSequenceMax = 16;
  readonly steps: { sequence: number; position: number; tokens: number[] }[][] = [];
  /** Of each step, whether its numbers had to come out as at any other time. */
  readonly repeatable: boolean[] = [];
  readonly truncated: [sequence: number, length: number][] = [];
  readonly saved: number[] = [];
  readonly disposed: number[] = [];
  restored = 0;
  whileRestoring: () => void = () => {};
  /** Result of `restore`. */
  restores = true;
  #scripts = new Map<number, number[]>();
  #logits: number[] = [];
  /** Throws in this step. */
  failingStep = -1;
  /** Sampling fails for this sequence. */
  failingSequence = -1;
  /** Called as each step begins. */
  beforeStep: (step: number) => void = () => {};
  /** Called after each step, before its tokens are sampled. */
  afterStep: (step: number) => void = () => {};

  script(sequence: number, text: string): void {
    this.#scripts.set(sequence, [...Buffer.from(text), endOfTurn]);
  }

  async decode(entries: readonly BatchEntry[], repeatable: boolean): Promise<number[]> {
    this.repeatable.push(repeatable);
    this.beforeStep(this.steps.length);
    this.steps.push(
      entries.map(({ sequence, position, tokens }) => ({ sequence, position, tokens: [...tokens] })),
    );
    await Promise.resolve();
    if (this.steps.length - 1 === this.failingStep) throw new Error("no slot");
    this.afterStep(this.steps.length - 1);
    this.#logits = entries.map(({ sequence }) => sequence);
    return entries.map(({ sample }, index) => (sample ? index : -1));
  }

  newSampler(): Sampler {
    return { applyConfig: () => {}, dispose: () => {} };
  }

  async sample(logits: number): Promise<number> {
    const sequence = this.#logits[logits] ?? -1;
    if (sequence === this.failingSequence) throw new Error("no token");
    return this.#scripts.get(sequence)?.shift() ?? endOfTurn;
  }

  async candidates(): Promise<never> {
    throw new Error("not scripted");
  }

  truncate(sequence: number, length: number): boolean {
    this.truncated.push([sequence, length]);
    return true;
  }

  async save(sequence: number): Promise<SavedState> {
    this.saved.push(sequence);
    await Promise.resolve();
    return { bytes: 100, dispose: () => void this.disposed.push(sequence) };
  }

  async restore(): Promise<boolean> {
    this.restored += 1;
    await Promise.resolve();
    this.whileRestoring();
    return this.restores;
  }
}

function job(id: number, prompt: string, fields: Partial<JobSpec> = {}): JobSpec {
  return {
    id,
    accountId: `account-${id}`,
    prompt: { tokens: Uint32Array.from(Buffer.from(prompt)), thinking: false },
    maxTokens: 100,
    paidTokens: 100,
    sampling: { stop: [], temperature: 0 },
    window: 1000,
    ...fields,
  };
}

/** A decoder with its jobs' reports; `ended` resolves when so many have ended. */
function start(
  backend: ScriptedBackend,
  jobs: JobSpec[],
  endings = jobs.length,
  { contextWindow = 64, bytesMax = 1000, parallel = 2 } = {},
) {
  const ended = Promise.withResolvers<void>();
  const reports: JobProgress[] = [];
  const batches: number[] = [];
  const placed: [id: number, sequence: number][] = [];
  const warnings: string[] = [];
  let left = endings;
  const decoder = new Decoder({
    backend,
    vocabulary,
    isEndOfTurn: (token) => token === endOfTurn,
    thinkTags: ["<think>", "</think>"],
    closingTokens: Uint32Array.of(closeTag),
    contextWindow,
    parallel,
    states: new SavedStates({ backend, bytesMax, warn: (message) => warnings.push(message) }),
    placed: (id, sequence) => placed.push([id, sequence]),
    report: (progress, decoded) => {
      reports.push(...progress);
      batches.push(...decoded);
      left -= progress.filter(({ ending }) => ending !== undefined).length;
      if (left <= 0) ended.resolve();
    },
  });
  for (const spec of jobs) decoder.receive({ type: "start", job: spec });
  decoder.run().catch(ended.reject);
  const last = (id: number) => reports.findLast((report) => report.id === id);
  const text = (id: number) =>
    reports
      .filter((report) => report.id === id)
      .flatMap(({ events }) => events.map((event) => event.text))
      .join("");
  return { decoder, ended: ended.promise, last, text, reports, batches, placed, warnings };
}

test("evaluates one chunk of one prompt in each step, beside the tokens of running answers", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "xy");
  backend.script(1, "z");
  const { ended, text, batches } = start(backend, [job(1, "abcdef"), job(2, "ghijklmno")]);
  await ended;
  assert.equal(text(1), "xy");
  assert.equal(text(2), "z");
  const shape = backend.steps.map((step) =>
    step.map(({ sequence, tokens }) => `${sequence}:${tokens.length}`).join(" "),
  );
  assert.deepEqual(shape, ["0:4", "1:4", "0:2", "0:1 1:4", "0:1 1:1", "1:1"]);
  assert.deepEqual(batches, [1, 1, 1, 2, 2, 1], "each step is told of once");
});

test("a short prompt waits for at most one chunk of a long prompt", async () => {
  for (const [long, short] of [
    [10, 4],
    [4, 10],
  ] as const) {
    const backend = new ScriptedBackend();
    const running = start(backend, [job(long, "l".repeat(40))], 2);
    backend.afterStep = (step) => {
      if (step === 1) running.decoder.receive({ type: "start", job: job(short, "s") });
    };
    await running.ended;
    const turns = backend.steps.map((step) => step.map(({ sequence }) => sequence).join(" "));
    assert.deepEqual(turns, ["0", "0", "1", "0", "0", "0", "0", "0", "0", "0", "0"]);
  }
});

test("a stream of short prompts does not delay a long prompt's turns", async () => {
  const backend = new ScriptedBackend();
  const running = start(backend, [job(3, "l".repeat(40)), job(11, "ssss")]);
  const read: string[] = [];
  let last = 11;
  backend.afterStep = (step) => {
    const [first] = Buffer.from(backend.steps[step]?.[0]?.tokens ?? []).toString();
    read.push(first ?? "");
    // Each short one begins when the one before has read its prompt, with a higher number than the
    // long one's.
    if (first !== "s" || last === 20) return;
    last += 1;
    running.decoder.receive({ type: "start", job: job(last, "ssss") });
  };
  while (running.last(3)?.ending === undefined) await new Promise(setImmediate);
  assert.equal(read.slice(0, 19).join(""), "lslslslslslslslslsl");
});

test("only a seeded or greedy job that runs alone is repeatable", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "ab");
  backend.script(1, "wxyz");
  const seeded = job(2, "2", { sampling: { stop: [], seed: 7 } });
  await start(backend, [job(1, "1"), seeded]).ended;
  // Prompts one after the other, beside the other's tokens, then what is left of the longer.
  assert.deepEqual(backend.repeatable, [true, false, false, true, true, true]);
  const other = new ScriptedBackend();
  other.script(0, "a");
  await start(other, [job(1, "1", { sampling: { stop: [] } })]).ended;
  assert.deepEqual(other.repeatable, [false, false]);
});

test("the first report announces a job before anything is evaluated", async () => {
  const backend = new ScriptedBackend();
  const running = start(backend, [job(1, "abc")]);
  backend.afterStep = (step) => {
    if (step === 0) assert.equal(running.reports.length, 1);
  };
  await running.ended;
  assert.equal(running.reports[0]?.ending, undefined);
  assert.equal(running.reports[0]?.completionTokens, 0);
});

test("reports a step's output during the next step, or at once without one", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "abcd");
  const running = start(backend, [job(1, "1", { paidTokens: 3 })], 1);
  const told: (number | undefined)[] = [];
  const rest = Promise.withResolvers<void>();
  const tell = (step: number) => {
    told.push(running.last(1)?.completionTokens);
    if (step === 2) rest.resolve();
  };
  backend.beforeStep = tell;
  backend.afterStep = tell;
  await rest.promise;
  await new Promise(setImmediate);
  tell(-1);
  // The beginning and the end of the prompt's step and of the two after it; the rest for want of
  // pay.
  assert.deepEqual(told, [0, 0, 0, 1, 1, 2, 3]);
});

test("reports each step when it begins, also one that only evaluates a prompt", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "a");
  const running = start(backend, [job(1, "abcdefghijklmnop")]);
  const told: number[] = [];
  backend.afterStep = () => told.push(running.batches.length);
  await running.ended;
  assert.deepEqual(told, [1, 2, 3, 4, 5]);
});

test("evaluates the closing tag of limited thinking after the last token, without counting it", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "hmmYes");
  const prompt = { tokens: Uint32Array.from(Buffer.from("abc")), thinking: true, thinkingTokensMax: 3 };
  const { ended, last, text } = start(backend, [job(1, "", { prompt })]);
  await ended;
  const evaluated = backend.steps.flat().map(({ tokens }) => tokens);
  const m = "m".charCodeAt(0);
  assert.deepEqual(evaluated[3], [m, closeTag]);
  assert.equal(text(1), "Yes");
  assert.equal(last(1)?.completionTokens, 6);
  assert.equal(last(1)?.reasoningTokens, 3);
});

test("a job without room for events waits for a grant", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "abcdef");
  backend.script(1, "ghijklmnop");
  const { decoder, ended, text } = start(backend, [job(1, "1", { window: 2 }), job(2, "2")], 1);
  await ended;
  assert.equal(text(1), "ab");
  assert.equal(text(2), "ghijklmnop");
  const rest = Promise.withResolvers<void>();
  const steps = backend.steps.length;
  backend.afterStep = (step) => {
    if (step === steps + 3) rest.resolve();
  };
  decoder.receive({ type: "grant", id: 1, events: 10 });
  await rest.promise;
  await new Promise(setImmediate);
  assert.equal(text(1), "abcdef");
});

test("a stop takes effect before the next step, also inside a prompt", async () => {
  const backend = new ScriptedBackend();
  const running = start(backend, [job(1, "abcdefghijklmnop")]);
  backend.afterStep = (step) => {
    if (step === 1) running.decoder.receive({ type: "stop", id: 1 });
  };
  await running.ended;
  assert.equal(backend.steps.length, 2);
  assert.deepEqual(running.last(1)?.ending, { type: "stopped" });
  assert.equal(running.last(1)?.completionTokens, 0);
});

test("a job that is stopped before it has a sequence ends without starting", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "aaaa");
  backend.script(1, "bbbb");
  const { decoder, ended, reports } = start(backend, [job(1, "1"), job(2, "2"), job(3, "3")]);
  decoder.receive({ type: "stop", id: 3 });
  await ended;
  assert.equal(reports.filter(({ id }) => id === 3).length, 1);
  assert.deepEqual(reports.find(({ id }) => id === 3)?.ending, { type: "stopped" });
});

test("a job whose sampling fails ends alone", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "abc");
  backend.failingSequence = 1;
  const { ended, last, text } = start(backend, [job(1, "1"), job(2, "2")]);
  await ended;
  assert.equal(last(2)?.ending?.type, "failed");
  assert.equal(text(1), "abc");
  assert.deepEqual(last(1)?.ending, { type: "stop" });
});

test("a failed batch ends its jobs, and their sequences are not reused", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "abc");
  backend.failingStep = 2;
  const { decoder, ended, last, reports } = start(backend, [job(1, "1")]);
  await ended;
  assert.equal(last(1)?.ending?.type, "failed");
  assert.deepEqual(backend.truncated, [[0, 0]]);
  decoder.receive({ type: "start", job: job(2, "1a", { accountId: "account-1" }) });
  while (!reports.some(({ id, ending }) => id === 2 && ending !== undefined)) await new Promise(setImmediate);
  assert.equal(last(2)?.cachedTokens, 0);
});

test("a forced closing tag stays within the window", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "h".repeat(100));
  const prompt = { tokens: new Uint32Array(60).fill(97), thinking: true, thinkingTokensMax: 3 };
  const { ended, last } = start(backend, [job(1, "", { prompt })]);
  await ended;
  assert.deepEqual(last(1)?.ending, { type: "length" });
  for (const { position, tokens } of backend.steps.flat()) assert.ok(position + tokens.length <= 64);
});

test("reports a burst of held text in parts, complete, in order and with the ending last", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "a".repeat(1000));
  const spec = job(1, "p", {
    maxTokens: 1000,
    paidTokens: 1000,
    sampling: { stop: [`${"a".repeat(2000)}b`], temperature: 0 },
  });
  const { ended, reports, text, last } = start(backend, [spec], 1, { contextWindow: 2048 });
  await ended;
  assert.equal(text(1), "a".repeat(1000));
  assert.deepEqual(last(1)?.ending, { type: "length" });
  assert.equal(reports.filter(({ ending }) => ending !== undefined).length, 1);
  const most = Math.max(...reports.map(({ events }) => events.length));
  assert.ok(most > 1 && most <= 128, `${most} events in one report`);
});

/**
 * Two answers fill both sequences; the second is paused for a third when it has made three tokens,
 * and goes on when that has made its own three. The script of sequence 1 is for both, in this
 * order.
 */
function startPaused(backend: ScriptedBackend, bytesMax: number, endings = 3) {
  backend.script(0, "a".repeat(30));
  backend.script(1, "bcdXYZefgh");
  const running = start(backend, [job(1, "1"), job(2, "23456")], endings, { bytesMax });
  backend.afterStep = (step) => {
    // Its prompt has two chunks, one in each of the steps 1 and 2.
    if (step === 4) {
      running.decoder.receive({ type: "pause", id: 2 });
      running.decoder.receive({ type: "start", job: job(3, "7", { maxTokens: 3 }) });
    }
    if (running.last(3)?.ending !== undefined) running.decoder.receive({ type: "resume", id: 2 });
  };
  const ofSequence1 = () =>
    backend.steps
      .flat()
      .flatMap(({ sequence, position, tokens }) =>
        sequence === 1 ? [`${position}:${Buffer.from(tokens).toString()}`] : [],
      );
  return { ...running, ofSequence1 };
}

test("a paused job's sequence goes to another job and returns with its contents", async () => {
  const backend = new ScriptedBackend();
  const { ended, text, placed, last, ofSequence1 } = startPaused(backend, 1000);
  await ended;
  assert.equal(text(3), "XYZ");
  assert.equal(text(2), "bcdefgh");
  assert.equal(last(2)?.completionTokens, 7);
  assert.deepEqual([backend.saved, backend.restored, backend.disposed], [[1], 1, [1]]);
  assert.deepEqual(ofSequence1().slice(0, 4), ["0:2345", "4:6", "5:b", "6:c"]);
  assert.deepEqual(ofSequence1().slice(4), ["0:7", "1:X", "2:Y", "7:d", "8:e", "9:f", "10:g", "11:h"]);
  assert.deepEqual(placed, [
    [1, 0],
    [2, 1],
    [3, 1],
    [2, 1],
  ]);
});

for (const [why, bytesMax, restores] of [
  ["there is no memory for its state", 99, true],
  ["its state cannot be put back", 1000, false],
] as const) {
  test(`evaluates a paused job's text again in chunks, without a new token, because ${why}`, async () => {
    const backend = new ScriptedBackend();
    backend.restores = restores;
    const { ended, text, placed, last, ofSequence1, warnings } = startPaused(backend, bytesMax);
    await ended;
    assert.equal(text(2), "bcdefgh");
    assert.equal(last(2)?.completionTokens, 7);
    assert.equal(last(2)?.cachedTokens, 0);
    assert.deepEqual(ofSequence1().slice(7), ["0:2345", "4:6bc", "7:d", "8:e", "9:f", "10:g", "11:h"]);
    assert.equal(placed.length, 5, "told when it has its sequence, and again what that has cost");
    assert.equal(backend.disposed.length, backend.saved.length);
    assert.equal(warnings.length, restores ? 0 : 1);
  });
}

test("a job that is stopped while its state is saved ends at once and frees it", async () => {
  const backend = new ScriptedBackend();
  const { ended, decoder, last } = startPaused(backend, 1000, 3);
  backend.beforeStep = () => {
    if (backend.saved.length > 0) decoder.receive({ type: "stop", id: 2 });
  };
  await ended;
  assert.equal(last(2)?.ending?.type, "stopped");
  assert.equal(last(2)?.completionTokens, 3);
  assert.deepEqual([backend.saved, backend.restored, backend.disposed], [[1], 0, [1]]);
});

test("a paused job keeps its sequence until another job needs it", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "a".repeat(10));
  backend.script(1, "bcdefgh");
  const { decoder, ended, text } = start(backend, [job(1, "1"), job(2, "2")]);
  backend.afterStep = (step) => {
    if (step === 3) decoder.receive({ type: "pause", id: 2 });
    if (step === 6) decoder.receive({ type: "resume", id: 2 });
  };
  await ended;
  assert.deepEqual(backend.steps.map((step) => step.length).slice(0, 8), [1, 2, 2, 2, 1, 1, 1, 2]);
  assert.equal(text(2), "bcdefgh");
  assert.deepEqual([backend.saved, backend.restored], [[], 0]);
});

test("handles messages that arrive while a state is restored, also if nothing else is left to decode", async () => {
  const backend = new ScriptedBackend();
  backend.script(0, "a".repeat(9));
  backend.script(1, "b".repeat(9));
  const { decoder, ended, last } = start(backend, [job(1, "1"), job(2, "2")], 3);
  backend.afterStep = (step) => {
    if (step !== 3) return;
    decoder.receive({ type: "pause", id: 1 });
    decoder.receive({ type: "pause", id: 2 });
    decoder.receive({ type: "start", job: job(3, "3", { maxTokens: 2 }) });
    decoder.receive({ type: "start", job: job(4, "4", { maxTokens: 2 }) });
  };
  backend.whileRestoring = () => {
    backend.whileRestoring = () => {};
    decoder.receive({ type: "pause", id: 2 });
    decoder.receive({ type: "resume", id: 1 });
  };
  while (last(3)?.ending === undefined || last(4)?.ending === undefined)
    await new Promise((resolve) => setImmediate(resolve));
  decoder.receive({ type: "resume", id: 2 });
  await ended;
  assert.equal(last(1)?.ending?.type, "stop");
});

test("an account with many answers gets no more prompt turns than an account with one", async () => {
  const backend = new ScriptedBackend();
  const long = "l".repeat(40);
  const flood = [1, 2, 3].map((id) => job(id, long, { accountId: "anna" }));
  const { ended } = start(backend, [...flood, job(4, long, { accountId: "boris" })], 4, { parallel: 4 });
  await ended;
  const turns = backend.steps.flatMap((step) => step.filter(({ tokens }) => tokens.length === 4));
  const lastOfBoris = turns.findLastIndex(({ sequence }) => sequence === 3);
  const others = turns.slice(0, lastOfBoris).filter(({ sequence }) => sequence !== 3);
  assert.equal(turns.length, 40);
  assert.ok(others.length <= 5, `${others.length} turns of the others before the last of Boris's ten`);
  assert.deepEqual(new Set(turns.slice(lastOfBoris + 1).map(({ sequence }) => sequence)).size, 3);
});
