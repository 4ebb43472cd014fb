/**
 * The numbered SQL files that create and upgrade a database. Both databases have the same files,
 * with words in braces where their SQL differs.
 *
 * Guarantees that the numbers have no gaps, and that the SQL of a file that was applied is
 * unchanged since then, to the byte. The stores apply the files and record them.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { invariant, OperatorError } from "../errors.ts";
import { inkwell, shipped } from "../invocation.ts";

const folder = new URL("./migrations/", import.meta.url);

type DatabaseKind = "sqlite" | "postgres";

/**
 * The words in braces. The first migration explains them. Checksums cover what they stand for, so
 * a word that was released never changes.
 */
const words: Readonly<Record<string, Readonly<Record<DatabaseKind, string>>>> = {
  int: { sqlite: "integer", postgres: "bigint" },
  real: { sqlite: "real", postgres: "double precision" },
  text: { sqlite: "text", postgres: 'text collate "C"' },
  bool: { sqlite: "integer", postgres: "boolean" },
  json: { sqlite: "text", postgres: "json" },
  json_type: { sqlite: "json_type", postgres: "json_typeof" },
  table: { sqlite: "strict, without rowid", postgres: "" },
};

/** Returns the text of a migration for a database. */
export function sqlFor(database: DatabaseKind, text: string): string {
  return text
    .replace(/\{(sqlite|postgres)\}(.*?)\{end\}/gs, (_, only, sql) => (only === database ? sql : ""))
    .replace(/\{append only (\w+)(?: of ([\w, ]+):|,) ([\w ]+)\}/g, (_, table, columns, rows) =>
      appendOnly(database, { table, columns, rows }),
    )
    .replace(/\{([^{}]*)\}|[{}]/g, (placeholder, word) => {
      const replaced = words[word]?.[database];
      invariant(replaced !== undefined, () => `${placeholder} is no word of migrations`);
      return replaced;
    });
}

/** `columns`: only these are never changed. Default: all. */
function appendOnly(
  database: DatabaseKind,
  { table, columns, rows }: { table: string; columns: string | undefined; rows: string },
): string {
  const update = columns === undefined ? "update" : `update of ${columns}`;
  const refuse = (name: string, change: string, message: string) =>
    `create trigger ${table}_is_never_${name} before ${change} on ${table} ${
      database === "sqlite"
        ? `begin select raise(abort, '${message}'); end;`
        : `for each ${change === "truncate" ? "statement" : "row"} execute function refuse('${message}');`
    }`;
  const triggers = [
    refuse("changed", update, `${rows} are never changed`),
    refuse("deleted", "delete", `${rows} are never deleted`),
  ];
  if (database === "postgres") triggers.push(refuse("emptied", "truncate", `${rows} are never deleted`));
  return triggers.join("\n");
}

interface Migration {
  /** 1, 2, 3 ... */
  version: number;
  /** File name. */
  name: string;
  sql: string;
  /** SHA-256 of `sql`, lower-case hex. */
  checksum: string;
}

/** A migration as the database has recorded it. */
export type AppliedMigration = Pick<Migration, "version" | "name" | "checksum">;

/** Returns the migrations for a database, in order. */
export function readMigrations(database: DatabaseKind): Migration[] {
  const names = readdirSync(folder).filter((name) => name.endsWith(".sql"));
  return names.sort().map((name, index) => {
    const version = Number(/^(\d{4})-/.exec(name)?.[1]);
    invariant(version === index + 1, `${name} is migration ${index + 1}`);
    const sql = sqlFor(database, readFileSync(new URL(name, folder), "utf8"));
    const checksum = createHash("sha256").update(sql).digest("hex");
    return { version, name, sql, checksum };
  });
}

/** Returns a migration from a row of the table. */
export function appliedMigration(version: unknown, name: unknown, checksum: unknown): AppliedMigration {
  return { version: Number(version), name: String(name), checksum: String(checksum) };
}

/**
 * Told about the steps of an upgrade, for the log. `about.file` is the copy of an SQLite ledger.
 */
export type UpgradeListener = (step: string, about?: { file: string }) => void;

export const upgradeBegins = "an older version made the ledger; it is upgraded now";

interface Database {
  kind: DatabaseKind;
  /** Names the database in messages. */
  where: string;
  applied: readonly AppliedMigration[];
  /** If false, a database with an older schema is refused. Default: true. */
  upgrade?: boolean | undefined;
}

/** Returns the migrations that are not applied yet. */
export function pendingMigrations({ kind, where, applied, upgrade = true }: Database): Migration[] {
  const known = readMigrations(kind);
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
    `The ledger ${where} was made by an older version of Inkwell. Nothing was changed. Start "${inkwell("serve")}" of this version first, which upgrades the ledger (${shipped("docs/operating/backup.md")}), or use that version's program.`,
  );
}
