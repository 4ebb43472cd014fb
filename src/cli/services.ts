/**
 * The functions of the composition root, as commands use them. Tests replace some of them.
 *
 * They load their modules when they are called: a command that needs only the ledger starts in
 * less than half of the time that the whole service takes.
 */
import { existsSync } from "node:fs";
import type { backup, OpenStore } from "../app/database.ts";
import type { pullModel } from "../app/models.ts";
import type { startService } from "../app.ts";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import type { SealedReport } from "../store/audit.ts";
import type { PlansInUse } from "../store/plans.ts";
import type { Seal } from "../store/seal.ts";
import { version } from "../version.ts";

interface OpeningOptions {
  /** False refuses a missing ledger. A function is called before it is made, and can refuse. */
  create: false | (() => void);
  /** Who accepts that ledger time is far ahead of the clock. Default: nobody. */
  clockAcceptedBy?: string;
}

export type Services = typeof services;

export const services = {
  version,
  /** Throws if no ledger exists, unless `create`. */
  async openStore(config: Config, options: OpeningOptions): Promise<OpenStore> {
    if (!options.create) requireLedger(config);
    else if (missingFile(config) !== null) options.create();
    const { openStore } = await import("../app/database.ts");
    return await openStore(config, options);
  },
  async startService(...given: Parameters<typeof startService>): ReturnType<typeof startService> {
    const { startService } = await import("../app.ts");
    return await startService(...given);
  },
  async pullModel(...given: Parameters<typeof pullModel>): ReturnType<typeof pullModel> {
    const { pullModel } = await import("../app/models.ts");
    return await pullModel(...given);
  },
  /** Throws if no ledger exists. */
  async audit(config: Config, against: Seal | null = null): Promise<SealedReport> {
    requireLedger(config);
    const { audit } = await import("../app/database.ts");
    return await audit(config, against);
  },
  async backup(...given: Parameters<typeof backup>): ReturnType<typeof backup> {
    const { backup } = await import("../app/database.ts");
    return await backup(...given);
  },
  async readPlansInUse(config: Config): Promise<PlansInUse | null> {
    const { readPlansInUse } = await import("../app/database.ts");
    return await readPlansInUse(config);
  },
};

/** Throws if the SQLite file is missing. PostgreSQL is only asked when it is opened. */
function requireLedger(config: Config): void {
  const missing = missingFile(config);
  if (missing === null) return;
  throw new OperatorError(
    `There is no ledger at ${missing}. The first "${inkwell("serve")}" or "${inkwell("account create")}" makes one; if it ` +
      "exists elsewhere, run the command in the folder of its inkwell.yaml, or name that file with --config or " +
      "INKWELL_CONFIG, its data folder with INKWELL_DATA, or the database with INKWELL_DATABASE.",
  );
}

function missingFile({ database }: Config): string | null {
  return database.kind === "sqlite" && !existsSync(database.path) ? database.path : null;
}
