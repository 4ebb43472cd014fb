/** Tokenizers of upstream models: wrong files, prompts that take too long, equal counts. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import type { Message } from "../../src/chat/engine.ts";
import { LoadedTokenizer } from "../../src/engines/upstream/loaded-tokenizer.ts";
import { Tokenizer } from "../../src/engines/upstream/tokenizer.ts";
import { OperatorError } from "../../src/errors.ts";
import { findTokenizerFiles, type TokenizerFiles } from "../../src/model-files/tokenizer-files.ts";
import {
  llamaTokenizerJson,
  llamaTokens,
  writeLlamaTokenizer,
  zephyrTemplate,
} from "../fixtures/llama-tokenizer.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";

const root = await mkdtemp(path.join(tmpdir(), "inkwell-tokenizer-"));
after(() => rm(root, { recursive: true }));
let folders = 0;
const newFolder = () => path.join(root, String(folders++));

async function filesOf(template?: string): Promise<TokenizerFiles> {
  const files = await findTokenizerFiles(await writeLlamaTokenizer(newFolder(), template), root);
  assert.ok(files !== null);
  return files;
}

function said(...contents: string[]): Message[] {
  return contents.map((content, index) => ({ role: index % 2 === 0 ? "user" : "assistant", content }));
}

const warnings: unknown[] = [];
const log = { info: () => {}, warn: (fields: object) => warnings.push(fields), error: () => {} };
const { signal } = new AbortController();

test("counts texts as another implementation of the same tokenizer", async () => {
  const tokenizer = new LoadedTokenizer(await filesOf());
  for (const text of [
    "Hello there",
    "漢字 \u{1f58b} \u0007",
    "\ufdfa".repeat(5),
    " ".repeat(99),
    "a\n\nb",
    "",
  ]) {
    const counted = tokenizer.count(said(text), {});
    assert.deepEqual(
      counted,
      { tokens: llamaTokens(text), specialTokens: 0, steps: 0, isRendered: false },
      text,
    );
  }
});

test("renders the chat template, with the marks and variables of the request", async () => {
  const template =
    "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}{% if enable_thinking == false %}no think{% endif %}";
  const tokenizer = new LoadedTokenizer(await filesOf(template));
  const count = (fields: object) => tokenizer.count(said("Hello"), { ...fields })?.tokens;
  assert.equal(count({}), 1 + llamaTokens("Hello") + 1);
  const variables = { chat_template_kwargs: { enable_thinking: false } };
  assert.equal(count(variables), 1 + llamaTokens("Hello") + 1 + llamaTokens("no think"));
});

test("prefers chat_template.jinja, and the default one of several templates", async () => {
  const files = await filesOf("{{ 'x' * 0 }}");
  const template = path.join(root, "own.jinja");
  await writeFile(template, "{{ messages[0].content }}");
  assert.equal(new LoadedTokenizer({ ...files, template }).count(said("Hello there"), {})?.tokens, 2);
  const config = path.join(root, "several.json");
  const several = [
    { name: "tool_use", template: "{{ messages }}" },
    { name: "default", template: "{{ messages[0].content }}" },
  ];
  await writeFile(config, JSON.stringify({ chat_template: several }));
  assert.equal(new LoadedTokenizer({ ...files, config }).count(said("Hello there"), {})?.tokens, 2);
});

test("normalises the messages until the template accepts them, or returns null", async () => {
  const strict =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}{{ m.content }}{% endfor %}";
  const twice: Message[] = [
    { role: "user", content: "a" },
    { role: "user", content: "b" },
  ];
  const counted = new LoadedTokenizer(await filesOf(strict)).count(twice, {});
  assert.equal(counted?.steps, 1);
  const never = new LoadedTokenizer(await filesOf("{{ raise_exception('never') }}"));
  assert.equal(never.count(twice, {}), null);
});

test("counts special tokens in messages with the bytes that they have as text", async () => {
  const tokenizer = new LoadedTokenizer(await filesOf(zephyrTemplate));
  assert.equal(tokenizer.count(said("a</s>b<unk>"), {})?.specialTokens, 4 + 5);
});

test("refuses files that are missing or that cannot count, and names them", async () => {
  const files = await filesOf();
  const wrong = async (content: string, pattern: RegExp) => {
    const tokenizer = `${newFolder()}.json`;
    await writeFile(tokenizer, content);
    const starting = Tokenizer.start({ files: { ...files, tokenizer }, log });
    await assert.rejects(starting, (error) => {
      assert.ok(error instanceof OperatorError, String(error));
      assert.ok(error.message.includes(tokenizer), error.message);
      assert.match(error.message, pattern);
      return true;
    });
  };
  await wrong("{", /JSON/);
  await wrong("[]", /no JSON object/);
  await wrong("{}", /model/);
  const { model, ...rest } = llamaTokenizerJson();
  const empty = { ...rest, added_tokens: [], model: { ...model, vocab: { "<unk>": 0 }, merges: [] } };
  await wrong(JSON.stringify({ ...empty, model: { ...empty.model, unk_token: null } }), /incomplete/);
  const template = path.join(root, "broken.jinja");
  await writeFile(template, "{% for %}");
  await assert.rejects(Tokenizer.start({ files: { ...files, template }, log }), /broken\.jinja/);
});

test("refuses a file that does not load in time, or whose thread dies", async () => {
  const files = await filesOf();
  const refused = async (content: object, message: RegExp, loadMsMax = 60_000) => {
    const tokenizer = `${newFolder()}.json`;
    await writeFile(tokenizer, JSON.stringify(content));
    const starting = Tokenizer.start({ files: { ...files, tokenizer }, log, loadMsMax });
    await assert.rejects(starting, (error) => {
      assert.ok(error instanceof OperatorError, String(error));
      assert.match(error.message, message);
      return true;
    });
  };
  const json = llamaTokenizerJson();
  // Takes longer than the age of the universe.
  const pattern = { Regex: "(?:(?:.+)+)+#" };
  const slow = { type: "Split", pattern, behavior: "Isolated", invert: false };
  await refused({ ...json, pre_tokenizer: slow }, /did not load within 0\.5 s/, 500);
  await refused({ ...json, more: Array(4_300_000).fill(1) }, /too many values/);
});

test("counts in a thread, and leaves very large prompts uncounted", () =>
  unlessStalled(async () => {
    const tokenizer = await Tokenizer.start({ files: await filesOf(), log });
    try {
      const count = (text: string) =>
        tokenizer.count({ accountId: "a", messages: said(text), fields: {} }, signal);
      const texts = Array.from({ length: 50 }, (_, n) => `${n} words of the sea`);
      const counted = await Promise.all(texts.map(count));
      assert.deepEqual(
        counted.map((each) => each?.tokens),
        texts.map(llamaTokens),
      );
      assert.equal(await count("x".repeat(300_000)), null);
      const aborted = AbortSignal.abort();
      assert.equal(
        await tokenizer.count({ accountId: "a", messages: said("Hi"), fields: {} }, aborted),
        null,
      );
    } finally {
      await tokenizer.close();
    }
  }));

test("replaces a thread that takes too long, and counts again", async () => {
  const loops =
    "{% for a in range(100000) %}{% for b in range(100000) %}{{ messages[0].content }}{% endfor %}{% endfor %}";
  const slow = `{% if messages[0].content == 'slow' %}${loops}{% else %}{{ messages[0].content }}{% endif %}`;
  const tokenizer = await Tokenizer.start({ files: await filesOf(slow), log, jobMsMax: 300 });
  try {
    const count = (text: string) =>
      tokenizer.count({ accountId: "a", messages: said(text), fields: {} }, signal);
    assert.equal(await count("slow"), null);
    assert.match(JSON.stringify(warnings), /too long/);
    await until("the next thread counts", async () => (await count("Hello there"))?.tokens === 2);
  } finally {
    await tokenizer.close();
  }
});
