/**
 * Texts that overflow the stack of llama.cpp's tokenizers in one piece (ggml-org/llama.cpp#27783).
 * The child survives them, and other answers continue meanwhile.
 */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { begin, collect, miniaturePath, prepare, startMiniature } from "../fixtures/llama-engine.ts";
import { some } from "../fixtures/thorough.ts";

const folder = await mkdtemp(join(tmpdir(), "inkwell-long-text-"));
after(() => rm(folder, { recursive: true, force: true }));

/** Puts a text of another length in place of one of the header's, and returns what it was. */
function exchange(content: Buffer, key: string, change: (old: string) => string): Buffer {
  // A name; four bytes of type; eight of length; the text.
  const at = content.indexOf(key) + key.length + 4;
  const end = at + 8 + Number(content.readBigUInt64LE(at));
  const text = Buffer.from(change(content.toString("utf8", at + 8, end)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([content.subarray(0, at), length, text, content.subarray(end)]);
}

/**
 * The miniature with another way of splitting text into words. Its description gives the room, so
 * that nothing else moves.
 */
async function splittingLike(kind: string): Promise<string> {
  let content: Buffer = await readFile(miniaturePath);
  const size = content.length;
  content = exchange(content, "tokenizer.ggml.pre", () => kind);
  const more = content.length - size;
  content = exchange(content, "general.description", (old) =>
    more > 0 ? old.slice(more) : old.padEnd(old.length - more),
  );
  assert.equal(content.length, size);
  const path = join(folder, `${kind}.gguf`);
  await writeFile(path, content);
  return path;
}

/**
 * A body of the largest size; most are refused by their size alone, but not blanks, which a
 * template may take away.
 */
const bodyBytes = 4 * 1024 * 1024;
/** Few enough that they could fit the window, and twice as many as overflow the stack. */
const runBytes = 60_000;
const nasty = ["a", "A", "漢", "😀", ".", "7", " ", "\n", "\r\n", "\n/", "é", "aA", "e\u0301"];

function repeated(unit: string, bytes: number): string {
  return unit.repeat(Math.floor(bytes / Buffer.byteLength(unit)));
}

for (const kind of some(["gpt-4o", "tekken", "deepseek-llm", "youtu"], 4)) {
  test(`${kind}: long runs of one character do not end the process`, async (t) => {
    const engine = await startMiniature({
      modelPath: await splittingLike(kind),
      contextWindow: 8192,
      parallel: 2,
      // The first ones may take long on a busy machine.
      restartWaitMs: 60_000,
    });
    t.after(() => engine.close());
    const { pid } = engine;
    const running = await begin(engine, "Something endless, please.", {
      account: "boris",
      maxTokens: 1_000_000,
    });
    const answer = collect(running);
    answer.catch(() => {});
    let wentOn = 0;
    for (const unit of nasty) {
      const before = running.usage.completionTokens;
      // How a text is split into words makes no difference to its size.
      const isBody = kind === "gpt-4o" || unit.trim() === "";
      for (const bytes of isBody ? [bodyBytes, runBytes] : [runBytes]) {
        const { promptTokens } = await prepare(engine, repeated(unit, bytes));
        assert.ok(promptTokens >= 8192, `${bytes} bytes of ${JSON.stringify(unit)}`);
      }
      assert.ok((await prepare(engine, unit.repeat(2500))).promptTokens > 0, JSON.stringify(unit));
      if (running.usage.completionTokens > before) wentOn += 1;
    }
    // A busy machine may be done with one of them before the next token of the other request.
    assert.ok(wentOn > nasty.length / 2, `others went on beside ${wentOn} of ${nasty.length} prompts only`);
    await running.stop();
    assert.ok(running.usage.completionTokens > 0);
    assert.equal(engine.pid, pid, "the same process from the beginning to the end");
  });
}
