/**
 * The numbered SQL files that make a database, and what of them is still to be applied.
 *
 * Guarantees that files are numbered without gaps and that one which has been applied is the same file still. How
 * they are applied, and where it is recorded, is the store's business.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { invariant, OperatorError } from "../errors.ts";

export interface Migration {
  /** 1, 2, 3 ... */
  version: number;
  /** File name. */
  name: string;
  sql: string;
  /** SHA-256 of the text, lower-case hex. */
  checksum: string;
}

/** A migration as the database remembers it. */
export type AppliedMigration = Pick<Migration, "version" | "name" | "checksum">;

/** In order. `folder` is a file URL that ends in a slash. */
export function readMigrations(folder: URL): Migration[] {
  const names = readdirSync(folder).filter((name) => name.endsWith(".sql"));
  return names.sort().map((name, index) => {
    const version = Number(/^(\d{4})-/.exec(name)?.[1]);
    invariant(version === index + 1, `${name} is migration ${index + 1}`);
    const sql = readFileSync(new URL(name, folder), "utf8");
    return { version, name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}

/** What has still to be applied. `where` names the database in messages. */
export function pendingMigrations(
  known: readonly Migration[],
  applied: readonly AppliedMigration[],
  where: string,
): Migration[] {
  for (const [index, before] of applied.entries()) {
    const now = known[index];
    if (now === undefined) {
      throw new OperatorError(
        `${where} was made by a newer version of Inkwell: its schema is version ${applied.length}, this one knows up to ${known.length}. Run the newer version, or restore a backup from before the upgrade.`,
      );
    }
    if (now.version !== before.version || now.checksum !== before.checksum) {
      throw new OperatorError(
        `${where} was made by another build of Inkwell: its migration ${before.name} differs from the one here (${now.name}). Run the version that made it.`,
      );
    }
  }
  return known.slice(applied.length);
}
