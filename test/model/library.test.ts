/**
 * The engine compared with node-llama-cpp's own loop and detokenizer, on the same file: the
 * miniature, or the model in INKWELL_TEST_MODEL.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { getLlama, LlamaLogLevel, type LlamaModel, type Token } from "node-llama-cpp";
import type { Message } from "../../src/chat/engine.ts";
import { type LoadedBackend, loadBackend } from "../../src/engines/llama/decode/load.ts";
import { PromptPlanner } from "../../src/engines/llama/prompt/planner.ts";
import { ask, miniaturePath, startMiniature } from "../fixtures/llama-engine.ts";
import { releaseTest } from "../fixtures/thorough.ts";

const modelPath = process.env.INKWELL_TEST_MODEL ?? miniaturePath;
const contextWindow = 1024;
const messages: Message[] = [{ role: "user", content: "What does the sea say?\n\n  Two words, é 🌊." }];

let model: LlamaModel;
let loaded: LoadedBackend;

before(async () => {
  const llama = await getLlama({
    gpu: false,
    build: "never",
    progressLogs: false,
    maxThreads: 1,
    logLevel: LlamaLogLevel.error,
  });
  model = await llama.loadModel({ modelPath });
  loaded = await loadBackend(
    { modelPath, contextWindow, parallel: 1, pausedBytesMax: 0, threads: 1, gpu: false },
    () => {},
  );
});

after(() => model.llama.dispose());

async function plan(conversation: Message[]): Promise<Uint32Array> {
  const planner = new PromptPlanner({ ...loaded, warn: () => {} });
  const { prompt } = await planner.plan(conversation, {});
  assert.ok(prompt !== null);
  return prompt.tokens;
}

/** The library's type for tokens; every number of the vocabulary is one. */
function tokensOf(numbers: Iterable<number>): Token[] {
  const all = [...model.iterateAllTokens()];
  return [...numbers].flatMap((number) => all[number] ?? []);
}

test("every token's bytes equal llama.cpp's text", () => {
  for (const token of model.iterateAllTokens()) {
    const text = Buffer.from(loaded.vocabulary.bytesOf(token)).toString();
    // A token that is part of a character is replaced in a string, here and there.
    if (text.includes("\ufffd")) continue;
    const written = model.detokenize([token]);
    assert.equal(loaded.vocabulary.dropFirstSpace ? text.replace(/^ /, "") : text, written, `token ${token}`);
  }
});

test("a prompt has the same tokens as the whole rendered text", async () => {
  const tokens = tokensOf(await plan(messages));
  const rendered = model.detokenize(tokens, true);
  assert.deepEqual([...model.tokenize(rendered, true)], tokens);
  assert.ok(rendered.includes(messages[0]?.content ?? ""));
});

test("greedy answers equal those of the library's own loop", async () => {
  const prompt = tokensOf(await plan(messages));
  const context = await model.createContext({ contextSize: contextWindow, threads: 1 });
  const expected: Token[] = [];
  for await (const token of context.getSequence().evaluate(prompt, { temperature: 0 })) {
    expected.push(token);
    if (expected.length === 40) break;
  }
  const engine = await startMiniature({ modelPath, contextWindow });
  const answer = await ask(engine, messages, { maxTokens: 40, sampling: { temperature: 0 } });
  await engine.close();
  assert.equal(answer.usage.promptTokens, prompt.length);
  assert.equal(answer.usage.completionTokens, expected.length);
  assert.equal(answer.text, model.detokenize(expected));
});

/** Evaluates a text up to a position together, and returns the results of later tokens. */
async function evaluate(threads: number, from: number, to: number): Promise<string[]> {
  const options = { modelPath, contextWindow, parallel: 1, pausedBytesMax: 0, threads, gpu: false } as const;
  const { backend } = await loadBackend(options, () => {});
  const text = Uint32Array.from({ length: to }, (_, position) => (7 * position) % 300);
  const chunk = backend.chunkTokens;
  for (let start = 0; start < from; start += chunk) {
    const tokens = text.subarray(start, Math.min(start + chunk, from));
    await backend.decode([{ sequence: 0, position: start, tokens, sample: false }], true);
  }
  const found: string[] = [];
  for (let position = from; position < to; position++) {
    const tokens = text.subarray(position, position + 1);
    const [logits = -1] = await backend.decode([{ sequence: 0, position, tokens, sample: true }], true);
    found.push(JSON.stringify(await backend.candidates(logits, 0, 20)));
  }
  return found;
}

releaseTest(
  "the result of a single token depends on the number of threads from position 256 on",
  async () => {
    const from = 240;
    const one = await evaluate(1, from, 280);
    const two = await evaluate(2, from, 280);
    const first = from + one.findIndex((found, index) => found !== two[index]);
    assert.ok(first >= 256, `different at ${first}: NativeBackend gives repeatable tokens all cores there`);
  },
);
