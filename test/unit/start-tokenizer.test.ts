/** The tokenizer of an upstream model at a start and at a reload. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { pino } from "pino";
import { pullModel, startEngine } from "../../src/app/models.ts";
import { OperatorError } from "../../src/errors.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { load, price, problemsOf } from "../fixtures/configuration.ts";
import { writeLlamaTokenizer } from "../fixtures/llama-tokenizer.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";

const root = await mkdtemp(path.join(tmpdir(), "inkwell-start-tokenizer-"));
after(() => rm(root, { recursive: true }));

function yamlOf(tokenizer: string): string {
  return `models_dir: ${root}\nmodels: { big: { engine: upstream, url: "http://127.0.0.1:9/v1", model: m, tokenizer: ${tokenizer}, ${price} } }`;
}

/** Nothing listens at this hub. */
const env = { HF_ENDPOINT: "http://127.0.0.1:9" };

async function start(tokenizer: string, orMiniature: boolean) {
  const config = load(yamlOf(tokenizer), env);
  const [model] = config.models;
  assert.ok(model !== undefined);
  const written: string[] = [];
  const { engine } = await startEngine(model, {
    config,
    queueMax: () => 1,
    stderr: { write: (text: string) => void written.push(text) },
    logger: pino({ enabled: false }),
    metrics: new Metrics(),
    orMiniature,
    probeEveryMs: 15_000,
    signal: new AbortController().signal,
  });
  const messages = [{ role: "user", content: "Hello there" }] as const;
  const prompt = { accountId: "a", messages, reasoning: {} };
  const { promptTokensMax } = await engine.prepare(prompt, new AbortController().signal);
  await engine.close();
  return { promptTokensMax, written: written.join("") };
}

const folder = await writeLlamaTokenizer(path.join(root, "own"), "{{ messages[0].content }}");

test("counts prompts with the tokenizer of the configuration", () =>
  unlessStalled(async () => {
    const { promptTokensMax, written } = await start(folder, true);
    assert.deepEqual([promptTokensMax, written], [2 + 16, ""]);
  }));

test("starts without a tokenizer that cannot be downloaded, and says how to get it", async () => {
  const { promptTokensMax, written } = await start("hf:owner/name", true);
  assert.equal(promptTokensMax, 11 + 16 + 512);
  assert.match(written, /tokenizer hf:owner\/name of big could not be downloaded: .*refused/);
  assert.match(written, /HF_ENDPOINT/);
});

test("refuses a reload and a pull of a tokenizer that cannot be downloaded", async () => {
  const named = (error: unknown) =>
    error instanceof OperatorError && /hf:owner\/name of big could not be downloaded/.test(error.message);
  await assert.rejects(start("hf:owner/name", false), named);
  const config = load(yamlOf("hf:owner/name"), env);
  await assert.rejects(pullModel(config, "big", { stderr: { write: () => {} } }), named);
  const own = load(yamlOf(folder), env);
  const pulled = await pullModel(own, "big", { stderr: { write: () => {} } });
  assert.equal(pulled, path.join(folder, "tokenizer.json"));
});

test("does not start with a tokenizer that is missing or invalid, and names the setting", async () => {
  const broken = path.join(root, "broken.json");
  await writeFile(broken, "{");
  for (const tokenizer of [path.join(root, "missing.json"), broken]) {
    await assert.rejects(start(tokenizer, true), (error) => {
      assert.ok(error instanceof OperatorError, String(error));
      assert.match(error.message, /^inkwell\.yaml:2: models\.big\.tokenizer: tokenizer .*\.json/);
      return true;
    });
  }
});

test("refuses a tokenizer that is not understood, where it stands in the file", () => {
  const [problem] = problemsOf(yamlOf("https://hub.example/tokenizer.json"), env);
  assert.match(problem ?? "", /inkwell\.yaml:2.*models\.big\.tokenizer: tokenizer https:.*is not understood/);
});
