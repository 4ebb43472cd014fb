/**
 * Checks from its header that a file is a complete GGUF model. Tensors are not read, so the check
 * is quick at any size.
 *
 * A file that passes has a valid header of limited size, which the engine's process can read into
 * memory, and is long enough for all of its tensors. The check itself keeps a few megabytes of any
 * header. It does not detect wrong content, which a checksum does, or an unknown
 * architecture, which the engine reports. No library does this check:
 * docs/decisions/0038-libraries.md.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
import { type FileHandle, open } from "node:fs/promises";
import { codeOf, messageOf, OperatorError } from "../errors.ts";

interface GgufSize {
  sizeBytes: number;
}

/** Far above every real file. A larger number means a damaged header. */
const metadataEntriesMax = 10_000;
const tensorsMax = 1_000_000;
const dimensionsMax = 8;
const arrayDepthMax = 4;
/** For names of entries and tensors, and for the architecture. llama.cpp allows 63 for tensors. */
const nameBytesMax = 255;
/** A vocabulary of 262,144 tokens with its merges has 15 MB. */
const headerBytesMax = 128 * 1024 * 1024;
/** For strings and arrays in one array. */
const arrayItemsMax = 4_000_000;
/** llama.cpp requires a power of two. */
const alignmentMax = 1 << 20;
const defaultAlignment = 32;

/** Weights and bytes of a block, by the type number of ggml. */
const blockSizes: Record<number, readonly [weights: number, bytes: number]> = {
  0: [1, 4], // f32
  1: [1, 2], // f16
  2: [32, 18], // q4_0
  3: [32, 20], // q4_1
  6: [32, 22], // q5_0
  7: [32, 24], // q5_1
  8: [32, 34], // q8_0
  9: [32, 36], // q8_1
  10: [256, 84], // q2_k
  11: [256, 110], // q3_k
  12: [256, 144], // q4_k
  13: [256, 176], // q5_k
  14: [256, 210], // q6_k
  15: [256, 292], // q8_k
  16: [256, 66], // iq2_xxs
  17: [256, 74], // iq2_xs
  18: [256, 98], // iq3_xxs
  19: [256, 50], // iq1_s
  20: [32, 18], // iq4_nl
  21: [256, 110], // iq3_s
  22: [256, 82], // iq2_s
  23: [256, 136], // iq4_xs
  24: [1, 1], // i8
  25: [1, 2], // i16
  26: [1, 4], // i32
  27: [1, 8], // i64
  28: [1, 8], // f64
  29: [256, 56], // iq1_m
  30: [1, 2], // bf16
  34: [256, 54], // tq1_0
  35: [256, 66], // tq2_0
  39: [32, 17], // mxfp4
};

/**
 * Bytes of a metadata value by its type number. Strings (8) and arrays (9) have a length of their
 * own.
 */
const valueSizes = [1, 1, 2, 2, 4, 4, 4, 1, undefined, undefined, 8, 8, 8];
const u32Type = 4;
const stringType = 8;
const arrayType = 9;

/** Thrown while reading. `checkFile` adds the path. */
class Damage extends Error {}

/** Reads forward through a file in large pieces. Skipped parts are not read. */
class Reader {
  readonly #file: FileHandle;
  readonly #sizeBytes: number;
  #buffer: Buffer = Buffer.alloc(0);
  /** Position of the buffer in the file. */
  #start = 0;
  position = 0;

  constructor(file: FileHandle, sizeBytes: number) {
    this.#file = file;
    this.#sizeBytes = sizeBytes;
  }

