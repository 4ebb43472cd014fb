/**
 * Hostile prompts, ten thousand before a release, go through the pipeline, the ledger and the
 * counting of upstream prompts. An honest upstream counts them with real tokenizers. No account is
 * overdrawn, no token stays uncharged, and every prompt is charged as counted.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Catalog } from "../../src/chat/catalog.ts";
import type {
  Engine,
  EngineEvent,
  Generation,
  Message,
  PreparedPrompt,
  Prompt,
} from "../../src/chat/engine.ts";
import { type Charge, generate } from "../../src/chat/generate.ts";
import { PromptCounter } from "../../src/engines/upstream/prompt-counter.ts";
import { ServerPool } from "../../src/engines/upstream/server-pool.ts";
import { Refusal } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { hostilePrompt } from "../fixtures/hostile-prompts.ts";
import { adjust, promote } from "../fixtures/kernel-examples.ts";
import { bench } from "../fixtures/ledger-bench.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { llamaTokens, zephyrPrompt } from "../fixtures/llama-tokenizer.ts";
import { randomOf } from "../fixtures/random.ts";
import { isThorough } from "../fixtures/thorough.ts";

const log = { info: () => {}, warn: () => {}, error: () => {} };
const contextWindow = 1_000_000;

type Counting = (messages: readonly Message[]) => number;

/** A default system prompt, as some templates have it. */
const systemPrompt = "You are a helpful assistant and answer in the language of the user. ".repeat(25);
const systemTokens = llamaTokens(`<|system|>\n${systemPrompt}</s>\n`);

function tokensOf(messages: readonly Message[], form: (text: string) => string): number {
  const hasSystem = messages.some(({ role }) => role === "system");
  return 1 + (hasSystem ? 0 : systemTokens) + llamaTokens(form(zephyrPrompt(messages)));
}

/** Ways in which a server may count. */
const countings: Counting[] = [
  (messages) => tokensOf(messages, (text) => text),
  (messages) => tokensOf(messages, (text) => text.normalize("NFC")),
  (messages) => tokensOf(messages, (text) => text.normalize("NFKC")),
  // A byte-level vocabulary without a single merge, for texts; marks are one token.
  (messages) =>
    messages.reduce((sum, { content }) => sum + 6 + Buffer.byteLength(content.normalize("NFKC")), 3),
];

/** Counts as an upstream engine does, and answers with an honest usage. */
class HonestEngine implements Engine {
  readonly contextWindow = contextWindow;
  readonly state = "ready";
  readonly #counter: PromptCounter;
  countAs: Counting = () => 1;
  /** Tokens of the last prompt. */
  promptTokens = 0;

  constructor(counter: PromptCounter) {
    this.#counter = counter;
  }

  async prepare({ messages }: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    const { tokens, bound, forms } = await this.#counter.count({ messages, template: {} }, signal);
    assert.ok(bound !== null);
    this.promptTokens = this.countAs(forms.current);
    return {
      promptTokens: tokens,
      bound,
      generate: ({ paidTokens }) => this.#generation(Math.min(paidTokens, 3)),
    };
  }

  async close(): Promise<void> {}

  #generation(completionTokens: number): Generation {
    const { promptTokens } = this;
    const usage = { promptTokens, cachedTokens: 0, completionTokens, reasoningTokens: 0, estimated: false };
    return {
      usage,
      started: true,
      extendBudget: () => {},
      stop: () => Promise.resolve(),
      async *[Symbol.asyncIterator](): AsyncGenerator<EngineEvent[]> {
        yield [{ type: "end", finishReason: "stop" }];
      },
    };
  }
}

async function runHostile(prompts: number, seed: number) {
  const url = "http://127.0.0.1:9/v1";
  const times = { connectMs: 1000, headersMs: 1000, idleMs: 1000 };
  const pool = new ServerPool({
    urls: [url],
    key: null,
    parallel: 1,
    reserved: 0,
    queueMax: () => 1,
    times,
    log,
  });
  const counter = new PromptCounter({
    pool,
    kind: null,
    model: "m",
    contextWindow,
    templateTokens: 512,
    log,
  });
  const engine = new HonestEngine(counter);
  const made = await bench(planOf("none", 0, 0));
  const ledger = new Ledger(made.store, { retriesMs: [], latePauseMs: 1 });
  const price = { prompt: 3, completion: 7 };
  const catalog = new Catalog([{ id: "model", engine, price, outputTokensMax: null, created: 0 }]);
  const caller = { accountId: "ada", plan: planOf("none", 0, 0), key: keyOf("key", "ada") };
  const random = randomOf(seed);
  let refused = 0;
  for (let n = 0; n < prompts; n += 1) {
    const messages = hostilePrompt(random);
    engine.countAs = countings[n % countings.length] ?? (() => 1);
    const bytes = messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 600);
    // Balances around the price of the prompt, so that every edge of a hold is met.
    const amount = random(price.prompt * (2 * bytes + 100)) - made.buckets()[2];
    if (amount > 0) await made.apply(promote(`a${n}`, amount));
    if (amount < 0) await made.apply(adjust(`a${n}`, -amount));
    const charges: Charge[] = [];
    const record = {
      requestId: `r${n}`,
      model: null,
      work: null,
      charged: (charge: Charge) => charges.push(charge),
      unsettled: (reason: unknown) => assert.fail(String(reason)),
    };
    const asked = { model: "model", messages, sampling: { stop: [] }, reasoning: {}, stream: false };
    const before = made.buckets()[2];
    try {
      for await (const _ of generate(
        { catalog, ledger, holdTtlMs: 60_000 },
        caller,
        asked,
        record,
        new AbortController().signal,
      ));
    } catch (error) {
      assert.ok(error instanceof Refusal && error.code === "insufficient_credits", String(error));
      assert.equal(made.buckets()[2], before);
      refused += 1;
      continue;
    }
    const [charge] = charges;
    const what = `prompt ${n} of seed ${seed}: ${JSON.stringify(messages).slice(0, 300)}`;
    assert.deepEqual(charge?.uncharged, { promptTokens: 0, completionTokens: 0 }, what);
    assert.deepEqual([charge?.shortfallMicro, charge?.usage.promptTokens], [0, engine.promptTokens], what);
    assert.equal(made.buckets()[2], before - (charge?.costMicro ?? 0), what);
  }
  await ledger.close(0);
  await pool.close();
  return refused;
}

test("hostile prompts leave no shortfall", { timeout: 300_000 }, async () => {
  const prompts = isThorough ? 10_000 : 500;
  const refused = await runHostile(prompts, 42);
  assert.ok(refused > prompts / 20 && refused < 0.9 * prompts, `${refused} were refused`);
});
