/**
 * Makes a folder, and those above it, where they are missing.
 *
 * Guarantees an end: Node's own recursive mkdir tries for ever where a file system says of every
 * new folder that there is nothing above it, as /proc does. Changes nothing about a folder that
 * is there.
 */
import { existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** Throws the system's error where it cannot be made. */
export function makeFolder(folder: string): void {
  const above = dirname(folder);
  if (above !== folder && !existsSync(above)) makeFolder(above);
  try {
    mkdirSync(folder);
  } catch (error) {
    // There already, or made by another process meanwhile.
    if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) throw error;
  }
}
