/**
 * The numbered SQL files that create and upgrade a database.
 *
 * Guarantees that the numbers have no gaps, and that a file that was applied is unchanged since
 * then, to the byte. The stores apply the files and record them.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { invariant, OperatorError } from "../errors.ts";

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
    return { version, name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}

/** Returns the migrations that are not applied yet. `where` names the database in messages. */
export function pendingMigrations(
  known: readonly Migration[],
  applied: readonly AppliedMigration[],
  where: string,
): Migration[] {
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
  return known.slice(applied.length);
}

/**
 * Throws an OperatorError if the database has an older schema, because only `inkwell serve`
 * changes it. A new database gets its schema from any command.
 */
export function refuseUpgrade(
  pending: readonly Migration[],
  applied: readonly AppliedMigration[],
  where: string,
): void {
  if (pending.length === 0 || applied.length === 0) return;
  throw new OperatorError(
    `The ledger ${where} was made by an older version of Inkwell. Nothing was changed. Start "inkwell serve" of this version first, which upgrades the ledger (docs/operating/upgrading.md), or use that version's program.`,
  );
}

/** End of the name of the migration that needs the plans of the configuration. */
export const entitlement = "-entitlement.sql";

/** Accounts by plans of which the database has no version. */
export const accountsWithoutPlan = `
  select plan, count(*) as accounts from account
  where not exists (select 1 from plan_version v where v.plan = account.plan)
  group by plan order by plan`;

/** Throws an OperatorError that names the plans. */
export function requirePlans(
  missing: readonly (readonly [plan: string, accounts: number])[],
  where: string,
): void {
  if (missing.length === 0) return;
  const named = missing.map(([plan, accounts]) => `"${plan}" (accounts: ${accounts})`).join(", ");
  throw new OperatorError(
    `${where} cannot be upgraded: accounts have plans that the configuration does not have: ${named}. Nothing was changed. Add them to plans: with the credits and periods that they had, and start again.`,
  );
}
