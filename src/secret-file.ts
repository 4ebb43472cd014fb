/**
 * Files with one secret, which only their owner can read: the operator token and the first key.
 *
 * Guarantees that a file appears complete and on disk, or not at all, that an existing file is
 * never replaced, and that no symbolic link is followed when a file is created.
 */
import { randomBytes } from "node:crypto";
import { constants, type Stats } from "node:fs";
import { link, open, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { codeOf } from "./errors.ts";

const secretBytesMax = 1024;

/** Whether this user alone can read and write the file. Windows has no such rights. */
export function isOnlyOf(user: number | undefined, { uid, mode }: Stats): boolean {
  return user === undefined || (uid === user && (mode & 0o077) === 0);
}

/** Returns false if the file exists already. Throws the system's error if it cannot be written. */
export async function createSecretFile(file: string, secret: string): Promise<boolean> {
  const draft = `${file}.${randomBytes(6).toString("hex")}`;
  try {
    await writeFile(draft, `${secret}\n`, { flag: "wx", mode: 0o600, flush: true });
    // A link to a complete file: no process reads half a secret.
    await link(draft, file);
    await flushFolder(dirname(file));
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Windows cannot flush a folder. */
export async function flushFolder(folder: string): Promise<void> {
  if (process.platform === "win32") return;
  await using handle = await open(folder);
  await handle.sync();
}

/**
 * Returns the secret, or null if the file does not exist. Throws if the file is a link or no
 * regular file, or if another user wrote it or can read it.
 */
export async function readSecretFile(file: string): Promise<string | null> {
  try {
    // A pipe would not open before somebody writes to it.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const found = await handle.stat();
    if (!found.isFile() || found.size > secretBytesMax) throw new Error("it is not a file with a secret");
    if (!isOnlyOf(process.getuid?.(), found)) throw new Error("another user wrote it or can read it");
    return (await handle.readFile("utf8")).trim();
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    if (codeOf(error) === "ELOOP") throw new Error("it is a symbolic link", { cause: error });
    throw error;
  }
}
