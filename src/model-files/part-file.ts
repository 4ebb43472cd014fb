/**
 * An unfinished file. It is written as `<name>.part` and renamed when it is complete, checked and
 * on disk.
 *
 * An incomplete file never has the final name, however the process ends.
 */
import { type Hash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rename, rm, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { makeFolder } from "../make-folder.ts";
import { megabytes } from "./progress.ts";

export interface PartFile {
  /** Path of the finished file. */
  path: string;
  partPath: string;
  /** Describes which content the part belongs to. */
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

/** Creates the folder if it is missing. Throws an `OperatorError` if it is not writable. */
export async function prepareFolder(folder: string): Promise<void> {
  // Several nodes may share the folder, and in containers each has process id 1.
  const probe = join(folder, `.probe-${randomUUID()}`);
  try {
    makeFolder(folder);
    await (await open(probe, "w")).close();
    await rm(probe);
  } catch (error) {
    throw diskError(error, folder, "a little more");
  }
}

/**
 * Throws an `OperatorError` if the disk has not enough space. File systems that report no size
 * pass.
 */
export async function requireRoom(folder: string, neededBytes: number): Promise<void> {
  const { bavail, bsize, blocks } = await statfs(folder);
  const freeBytes = bavail * bsize;
  if (blocks > 0 && freeBytes < neededBytes)
    throw noRoom(folder, `${megabytes(neededBytes)}, and ${megabytes(freeBytes)} are free`);
}

/** Adds the content of the file to the hash. */
export async function hashInto(hash: Hash, path: string): Promise<void> {
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk);
}

/** Returns the file beside a model file whose SHA-256 nothing named when it was downloaded. */
export function uncheckedMarkOf(path: string): string {
  return `${path}.unchecked`;
}

/**
 * Syncs the checked part to disk and renames it to its final name. A part that could not be
 * verified gets a mark.
 */
export async function adoptPart(part: PartFile, folder: string, isVerified = true): Promise<void> {
  try {
    await synced(part.partPath, "r+");
    const mark = uncheckedMarkOf(part.path);
    if (isVerified) await rm(mark, { force: true });
    else await writeFile(mark, "");
    await rename(part.partPath, part.path);
    // Otherwise a power failure could undo the rename. Windows cannot open folders.
    if (process.platform !== "win32") await synced(folder, "r");
    await rm(part.statePath, { force: true });
  } catch (error) {
    throw diskError(error, folder, "a little more");
  }
}

async function synced(path: string, flags: string): Promise<void> {
  await using file = await open(path, flags);
  await file.sync();
}

/** Returns the error for a failed write. `needed` is the size of the complete file, in words. */
export function diskError(error: unknown, folder: string, needed: string): Error {
  const code = codeOf(error);
  if (code === "ENOSPC" || code === "EDQUOT") return noRoom(folder, needed, error);
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return new OperatorError(
      `models folder ${folder} is not writable (${code}): grant this user write permission, or set models_dir (INKWELL_MODELS) to another folder`,
      error,
    );
  }
  if (code === "ENOTDIR" || code === "EEXIST") {
    return new OperatorError(
      `models folder ${folder} is not a folder: a file has its name; set models_dir (INKWELL_MODELS) to another folder`,
      error,
    );
  }
  return new OperatorError(`models folder ${folder}: ${messageOf(error)}`, error);
}

function noRoom(folder: string, needed: string, cause?: unknown): OperatorError {
  return new OperatorError(
    `the disk of models folder ${folder} is full: it needs ${needed}; free some space, or set models_dir (INKWELL_MODELS) to a larger disk`,
    cause,
  );
}
