/** One message for each unusable model file or setting. Tests of gguf.ts cover the header. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startLlamaEngine } from "../../src/engines/llama/process/engine.ts";
import { OperatorError } from "../../src/errors.ts";
import { llamaOptions, miniaturePath } from "../fixtures/llama-engine.ts";

let folder = "";
let miniature: Buffer = Buffer.alloc(0);

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "inkwell-model-file-"));
  miniature = await readFile(miniaturePath);
});

after(() => rm(folder, { recursive: true }));

async function refused(modelPath: string, message: RegExp): Promise<void> {
  await assert.rejects(startLlamaEngine(llamaOptions({ modelPath })), (error: unknown) => {
    assert.ok(error instanceof OperatorError);
    assert.ok(error.message.includes(modelPath), error.message);
    assert.match(error.message, message);
    return true;
  });
}

async function refusedContent(content: Buffer | string, message: RegExp): Promise<void> {
  const path = join(folder, "model.gguf");
  await writeFile(path, content);
  await refused(path, message);
}

/** The miniature with some bytes changed. */
function changed(change: (content: Buffer) => void): Buffer {
  const content = Buffer.from(miniature);
  change(content);
  return content;
}

test("refuses a missing or truncated file before it starts a process", async () => {
  await refused(join(folder, "missing.gguf"), /there is no such file/);
  await refusedContent(miniature.subarray(0, miniature.length - 10_000), /cut short: its tensors need/);
});

test("refuses an architecture that llama.cpp does not know", async () => {
  const content = changed((bytes) => {
    const key = "general.architecture";
    // After the key: four bytes of type, eight of length, then the name.
    bytes.write("lxama", bytes.indexOf(key) + key.length + 12, "latin1");
  });
  await refusedContent(content, /unknown model architecture: 'lxama'; use a model that/);
});

for (const [gpu, wayOut] of [
  ["cuda", /npm run gpu .*gpu: auto/],
  ["vulkan", /Vulkan driver.*gpu: auto/],
  ["metal", /Apple silicon.*gpu: auto/],
] as const) {
  test(`gpu: ${gpu} on a machine without it names the GPU as the problem`, async (t) => {
    const started = startLlamaEngine(llamaOptions({ gpu })).then(
      (engine) => engine.close(),
      (error: unknown) => error,
    );
    const error = await started;
    if (error === undefined) return t.skip(`this machine has ${gpu}`);
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, new RegExp(`cannot be run with gpu: ${gpu} here`));
    assert.match(error.message, wayOut);
    assert.doesNotMatch(error.message, /damaged|fetch the file/);
  });
}
