/**
 * The numbered SQL files that create and upgrade a database.
 *
 * Guarantees that the numbers have no gaps, and that a file that was applied is unchanged since
 * then, to the byte. The stores apply the files and record them.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { invariant, OperatorError } from "../errors.ts";
import { inkwell, shipped } from "../invocation.ts";

interface Migration {
  /** 1, 2, 3 ... */
  version: number;
  /** File name. */
  name: string;
  sql: string;
  /** SHA-256 of the text, lower-case hex. */
  checksum: string;
}

/** A migration as the database has recorded it. */
export type AppliedMigration = Pick<Migration, "version" | "name" | "checksum">;

/** Returns the migrations of a folder in order. `folder` is a file URL that ends in a slash. */
export function readMigrations(folder: URL): Migration[] {
  const names = readdirSync(folder).filter((name) => name.endsWith(".sql"));
  return names.sort().map((name, index) => {
    const version = Number(/^(\d{4})-/.exec(name)?.[1]);
    invariant(version === index + 1, `${name} is migration ${index + 1}`);
    const sql = readFileSync(new URL(name, folder), "utf8");
    const checksum = createHash("sha256").update(sql).digest("hex");
    return { version, name, sql, checksum };
  });
}

/** Returns a migration from a row of the table. */
export function appliedMigration(version: unknown, name: unknown, checksum: unknown): AppliedMigration {
  return { version: Number(version), name: String(name), checksum: String(checksum) };
}

interface Database {
  /** Names the database in messages. */
  where: string;
  applied: readonly AppliedMigration[];
  /** If false, a database with an older schema is refused. Default: true. */
  upgrade?: boolean | undefined;
}

/** Returns the migrations of a folder that are not applied yet. */
export function pendingMigrations(folder: URL, { where, applied, upgrade = true }: Database): Migration[] {
  const known = readMigrations(folder);
  for (const [index, before] of applied.entries()) {
    const now = known[index];
    if (now === undefined) {
      throw new OperatorError(
        `${where} was made by a newer version of Inkwell: its schema is version ${applied.length}, and this version supports up to ${known.length}. Run the newer version, or restore a backup from before the upgrade.`,
      );
    }
    if (now.version !== before.version || now.checksum !== before.checksum) {
      throw new OperatorError(
        `${where} was made by another build of Inkwell: its migration ${before.name} differs from ${now.name} of this build. Run the build that made it.`,
      );
    }
  }
  const pending = known.slice(applied.length);
  // Only `inkwell serve` upgrades a ledger. A new database gets its schema from any command.
  if (upgrade || pending.length === 0 || applied.length === 0) return pending;
  throw new OperatorError(
    `The ledger ${where} was made by an older version of Inkwell. Nothing was changed. Start "${inkwell("serve")}" of this version first, which upgrades the ledger (${shipped("docs/operating/upgrading.md")}), or use that version's program.`,
  );
}
