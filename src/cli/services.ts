/** The functions of the composition root, as commands use them. Tests replace some of them. */
import { existsSync } from "node:fs";
import { audit, backup, type OpenStore, openStore, readPlans } from "../app/database.ts";
import { pullModel } from "../app/models.ts";
import { startService, version } from "../app.ts";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import type { AuditReport } from "../store/audit.ts";

export type Services = typeof services;

export const services = {
  version,
  /** Reports whether the next command makes the ledger. On PostgreSQL only opening it tells. */
  isNew({ database }: Config): boolean {
    return database.kind === "sqlite" && !existsSync(database.path);
  },
  /** Throws if no ledger exists, unless `create`. */
  async openStore(config: Config, { create }: { create: boolean }): Promise<OpenStore> {
    if (!create) requireLedger(config);
    return await openStore(config);
  },
  startService,
  pullModel,
  /** Throws if no ledger exists. */
  async audit(config: Config): Promise<AuditReport> {
    requireLedger(config);
    return await audit(config);
  },
  backup,
  readPlans,
};

/**
 * Throws if the SQLite file is missing. On PostgreSQL an empty ledger is only detected when it is
 * opened.
 */
function requireLedger({ database }: Config): void {
  if (database.kind === "postgres" || existsSync(database.path)) return;
  throw new OperatorError(
    `There is no ledger at ${database.path}. The first "inkwell serve" or "inkwell account create" makes one; if it ` +
      "exists elsewhere, run the command in the folder of its inkwell.yaml, or name that file with --config or " +
      "INKWELL_CONFIG, or the database with INKWELL_DATABASE.",
  );
}
