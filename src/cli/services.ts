/** The composition root as the commands see it. */
import { audit, backup, openStore } from "../app/database.ts";
import { pullModel } from "../app/models.ts";
import { serve, version } from "../app.ts";
import type { Services } from "./cli.ts";
import { requireLedger } from "./refusals.ts";

export const services: Services = {
  version,
  openStore: async (config, { make }) => {
    if (!make) requireLedger(config);
    return await openStore(config);
  },
  serve,
  pullModel,
  audit: async (config) => {
    requireLedger(config);
    return await audit(config);
  },
  backup,
};
