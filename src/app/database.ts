/**
 * Opens the configured database of the ledger: SQLite or PostgreSQL. The modules of PostgreSQL are
 * loaded for it only.
 */
import { existsSync, rmSync } from "node:fs";
import { eventSettingsOf } from "../config/events.ts";
import type { Config } from "../config/load.ts";
import type { EventSettings } from "../ledger/events.ts";
import { Ledger, type LedgerOptions } from "../ledger/ledger.ts";
import type { SealedReport } from "../store/audit.ts";
import { type UpgradeListener, upgradeBegins } from "../store/migrations.ts";
import { type NodeRegistry, soleNode } from "../store/nodes.ts";
import type { PlansInUse } from "../store/plans.ts";
import type { Seal } from "../store/seal.ts";
import { auditFile } from "../store/sqlite/audit.ts";
import { type Backup, backUpSqlite } from "../store/sqlite/backup.ts";
import { needsUpgrade } from "../store/sqlite/file.ts";
import { plansInUseIn } from "../store/sqlite/plans-in-use.ts";
import { openSqliteStore } from "../store/sqlite/store.ts";
import type { Store } from "../store/store.ts";

export interface OpenStore {
  store: Store;
  ledger: Ledger;
}

/** The ledger, and the registry of the processes that share its database. */
export interface OpenDatabase extends OpenStore {
  nodes: NodeRegistry;
}

/**
 * Time that a backup or an audit waits for another process to recover the database after a crash.
 */
const readBusyMs = 5000;

/**
 * Opens the ledger, and migrates it if an older version made it. An SQLite file is copied before,
 * and `onUpgrade` gets the name of the copy. If the file cannot be migrated, it is unchanged, and
 * no copy stays.
 */
export async function openUpgradedStore(
  config: Config,
  options: StoreOptions & { onUpgrade: UpgradeListener },
): Promise<OpenDatabase> {
  const copy = copyBeforeUpgrade(config, options.onUpgrade);
  try {
    const opened = await openStore(config, { ...options, upgrade: true });
    if (copy !== null) options.onUpgrade("the ledger was upgraded; this copy is from before", { file: copy });
    return opened;
  } catch (error) {
    if (copy !== null && isUnchanged(config)) rmSync(copy);
    throw error;
  }
}

/** Returns false in doubt. The caller reports the error that came first. */
function isUnchanged({ database }: Config): boolean {
  try {
    return database.kind === "sqlite" && needsUpgrade({ path: database.path, busyMs: readBusyMs });
  } catch {
    return false;
  }
}

/** Returns the file of the copy, or null if there is nothing to migrate. */
function copyBeforeUpgrade({ database }: Config, onUpgrade: UpgradeListener): string | null {
  if (database.kind === "postgres") return null;
  const file = { path: database.path, busyMs: readBusyMs };
  if (!needsUpgrade(file)) return null;
  onUpgrade(upgradeBegins);
  const time = new Date().toISOString().replaceAll(":", "-");
  const copy = `${database.path}.before-upgrade-${time}`;
  backUpSqlite(file, copy);
  return copy;
}

interface StoreOptions extends LedgerOptions {
  /** As in `Migrating`. PostgreSQL only. */
  create?: boolean | (() => void);
  upgrade?: boolean;
  onUpgrade?: UpgradeListener;
  /** Aborts a migration of PostgreSQL, which may wait for other sessions. */
  signal?: AbortSignal;
  /** Who accepts that ledger time is far ahead of the clock. Default: nobody. */
  clockAcceptedBy?: string;
  /** The present configuration of events. Default: that of the configuration. */
  events?: () => EventSettings | null;
}

/**
 * Opens the ledger. Creates it with its folder if it is missing. Throws an OperatorError if an
 * older version made it, unless `upgrade`.
 */
export async function openStore(config: Config, given: StoreOptions = {}): Promise<OpenDatabase> {
  const { database, plans, workers } = config;
  const { create = true, upgrade = false, events = () => eventSettingsOf(config.events) } = given;
  const { clockAcceptedBy = null, onUpgrade, signal, ...options } = given;
  const opening = { plans, create, upgrade, events, clockAcceptedBy };
  if (database.kind === "sqlite") {
    const store = await openSqliteStore({ path: database.path, ...opening });
    return { store, ledger: new Ledger(store, options), nodes: soleNode() };
  }
  const { commitGiveUpMs, commitRetriesMs, openPostgresStore } = await import("../store/postgres/store.ts");
  const store = await openPostgresStore({ url: database.url, workers, onUpgrade, signal, ...opening });
  return {
    store,
    ledger: new Ledger(store, { retriesMs: commitRetriesMs, giveUpMs: commitGiveUpMs, ...options }),
    nodes: store.nodes,
  };
}

/**
 * Reads the plans of the present ledger without changing it. Null if there is none yet, which only
 * SQLite can report.
 */
export async function readPlansInUse({ database }: Config): Promise<PlansInUse | null> {
  if (database.kind === "sqlite") {
    if (!existsSync(database.path)) return null;
    return plansInUseIn({ path: database.path, busyMs: readBusyMs });
  }
  const { requireSchema } = await import("../store/postgres/schema.ts");
  const { plansInUseAt } = await import("../store/postgres/plans.ts");
  await requireSchema(database.url);
  return await plansInUseAt(database.url);
}

/** Copies the present ledger into a new file. The service may be running. */
export async function backup(config: Config, file: string): Promise<Backup> {
  const { database } = config;
  if (database.kind === "postgres") {
    const { pgDumpInstead } = await import("../store/postgres/connection-pool.ts");
    throw pgDumpInstead(database.url, file);
  }
  return backUpSqlite({ path: database.path, busyMs: readBusyMs }, file);
}

/** Checks the present ledger without changing it. The service may be running. */
export async function audit(config: Config, against: Seal | null = null): Promise<SealedReport> {
  const { database } = config;
  if (database.kind === "sqlite") {
    return auditFile({ file: { path: database.path, busyMs: readBusyMs }, nowMs: Date.now(), against });
  }
  const { requireSchema } = await import("../store/postgres/schema.ts");
  const { auditDatabase } = await import("../store/postgres/audit.ts");
  await requireSchema(database.url);
  return await auditDatabase(database.url, null, against);
}
