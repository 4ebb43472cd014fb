/**
 * Looks at the beginning of a model file before anything is started with it.
 *
 * Guarantees: what is missing, unreadable, no GGUF or cut off in its first bytes gets an `OperatorError` of what, where and
 * what to do. What only llama.cpp can tell (tensors, architecture) is told when it loads the file.
 */
import { open, stat } from "node:fs/promises";
import { OperatorError } from "../../errors.ts";

const headerBytes = 24;
const versionMin = 2;
const versionMax = 3;

export async function checkModelFile(path: string): Promise<void> {
  const header = await readHeader(path);
  const start = header.toString("latin1");
  if (start.startsWith("version https://git")) {
    throw bad(path, "is a Git LFS pointer and not the model itself", "fetch the file with git lfs pull");
  }
  if (/^\s*<(!doctype|html)/i.test(start)) {
    throw bad(path, "is a web page and not a model", "the download went wrong: fetch the file again");
  }
  if (!start.startsWith("GGUF")) {
    throw bad(path, "is not a GGUF file", "name a model in GGUF format (its first four bytes are GGUF)");
  }
  if (header.length < headerBytes) throw bad(path, "is cut off in its header", "fetch the file again");
  const version = header.readUInt32LE(4);
  if (version < versionMin || version > versionMax) {
    const known = `versions ${versionMin} and ${versionMax}`;
    throw bad(
      path,
      `has GGUF version ${version}`,
      `${known} on a little-endian machine can be read: convert the model anew`,
    );
  }
  if (header.readBigUInt64LE(8) === 0n) {
    throw bad(path, "holds no tensors, only a vocabulary", "name the file with the model's weights");
  }
}

async function readHeader(path: string): Promise<Buffer> {
  try {
    if (!(await stat(path)).isFile()) throw bad(path, "is not a file", "name the GGUF file itself");
    await using file = await open(path);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headerBytes), 0, headerBytes, 0);
    return buffer.subarray(0, bytesRead);
  } catch (cause) {
    if (cause instanceof OperatorError) throw cause;
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
    if (code === "ENOENT") throw bad(path, "does not exist", "correct the path", cause);
    throw bad(
      path,
      `cannot be read (${cause instanceof Error ? cause.message : code})`,
      "check its permissions",
      cause,
    );
  }
}

function bad(path: string, what: string, remedy: string, cause?: unknown): OperatorError {
  return new OperatorError(`The model file ${path} ${what}; ${remedy}.`, cause);
}
