/**
 * The schema of a PostgreSQL database: recognised, and brought to the version of this program.
 *
 * Guarantees that of any number of nodes that start at once one migrates and the others find it done, that a database
 * is changed whole or not at all, and that none is changed which is not ours or was made by a newer program, or that is
 * only to be checked.
 */
import { invariant, OperatorError } from "../../errors.ts";
import { type AppliedMigration, pendingMigrations, readMigrations } from "../migrations.ts";
import { type Connection, forAudit, forMigration, placeOf, schemaName } from "./connection.ts";
import { openingError, type Place } from "./errors.ts";
import { onlyCell } from "./rows.ts";

const migrationsFolder = new URL("../migrations/postgres/", import.meta.url);

/** "Inkwell" in ASCII: the lock under which the schema is changed, in a space of numbers that all programs share. */
const migrationLock = "20669081143569516";

/** The oldest that this is tested with, as `server_version_num` has it. */
const serverVersionMin = 140_000;

/** Throws an OperatorError that says what keeps this program from working on the database. */
export async function prepareSchema(url: string): Promise<void> {
  const place = placeOf(url);
  try {
    await forMigration(url, async (connection) => {
      await recogniseServer(connection, place);
      await migrate(connection, place);
    });
  } catch (error) {
    throw openingError(error, place);
  }
}

/** Throws an OperatorError where the database has no ledger, or not one of this version. Changes nothing. */
export async function requireSchema(url: string, signal: AbortSignal): Promise<void> {
  const place = placeOf(url);
  const { where } = place;
  try {
    await forAudit(url, signal, async (connection) => {
      await recogniseServer(connection, place);
      const applied = await appliedTo(connection);
      if (applied === null) {
        throw new OperatorError(
          `There is no ledger of Inkwell in the database ${where}. Nothing was changed: name the right one, or restore the dump into it first.`,
        );
      }
      if (pendingMigrations(readMigrations(migrationsFolder), applied, where).length === 0) return;
      throw new OperatorError(
        `The ledger in the database ${where} was made by an older version of Inkwell. Nothing was changed: check it with that version, or with this one when its service has been started on it.`,
      );
    });
  } catch (error) {
    throw openingError(error, place);
  }
}

async function ask(connection: Connection, text: string, values?: readonly unknown[]) {
  return (await connection.query(values === undefined ? { text } : { text, values })).rows;
}

async function recogniseServer(connection: Connection, { where, database }: Place): Promise<void> {
  const version = Number(onlyCell(await ask(connection, "show server_version_num")));
  requireVersion(version, where);
  const encoding = onlyCell(await ask(connection, "show server_encoding"));
  if (encoding !== "UTF8") {
    throw new OperatorError(
      `The database ${where} keeps text as ${String(encoding)}, which cannot hold every letter. Make it anew: createdb --encoding=UTF8 --template=template0 ${database}`,
    );
  }
}

export function requireVersion(version: number, where: string): void {
  if (version >= serverVersionMin) return;
  throw new OperatorError(
    `PostgreSQL at ${where} is version ${Math.floor(version / 10_000)}; Inkwell takes ${serverVersionMin / 10_000} or newer. Upgrade the server.`,
  );
}

async function migrate(connection: Connection, { where }: Place): Promise<void> {
  await ask(connection, "begin");
  await ask(connection, `select pg_advisory_xact_lock(${migrationLock})`);
  const applied = (await appliedTo(connection)) ?? (await begin(connection, where));
  const pending = pendingMigrations(readMigrations(migrationsFolder), applied, where);
  for (const { version, name, sql, checksum } of pending) {
    await ask(connection, sql);
    await ask(connection, "insert into migration (version, name, checksum) values ($1, $2, $3)", [
      version,
      name,
      checksum,
    ]);
  }
  await ask(connection, "commit");
}

/** Null where there is no schema of ours. */
async function appliedTo(connection: Connection): Promise<AppliedMigration[] | null> {
  const isThere = onlyCell(
    await ask(connection, `select to_regclass('${schemaName}.migration') is not null`),
  );
  if (isThere !== true) return null;
  const rows = await ask(connection, "select version, name, checksum from migration order by version");
  return rows.map(([version, name, checksum]) => {
    invariant(typeof version === "number", "a migration has a number");
    return { version, name: String(name), checksum: String(checksum) };
  });
}

/** Only where nothing is there: a user without the right to make schemas can still run on one that is. */
async function begin(connection: Connection, where: string): Promise<AppliedMigration[]> {
  const [strangers] = await ask(
    connection,
    "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1",
    [schemaName],
  );
  if (strangers?.[0] !== 0) {
    throw new OperatorError(
      `The database ${where} has a schema "${schemaName}" that is not one of Inkwell's. Nothing was changed. Name another database.`,
    );
  }
  await ask(connection, `create schema if not exists ${schemaName}`);
  await ask(
    connection,
    "create table migration (version bigint primary key, name text not null, checksum text not null, applied_at timestamptz not null default now())",
  );
  return [];
}
