/** The services of the composition root, as commands use them. */
import { existsSync } from "node:fs";
import { audit, backup, openStore } from "../app/database.ts";
import { pullModel } from "../app/models.ts";
import { startService, version } from "../app.ts";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import type { Services } from "./cli.ts";

export const services: Services = {
  version,
  openStore: async (config, { create }) => {
    if (!create) requireLedger(config);
    return await openStore(config);
  },
  startService,
  pullModel,
  audit: async (config) => {
    requireLedger(config);
    return await audit(config);
  },
  backup,
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
