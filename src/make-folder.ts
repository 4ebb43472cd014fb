/**
 * Creates a folder and its parents. An existing folder is not changed.
 *
 * Node's recursive mkdir never returns on a file system that reports a missing parent for every
 * new folder, as /proc does. This function always returns.
 */
import { existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** Throws the system's error if the folder cannot be created. */
export function makeFolder(folder: string): void {
  const above = dirname(folder);
  if (above !== folder && !existsSync(above)) makeFolder(above);
  try {
    mkdirSync(folder);
  } catch (error) {
    // It exists already, or another process has just created it.
    if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) throw error;
  }
}
