/** The address of the operator listener, as a file for commands on this machine. */
import type { Logger } from "pino";
import { databaseText } from "../config/database.ts";
import type { Config } from "../config/load.ts";
import { clientUrl } from "../http/listening.ts";
import { writeOperatorAddress } from "../operator-address.ts";
import type { StartupBanner } from "./startup-banner.ts";

/** Returns a function that removes the file. If it cannot be written, only those commands fail. */
export function writeAddress(
  { dataDir, database, operator }: Config,
  { operatorUrl, publicUrl: api }: Pick<StartupBanner, "operatorUrl" | "publicUrl">,
  logger: Pick<Logger, "warn">,
): () => void {
  const url = clientUrl(operator.host, operatorUrl);
  try {
    return writeOperatorAddress(dataDir, { url, api, pid: process.pid, database: databaseText(database) });
  } catch (err) {
    logger.warn({ err }, "commands on this machine do not find the service: its address was not written");
    return () => {};
  }
}
