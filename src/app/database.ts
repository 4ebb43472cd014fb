/** Opens the configured database of the ledger: SQLite or PostgreSQL. */
import { existsSync } from "node:fs";
import type { Config } from "../config/load.ts";
import { Ledger, type LedgerOptions } from "../ledger/batcher.ts";
import type { AuditReport } from "../store/audit.ts";
import { type NodeRegistry, soleNode } from "../store/nodes.ts";
import type { PlansInUse } from "../store/plans.ts";
import { auditDatabase } from "../store/postgres/audit.ts";
import { pgDumpInstead } from "../store/postgres/connection.ts";
import { plansInUseAt } from "../store/postgres/plans.ts";
import { requireSchema } from "../store/postgres/schema.ts";
import { commitGiveUpMs, commitQueues, commitRetriesMs, openPostgresStore } from "../store/postgres/store.ts";
import { auditFile } from "../store/sqlite/audit.ts";
import { type Backup, backUpSqlite } from "../store/sqlite/backup.ts";
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

/** Opens the ledger. Creates its folder if it is missing. */
export async function openStore(config: Config, options: LedgerOptions = {}): Promise<OpenDatabase> {
  const { database, plans } = config;
  if (database.kind === "sqlite") {
    const store = await openSqliteStore({ path: database.path, plans });
    return { store, ledger: new Ledger(store, options), nodes: soleNode() };
  }
  const store = await openPostgresStore({ url: database.url, plans });
  return {
    store,
    ledger: new Ledger(store, {
      commitQueues,
      retriesMs: commitRetriesMs,
      giveUpMs: commitGiveUpMs,
      ...options,
    }),
    nodes: store.nodes,
  };
}

/**
 * Reads the plans of the present ledger without changing it. Null if there is none yet, which only
 * SQLite can report.
 */
export async function readPlans({ database }: Config): Promise<PlansInUse | null> {
  if (database.kind === "sqlite") {
    if (!existsSync(database.path)) return null;
    return plansInUseIn({ path: database.path, busyMs: readBusyMs });
  }
  const { signal } = new AbortController();
  await requireSchema(database.url, signal);
  return await plansInUseAt(database.url, signal);
}

/** Copies the present ledger into a new file. The service may be running. */
export async function backup(config: Config, file: string): Promise<Backup> {
  const { database } = config;
  if (database.kind === "postgres") throw pgDumpInstead(database.url, file);
  return backUpSqlite({ path: database.path, busyMs: readBusyMs }, file);
}

/** Checks the present ledger without changing it. The service may be running. */
export async function audit(config: Config): Promise<AuditReport> {
  const { database } = config;
  if (database.kind === "sqlite") {
    return auditFile({ file: { path: database.path, busyMs: readBusyMs }, nowMs: Date.now() });
  }
  const { signal } = new AbortController();
  await requireSchema(database.url, signal);
  return await auditDatabase(database.url, null, signal);
}
