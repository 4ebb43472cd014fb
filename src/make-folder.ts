/**
 * Creates a folder and its parents. An existing folder is not changed.
 *
 * Node's recursive mkdir never returns on a file system that reports a missing parent for every
 * new folder, as /proc does. This function always returns.
 */
import { accessSync, constants, existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { messageOf, OperatorError } from "./errors.ts";

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

/** Creates the data folder. Throws an `OperatorError` if it cannot be written. */
export function makeDataFolder(folder: string): void {
  try {
    makeFolder(folder);
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new OperatorError(
      `The data folder ${folder} cannot be written (${messageOf(error)}). Make it writable for this user, or name another one (data in inkwell.yaml, or INKWELL_DATA).`,
      error,
    );
  }
}
