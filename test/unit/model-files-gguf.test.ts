/** The check of a model file by its header. */
import assert from "node:assert/strict";
import { mkdtemp, open, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { OperatorError } from "../../src/errors.ts";
import { checkGguf, checkModel } from "../../src/model-files/gguf.ts";
import { miniaturePath } from "../../tools/make-miniature.ts";
import { share } from "../fixtures/thorough.ts";

const folder = await mkdtemp(join(tmpdir(), "inkwell-gguf-"));
after(() => rm(folder, { recursive: true, force: true }));
const whole = await readFile(miniaturePath);

async function fileOf(content: Buffer): Promise<string> {
  const path = join(folder, "model.gguf");
  await writeFile(path, content);
  return path;
}

async function assertRefused(path: string, message: RegExp): Promise<void> {
  await assert.rejects(checkGguf(path), (error) => {
    assert.ok(error instanceof OperatorError, String(error));
    assert.match(error.message, message);
    assert.ok(error.message.includes(path), "the message names the file");
    return true;
  });
}

function changed(at: number, bytes: Buffer): Buffer {
  const content = Buffer.from(whole);
  bytes.copy(content, at);
  return content;
}

test("accepts a complete model and returns its size", async () => {
  assert.deepEqual(await checkGguf(miniaturePath), { sizeBytes: whole.length });
});

test("refuses a truncated file, wherever it ends", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: whole.length - 33 }), async (length) => {
      await assertRefused(
        await fileOf(whole.subarray(0, length)),
        /empty|cut short|ends in the middle|begins with/,
      );
    }),
    { numRuns: share(40) },
  );
  // The last 32 bytes may be padding, which is not needed.
  await assertRefused(
    await fileOf(whole.subarray(0, whole.length - 64)),
    /cut short: its tensors need \d+ bytes and it has \d+/,
  );
});

test("distinguishes a missing file, a folder and files of other types", async () => {
  await assertRefused(join(folder, "none.gguf"), /there is no such file/);
  await assertRefused(folder, /not a file|directory/);
  await assertRefused(
    await fileOf(Buffer.from("PK\u0003\u0004")),
    /begins with "PK\\u0003\\u0004" where a GGUF file has "GGUF"/,
  );
  await assertRefused(
    await fileOf(Buffer.from("<!DOCTYPE html><html><body>Not found")),
    /web page.*download it again/,
  );
  await assertRefused(
    await fileOf(Buffer.from("version https://git-lfs.github.com/spec/v1\noid sha256:00")),
    /Git LFS pointer.*git lfs pull/,
  );
  await assertRefused(await fileOf(changed(8, Buffer.alloc(8))), /only a vocabulary, no weights/);
  await assertRefused(await fileOf(Buffer.alloc(0)), /it is empty/);
  await assertRefused(await fileOf(changed(4, Buffer.from([1]))), /GGUF version 1/);
  await assertRefused(await fileOf(changed(4, Buffer.from([0, 0, 0, 3]))), /big-endian/);
});

test("refuses impossible numbers in a header without reading further", async () => {
  await assertRefused(await fileOf(changed(8, Buffer.alloc(8, 0xff))), /impossible length/);
  await assertRefused(
    await fileOf(changed(8, Buffer.from([0, 0, 0, 0, 1, 0, 0, 0]))),
    /announces 4294967296 tensors/,
  );
  await assertRefused(await fileOf(changed(24, Buffer.from([0, 0, 0, 0, 0, 16, 0, 0]))), /impossible name/);
});

const u32 = (value: number) => Buffer.from(Uint32Array.of(value).buffer);
const u64 = (value: number) => Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
const sized = (text: string) => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)]);
const stringType = u32(8);
const arrayType = u32(9);

/** A header with these metadata entries and tensors. Zeros follow, which take no space on disk. */
async function header(
  { entries = [], tensors = [] }: { entries?: readonly Buffer[]; tensors?: readonly Buffer[] },
  sizeBytes = 1_000_000_000,
): Promise<string> {
  const counts = [u64(Math.max(1, tensors.length)), u64(entries.length)];
  const path = await fileOf(Buffer.concat([Buffer.from("GGUF"), u32(3), ...counts, ...entries, ...tensors]));
  await truncate(path, sizeBytes);
  return path;
}

