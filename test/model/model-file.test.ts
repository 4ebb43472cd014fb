/** Model files that cannot be used: one message each of what, where and what to do. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startLlamaEngine } from "../../src/engines/llama/supervisor.ts";
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

test("a file that does not exist, or is a folder", async () => {
  await refused(join(folder, "missing.gguf"), /does not exist; correct the path/);
  await refused(folder, /is not a file/);
});

test("what is no GGUF file at all is called what it is", async () => {
  await refusedContent("PK\u0003\u0004 something else, long enough for a header", /is not a GGUF file/);
  await refusedContent(
    "version https://git-lfs.github.com/spec/v1\noid sha256:00",
    /Git LFS pointer.*git lfs pull/,
  );
  await refusedContent("<!DOCTYPE html><html><body>Not found", /web page.*fetch the file again/);
  await refusedContent("", /is not a GGUF file/);
});

test("a header of another version, without tensors, or cut off", async () => {
  await refusedContent(
    changed((content) => content.writeUInt32LE(1, 4)),
    /has GGUF version 1; versions 2 and 3/,
  );
  await refusedContent(
    changed((content) => content.writeBigUInt64LE(0n, 8)),
    /holds no tensors/,
  );
  await refusedContent(miniature.subarray(0, 20), /cut off in its header/);
});

test("a file cut short in its metadata or in its weights", async () => {
  await refusedContent(miniature.subarray(0, 8000), /damaged or cut short.*fetch the file again/);
  await refusedContent(
    miniature.subarray(0, miniature.length - 10_000),
    /damaged or cut short \(tensor .*fetch the file again/,
  );
});

test("an architecture that llama.cpp does not know", async () => {
  const content = changed((bytes) => {
    const key = "general.architecture";
    // After the key: four bytes of type, eight of length, then the name.
    bytes.write("lxama", bytes.indexOf(key) + key.length + 12, "latin1");
  });
  await refusedContent(content, /unknown model architecture: 'lxama'; use a model that/);
});
