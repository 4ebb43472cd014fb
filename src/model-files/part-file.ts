/**
 * A file in the making: written under `<name>.part`, given its own name only when whole, checked and on disk.
 * Guarantees that no half file ever stands under the final name, whatever ends the process.
 */
import { type Hash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open, rename, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { makeFolder } from "../make-folder.ts";
import { megabytes } from "./progress.ts";

export interface PartFile {
  /** Where it will stand when it is done. */
  path: string;
  partPath: string;
  /** Beside it: what the part is a part of. */
  statePath: string;
}

export function partFileOf(folder: string, fileName: string): PartFile {
  const path = join(folder, fileName);
  return { path, partPath: `${path}.part`, statePath: `${path}.part.json` };
}

export async function discardPart(part: PartFile): Promise<void> {
  await rm(part.partPath, { force: true });
  await rm(part.statePath, { force: true });
}

/** Makes the folder if need be. Throws an `OperatorError` if it cannot be written to. */
export async function prepareFolder(folder: string): Promise<void> {
  // Several nodes may share the folder, and in containers each of them is process 1.
  const probe = join(folder, `.probe-${randomUUID()}`);
  try {
    makeFolder(folder);
    await (await open(probe, "w")).close();
    await rm(probe);
  } catch (error) {
    throw diskError(error, folder, "a little more");
  }
}

/** Refuses before the first byte what cannot fit. File systems that do not tell their size are taken at their word later. */
export async function requireRoom(folder: string, neededBytes: number): Promise<void> {
  const { bavail, bsize, blocks } = await statfs(folder);
  const freeBytes = bavail * bsize;
  if (blocks > 0 && freeBytes < neededBytes)
    throw noRoom(folder, `${megabytes(neededBytes)}, and ${megabytes(freeBytes)} are free`);
}

/** Adds the file's bytes to the hash. */
export async function hashInto(hash: Hash, path: string): Promise<void> {
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk);
}

/** Puts the part on disk and gives it its name. The last step: it has been checked before. */
export async function adoptPart(part: PartFile, folder: string): Promise<void> {
  try {
    await synced(part.partPath, "r+");
    await rename(part.partPath, part.path);
    // Without this a power cut could undo the rename; Windows cannot open folders and needs it less.
    if (process.platform !== "win32") await synced(folder, "r");
    await rm(part.statePath, { force: true });
  } catch (error) {
    throw diskError(error, folder, "a little more");
  }
}

async function synced(path: string, flags: string): Promise<void> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, flags);
    await file.sync();
  } finally {
    await file?.close();
  }
}

/** What to tell the operator when the disk refuses. `needed`: how much room the whole file takes, in words. */
export function diskError(error: unknown, folder: string, needed: string): Error {
  const code = codeOf(error);
  if (code === "ENOSPC" || code === "EDQUOT") return noRoom(folder, needed, error);
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return new OperatorError(
      `models folder ${folder} cannot be written to (${code}): give this user the right to, or set models_dir (INKWELL_MODELS) to another folder`,
      error,
    );
  }
  if (code === "ENOTDIR" || code === "EEXIST") {
    return new OperatorError(
      `models folder ${folder} is not a folder: a file is in its way; set models_dir (INKWELL_MODELS) to another folder`,
      error,
    );
  }
  return new OperatorError(`models folder ${folder}: ${messageOf(error)}`, error);
}

function noRoom(folder: string, needed: string, cause?: unknown): OperatorError {
  return new OperatorError(
    `the disk of models folder ${folder} is full: it needs ${needed}; make room there, or set models_dir (INKWELL_MODELS) to a larger disk`,
    cause,
  );
}