  async take(bytes: number): Promise<Buffer> {
    this.#within(bytes);
    const offset = this.position - this.#start;
    if (offset < 0 || offset + bytes > this.#buffer.length) {
      const wanted = Math.min(Math.max(bytes, 256 * 1024), this.#sizeBytes - this.position);
      const { buffer, bytesRead } = await this.#file.read(Buffer.alloc(wanted), 0, wanted, this.position);
      if (bytesRead < bytes) throw new Damage("it ends in the middle of its header");
      this.#buffer = buffer.subarray(0, bytesRead);
      this.#start = this.position;
    }
    const from = this.position - this.#start;
    this.position += bytes;
    return this.#buffer.subarray(from, from + bytes);
  }

  skip(bytes: number): void {
    this.#within(bytes);
    this.position += bytes;
  }

  async u32(): Promise<number> {
    return (await this.take(4)).readUInt32LE();
  }

  async u64(): Promise<number> {
    const value = (await this.take(8)).readBigUInt64LE();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new Damage("its header contains an impossible length");
    return Number(value);
  }

  async name(): Promise<string> {
    const bytes = await this.u64();
    if (bytes > nameBytesMax) throw new Damage("its header contains an impossible name");
    return (await this.take(bytes)).toString("utf8");
  }

  #within(bytes: number): void {
    const end = this.position + bytes;
    if (end > this.#sizeBytes) throw new Damage("it ends in the middle of its header");
    if (end > headerBytesMax) throw new Damage(`its header has more than ${headerBytesMax} bytes`);
  }
}

async function skipValue(reader: Reader, type: number, depth = 0): Promise<void> {
  if (type === stringType) return reader.skip(await reader.u64());
  if (type !== arrayType) return reader.skip(sizeOfValue(type));
  if (depth === arrayDepthMax) throw new Damage("its header nests arrays too deeply");
  const itemType = await reader.u32();
  const length = await reader.u64();
  if (itemType !== stringType && itemType !== arrayType) return reader.skip(length * sizeOfValue(itemType));
  if (length > arrayItemsMax) throw new Damage(`its header contains an array of ${length} items`);
  for (let i = 0; i < length; i++) await skipValue(reader, itemType, depth + 1);
}

function sizeOfValue(type: number): number {
  const size = valueSizes[type];
  if (size === undefined) throw new Damage(`its header contains a value of unknown type ${type}`);
  return size;
}

async function readMetadata(reader: Reader, entries: number) {
  let architecture: string | null = null;
  let alignment = defaultAlignment;
  for (let i = 0; i < entries; i++) {
    const key = await reader.name();
    const type = await reader.u32();
    if (type === stringType && key === "general.architecture") architecture = await reader.name();
    else if (key !== "general.alignment") await skipValue(reader, type);
    else if (type === u32Type) alignment = await reader.u32();
    else throw new Damage(`its general.alignment is of type ${type}, not u32`);
  }
  return { architecture, alignment };
}

/** Returns the end of the last tensor, counted from the start of the first. */
async function readTensorsEnd(reader: Reader, tensors: number): Promise<number> {
  let end = 0;
  for (let i = 0; i < tensors; i++) {
    await reader.name();
    const dimensions = await reader.u32();
    if (dimensions > dimensionsMax) throw new Damage(`its header gives a tensor ${dimensions} dimensions`);
    let weights = 1;
    for (let d = 0; d < dimensions; d++) weights *= await reader.u64();
    const type = await reader.u32();
    const offset = await reader.u64();
    const block = blockSizes[type];
    // A type that is missing in the table: at least the start of the tensor must be in the file.
    const bytes = block === undefined ? 0 : Math.ceil(weights / block[0]) * block[1];
    end = Math.max(end, offset + bytes);
    if (!Number.isSafeInteger(end)) throw new Damage("its header contains an impossible tensor");
  }
  return end;
}

/** Describes a file that is not GGUF. It recognises the usual results of a failed download. */
async function describe(file: FileHandle, magic: string): Promise<string> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(64), 0, 64, 0);
  const start = buffer.toString("latin1", 0, bytesRead);
  if (start.startsWith("version https://git-lfs"))
    return "it is a Git LFS pointer and not the model; run git lfs pull to get it";
  if (/^\s*<(!doctype|html)/i.test(start))
    return "it is a web page and not a model; the download failed, download it again";
  return `it begins with ${JSON.stringify(magic)} where a GGUF file has "GGUF"`;
}

