/**
 * Recognises the schema of a PostgreSQL database and migrates it to the version of this program.
 *
 * Guarantees that if several nodes start at once, one of them migrates and the others wait for it.
 * A migration is applied completely or not at all. Schemas of other programs or of newer versions
 * are never changed.
 */
import { service } from "../../actors.ts";
import { OperatorError } from "../../errors.ts";
import { inkwell } from "../../invocation.ts";
import type { Plans } from "../../ledger/plan.ts";
import { pause, retryWhile } from "../../retry.ts";
import type { UpgradeListener } from "../migrations.ts";
import { appliedMigration, pendingMigrations, readMigrations, upgradeBegins } from "../migrations.ts";
import type { TimeParameter } from "./clock.ts";
import { type Connection, forAudit, forMigration, placeOf, schemaName } from "./connection-pool.ts";
import { isDeadlock, isLockTimeout, openingError, type Place, sqlState } from "./errors.ts";
import { databaseLimits } from "./limits.ts";
import { writePlans } from "./plans.ts";
import { onlyCell } from "./rows.ts";

/**
 * "Inkwell" in ASCII: the advisory lock for migrations. All programs on a database share these
 * numbers.
 */
export const migrationLock = "20669081143569516";

export const createMigrationTable =
  "create table migration (version bigint primary key, name text not null, checksum text not null, applied_at timestamptz not null default now())";

/** The oldest version that PostgreSQL still supports, in the form of `server_version_num`. */
const serverVersionMin = 150_000;

/** A line about a table, an index or a trigger. A table with columns has a primary key. */
const made = /^(create|drop) (?:unique )?(table|index|trigger) (\w+)\b(?! as )/;

export interface Migrating {
  time: TimeParameter;
  /** The plans section of the configuration. A database without plans gets them. */
  plans: Plans;
  /** If false, a database with an older schema is refused. Default: true. */
  upgrade?: boolean;
  /** If false, a database without a ledger is refused. A function can refuse to create one. */
  create?: boolean | (() => void);
  onUpgrade?: UpgradeListener | undefined;
  /** Aborts before an attempt or its commit. Default: never. */
  signal?: AbortSignal | undefined;
}

/**
 * Creates or migrates the schema. Throws an OperatorError if this program cannot use the database,
 * or the signal's reason.
 */
export async function prepareSchema(url: string, options: Migrating): Promise<void> {
  const place = placeOf(url);
  try {
    await forMigration(url, async (connection) => {
      await recogniseServer(connection, place);
      // Two open connections have a session each, unless a pooler lends sessions by transaction.
      if ((await serverProcessOf(connection)) === (await forMigration(url, serverProcessOf))) {
        throw new OperatorError(
          `A pooler in front of PostgreSQL at ${place.where} gives one session to several connections. Inkwell needs a session for each: set pool_mode = session in PgBouncer, or connect to the server itself.`,
        );
      }
      await migrate(connection, place, options);
    });
  } catch (error) {
    throw openingError(error, place);
  }
}

/** Throws an OperatorError if the database has no ledger of this version. Changes nothing. */
export async function requireSchema(url: string): Promise<void> {
  const place = placeOf(url);
  const { where } = place;
  try {
    await forAudit(url, async (connection) => {
      await recogniseServer(connection, place);
      if ((await pendingIn(connection, where, false)) !== null) return;
      throw noLedger(where);
    });
  } catch (error) {
    throw openingError(error, place);
  }
}

function noLedger(where: string): OperatorError {
  return new OperatorError(
    `There is no ledger of Inkwell in the database ${where}. Nothing was changed. The first "${inkwell("serve")}" or "${inkwell("account create")}" makes one; if it exists elsewhere, set that database, or restore the dump into this one first.`,
  );
}

async function ask(connection: Connection, text: string, values?: readonly unknown[]) {
  return (await connection.query(values === undefined ? { text } : { text, values })).rows;
}

/** Returns the id of the server's process. */
async function serverProcessOf(connection: Connection) {
  return onlyCell(await ask(connection, "select pg_backend_pid()"));
}

async function recogniseServer(connection: Connection, { where, database }: Place): Promise<void> {
  const version = Number(onlyCell(await ask(connection, "show server_version_num")));
  requireVersion(version, where);
  const encoding = onlyCell(await ask(connection, "show server_encoding"));
  if (encoding !== "UTF8") {
    throw new OperatorError(
      `The database ${where} has the encoding ${String(encoding)}, which does not contain every character. Create it again: createdb --encoding=UTF8 --template=template0 ${database}`,
    );
  }
}

export function requireVersion(version: number, where: string): void {
  if (version >= serverVersionMin) return;
  throw new OperatorError(
    `PostgreSQL at ${where} is version ${Math.floor(version / 10_000)}. Inkwell needs version ${serverVersionMin / 10_000} or newer. Upgrade the server.`,
  );
}

/**
 * Tries again while another session reads tables that a migration changes. Between the attempts
 * the commits of older nodes go on. Other nodes wait until the last attempt has ended.
 */