test("refuses a header that would fill the memory of a reader", async () => {
  const name = sized("n".repeat(65_535));
  const names = Array.from({ length: 50 }, () => Buffer.concat([name, u32(4), u32(1)]));
  await assertRefused(await header({ entries: names }), /impossible name/);
  await assertRefused(await header({ tensors: [name] }), /impossible name/);
  const architecture = Buffer.concat([sized("general.architecture"), stringType, name]);
  await assertRefused(await header({ entries: [architecture] }), /impossible name/);
  const many = Array.from({ length: 10_001 }, (_, n) => Buffer.concat([sized(`n${n}`), u32(4), u32(1)]));
  await assertRefused(await header({ entries: many }), /announces 1 tensors and 10001 entries/);
  const text = Buffer.concat([sized("a"), stringType, u64(200_000_000)]);
  await assertRefused(await header({ entries: [text] }), /header has more than 134217728 bytes/);
  const list = (length: number, type: Buffer) => Buffer.concat([sized("a"), arrayType, type, u64(length)]);
  await assertRefused(await header({ entries: [list(200_000_000, u32(4))] }), /more than 134217728 bytes/);
  for (const type of [stringType, arrayType]) {
    await assertRefused(await header({ entries: [list(4_000_001, type)] }), /array of 4000001 items/);
  }
});

test("refuses a tensor that no file can contain, whatever its type", async () => {
  const enormous = Buffer.concat(Array.from({ length: 8 }, () => u64(2 ** 52)));
  const tensor = (type: number, offset = 0) =>
    Buffer.concat([sized("t"), u32(8), enormous, u32(type), u64(offset)]);
  await assertRefused(await header({ tensors: [tensor(0)] }), /impossible tensor/);
  // Nothing is known about the size of a tensor of an unknown type, but its start must exist.
  const rest = Buffer.concat([sized("u"), u32(1), u64(2_000_000_000), u32(24), u64(0)]);
  await assertRefused(
    await header({ tensors: [tensor(77), rest] }),
    /cut short: its tensors need 2000000\d+/,
  );
});

/** The miniature with a `general.alignment`, in the place of a key of the same length. */
function aligned(alignment: number, type = 4): Buffer {
  const content = Buffer.from(whole);
  const at = content.indexOf("llama.block_count");
  content.write("general.alignment", at);
  content.writeUInt32LE(type, at + 17);
  content.writeUInt32LE(alignment, at + 21);
  return content;
}

test("refuses an alignment that llama.cpp cannot use, also in a truncated file", async () => {
  await checkGguf(await fileOf(aligned(32)));
  for (const alignment of [0, 1, 4, 24, 33, 2 ** 31]) {
    const refused = new RegExp(`general\\.alignment is ${alignment}; it must be a power of two from 8`);
    await assertRefused(await fileOf(aligned(alignment)), refused);
  }
  await assertRefused(await fileOf(aligned(0).subarray(0, whole.length - 64)), /general\.alignment is 0/);
  await assertRefused(await fileOf(aligned(32, 5)), /general\.alignment is of type 5, not u32/);
});

test("checks every part of a split model and requires the path of the first", async () => {
  const part = (number: number) => join(folder, `big-0000${number}-of-00003.gguf`);
  await writeFile(part(1), whole);
  await writeFile(part(2), whole);
  await assert.rejects(
    checkModel(part(1)),
    /model file \S+big-00003-of-00003\.gguf cannot be opened: there is no/,
  );
  await writeFile(part(3), whole.subarray(0, whole.length - 64));
  await assert.rejects(checkModel(part(1)), /big-00003-of-00003\.gguf cannot be used: it is cut short/);
  await writeFile(part(3), whole);
  assert.equal((await checkModel(part(1))).sizeBytes, 3 * whole.length);
  await assert.rejects(
    checkModel(part(2)),
    /is a later part of a model; name the first: \S+big-00001-of-00003\.gguf$/,
  );
  assert.equal((await checkModel(miniaturePath)).sizeBytes, whole.length);
});

test("reports damage to a header as an operator error, or accepts the file", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 2000 }),
      fc.uint8Array({ minLength: 1, maxLength: 8 }),
      async (at, bytes) => {
        await checkGguf(await fileOf(changed(at, Buffer.from(bytes)))).catch((error: unknown) => {
          assert.ok(error instanceof OperatorError, String(error));
        });
      },
    ),
    { numRuns: share(100) },
  );
});

test("reads only the header of a large file", async () => {
  const path = await fileOf(whole);
  // 40 GB without content: the file system allocates no space for them.
  await truncate(path, 40_000_000_000);
  const summary = await checkGguf(path);
  assert.equal(summary.sizeBytes, 40_000_000_000);
  const file = await open(path);
  try {
    assert.ok((await file.stat()).blocks * 512 < 10_000_000);
  } finally {
    await file.close();
  }
});