function requireAlignment(alignment: number): void {
  const isRight = alignment >= 8 && alignment <= alignmentMax && Number.isInteger(Math.log2(alignment));
  if (isRight) return;
  throw new Damage(
    `its general.alignment is ${alignment}; it must be a power of two from 8 to ${alignmentMax}`,
  );
}

async function readSize(file: FileHandle, isPart: boolean): Promise<GgufSize> {
  const sizeBytes = (await file.stat()).size;
  if (sizeBytes === 0) throw new Damage("it is empty");
  const reader = new Reader(file, sizeBytes);
  const magic = await reader.take(Math.min(4, sizeBytes));
  if (magic.toString("latin1") !== "GGUF") {
    throw new Damage(await describe(file, magic.toString("latin1")));
  }
  const version = await reader.u32();
  if (version === 0x03000000 || version === 0x02000000)
    throw new Damage("it is a GGUF file for big-endian machines");
  if (version !== 2 && version !== 3)
    throw new Damage(`it is GGUF version ${version}; versions 2 and 3 can be read`);
  const tensors = await reader.u64();
  const entries = await reader.u64();
  if (tensors > tensorsMax || entries > metadataEntriesMax) {
    throw new Damage(`its header announces ${tensors} tensors and ${entries} entries`);
  }
  // The first of several parts may contain only the header.
  if (tensors === 0 && !isPart) throw new Damage("it contains only a vocabulary, no weights");
  const { architecture, alignment } = await readMetadata(reader, entries);
  const tensorsEnd = await readTensorsEnd(reader, tensors);
  requireAlignment(alignment);
  const wholeBytes = Math.ceil(reader.position / alignment) * alignment + tensorsEnd;
  if (sizeBytes < wholeBytes) {
    throw new Damage(`it is cut short: its tensors need ${wholeBytes} bytes and it has ${sizeBytes}`);
  }
  if (architecture === null && !isPart) throw new Damage("it does not name its architecture");
  return { sizeBytes };
}

/** `name-00001-of-00003.gguf`, as llama-gguf-split names the parts of a model. */
const partName = /^(.+-)(\d{5})-of-(\d{5})\.gguf$/s;

/** Returns the path, or the paths of all parts if it is the first of several. */
export function modelFilesOf(path: string): string[] {
  const [, start, , count] = partName.exec(path) ?? [];
  if (start === undefined || count === undefined) return [path];
  return Array.from({ length: Number(count) }, (_, index) => {
    const number = String(index + 1).padStart(5, "0");
    return `${start}${number}-of-${count}.gguf`;
  });
}

/** Checks the file, or all parts if it is the first of several. Returns the total size. */
export async function checkModel(path: string): Promise<GgufSize> {
  const files = modelFilesOf(path);
  const [first] = files;
  if (files.length === 1) return checkGguf(path);
  if (first !== path)
    throw new OperatorError(`model file ${path} is a later part of a model; name the first: ${first}`);
  let sizeBytes = 0;
  for (const file of files) sizeBytes += (await checkFile(file, true)).sizeBytes;
  return { sizeBytes };
}

/** Checks one file. Throws an `OperatorError` that names the file and the fault. */
export function checkGguf(path: string): Promise<GgufSize> {
  return checkFile(path, partName.test(path));
}

async function checkFile(path: string, isPart: boolean): Promise<GgufSize> {
  await using file = await open(path, "r").catch((error: unknown) => {
    throw new OperatorError(`model file ${path} cannot be opened: ${unreadableReasonOf(error)}`, error);
  });
  try {
    if (!(await file.stat()).isFile()) throw new Damage("it is not a file");
    return await readSize(file, isPart);
  } catch (error) {
    if (error instanceof Damage)
      throw new OperatorError(`model file ${path} cannot be used: ${error.message}`);
    throw new OperatorError(`model file ${path} cannot be read: ${unreadableReasonOf(error)}`, error);
  }
}

function unreadableReasonOf(error: unknown): string {
  const code = codeOf(error);
  if (code === "ENOENT") return "there is no such file";
  if (code === "EACCES" || code === "EPERM") return "this user may not read it";
  return messageOf(error);
}