async function migrate(connection: Connection, place: Place, options: Migrating): Promise<void> {
  const { upgrade, onUpgrade = () => {}, signal = new AbortController().signal } = options;
  const { migrationLockMs, tableLocksMs, tableLockMs, tableLockPauseMs, statementMs } = databaseLimits;
  await ask(connection, `set lock_timeout = ${migrationLockMs}`);
  const found = await pendingIn(connection, place.where, upgrade);
  if (found?.length === 0) return;
  if (found === null && options.create === false) throw noLedger(place.where);
  if (found === null && typeof options.create === "function") options.create();
  if (found !== null) onUpgrade(upgradeBegins);
  const lock = `advisory_lock(${migrationLock})`;
  if (onlyCell(await ask(connection, `select pg_try_${lock}`)) !== true) {
    onUpgrade("another node creates or upgrades the ledger; this one waits for it");
    await ask(connection, `select pg_${lock}`).catch((error: unknown) => {
      if (!isLockTimeout(error)) throw error;
      throw new OperatorError(
        `Another node has been migrating the database ${place.where} for longer than ${migrationLockMs / 1000} s. Start again when it has finished.`,
      );
    });
  }
  const deadlockMs = "select setting::int from pg_settings where name = 'deadlock_timeout'";
  // Commits that wait behind the migration are repeated for 15 s.
  const lockMs = Math.min(statementMs, tableLockMs + Number(onlyCell(await ask(connection, deadlockMs))));
  await ask(connection, `set lock_timeout = ${lockMs}`);
  const pauseMs = async (error: unknown, failures: number) => {
    const waitedMs = failures * (lockMs + tableLockPauseMs);
    if (!(isLockTimeout(error) || isDeadlock(error)) || waitedMs >= tableLocksMs) return undefined;
    await ask(connection, "rollback");
    onUpgrade("another session reads tables that the upgrade changes; it is tried again");
    await pause(tableLockPauseMs, signal);
    signal.throwIfAborted();
    return 0;
  };
  try {
    await retryWhile(() => tryToMigrate(connection, place, options), pauseMs, signal);
  } finally {
    // A pooler may keep the session.
    await ask(connection, `rollback; select pg_advisory_unlock(${migrationLock})`).catch(() => {});
  }
  if (found !== null) onUpgrade("the ledger was upgraded");
}

async function tryToMigrate(connection: Connection, { where }: Place, options: Migrating): Promise<void> {
  const { time, plans, upgrade, signal } = options;
  signal?.throwIfAborted();
  await ask(connection, "begin");
  const found = await pendingIn(connection, where, upgrade);
  // A user without the right to create a schema can still use an existing one.
  if (found === null)
    await ask(connection, `create schema if not exists ${schemaName}; ${createMigrationTable}`);
  for (const { version, name, sql, checksum } of found ?? readMigrations("postgres")) {
    await ask(connection, sql);
    const record = "insert into migration (version, name, checksum) values ($1, $2, $3)";
    await ask(connection, record, [version, name, checksum]);
  }
  if (found === null) await writePlans(connection, plans, { force: false, by: service, time });
  await requireComplete(connection, where);
  signal?.throwIfAborted();
  await ask(connection, "commit");
}

/**
 * Returns the migrations that are not applied yet. Null if the database has no schema of that
 * name. Throws an OperatorError if it has one without a migration: Inkwell records each together
 * with all that it makes.
 */
async function pendingIn(connection: Connection, where: string, upgrade?: boolean) {
  const count = `select count(*) from pg_class where relnamespace = to_regnamespace('${schemaName}')`;
  if (onlyCell(await ask(connection, count)) === 0) return null;
  const text = `select version, name, checksum from ${schemaName}.migration order by version`;
  const rows = await ask(connection, text).catch((error: unknown) => {
    if (["42P01", "42703"].includes(sqlState(error) ?? "")) return [];
    throw error;
  });
  if (rows.length === 0) {
    throw new OperatorError(
      `The database ${where} has a schema "${schemaName}" that is not one of Inkwell's, or whose restore broke off. Nothing was changed. Set another database, or restore the dump again into an empty one.`,
    );
  }
  const applied = rows.map(([version, name, checksum]) => appliedMigration(version, name, checksum));
  const pending = pendingMigrations({ kind: "postgres", where, applied, upgrade });
  if (pending.length === 0) await requireComplete(connection, where);
  return pending;
}

/** Returns the names of the keys, indexes and triggers of the migrations. */
export function namesOfGuards(): string[] {
  const names = new Set<string>();
  const texts = [createMigrationTable, ...readMigrations("postgres").map(({ sql }) => sql)];
  let table = "";
  for (const line of texts.join("\n").split("\n")) {
    const [, verb, kind, name = ""] = made.exec(line) ?? [];
    if (kind === "table") table = name;
    if (verb !== undefined)
      names[verb === "create" ? "add" : "delete"](kind === "table" ? `${name}_pkey` : name);
    const [, columns = ""] = /^ {2}(?:unique \()?(\w+(?:, \w+)*)/.exec(line) ?? [];
    for (const [word, end] of Object.entries({ unique: "key", references: "fkey" }))
      if (columns !== "" && line.split(/\W/).includes(word))
        names.add(`${table}_${columns.replaceAll(", ", "_")}_${end}`);
  }
  return [...names];
}

/**
 * Throws an OperatorError if a key, an index or a trigger of the migrations is missing or does not
 * work. A restore makes or enables them last, and the ledger seems to work without them.
 */
async function requireComplete(connection: Connection, where: string): Promise<void> {
  const [missing] = await ask(
    connection,
    `with relation as (select oid, relname from pg_class where relnamespace = to_regnamespace('${schemaName}'))
     select unnest($1::text[])
     except select relname from relation join pg_index on indexrelid = oid where indisvalid
     except select conname from pg_constraint where contype = 'f' and conrelid in (select oid from relation)
       and oid not in (select tgconstraint from pg_trigger where tgenabled in ('D', 'R'))
     except select tgname from pg_trigger where tgrelid in (select oid from relation)
       and tgenabled in ('O', 'A') order by 1`,
    [namesOfGuards()],
  );
  if (missing === undefined) return;
  throw new OperatorError(
    `The ledger in the database ${where} lacks keys, indexes or triggers, or has disabled ones, such as ${missing[0]}: a restore broke off, or somebody changed the schema. Nothing was changed. Restore the dump again into an empty database.`,
  );
}
