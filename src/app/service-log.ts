/** Log lines of the service about its environment, the other nodes and its end. */
import type { Logger } from "pino";
import { keyFileLeft } from "../accounts/first-account.ts";
import type { Config } from "../config/load.ts";
import { messageOf } from "../errors.ts";
import type { Abandoned } from "../http/public/running-requests.ts";
import type { NodeView } from "../store/nodes.ts";
import type { Store } from "../store/store.ts";

export function logIgnoredVariables(logger: Logger, { ignoredVariables: variables }: Config): void {
  if (variables.length === 0) return;
  logger.info(
    { variables },
    "variables that Kubernetes sets for Services are ignored; enableServiceLinks: false in the pod removes them",
  );
}

/** Reminds of the file of the first key, as long as it is there. */
export async function logKeyFile(logger: Logger, store: Store, file: string): Promise<void> {
  try {
    const left = await keyFileLeft(store, file);
    if (left === null) return;
    if (left.works)
      logger.warn({ file }, "the first key is still in this file; store it safely and delete the file");
    else logger.warn({ file }, "the key in this file does not work; delete the file");
  } catch (error) {
    logger.warn({ file, reason: messageOf(error) }, "the file of the first key cannot be checked");
  }
}

export function logDiffering(logger: Logger, differing: readonly NodeView[]): void {
  for (const { id, differs } of differing) {
    logger.warn({ node: id, differs }, "another node on this database has another configuration");
  }
  if (differing.length === 0) {
    logger.info("all nodes on this database have the same configuration again");
  }
}

export function logAbandoned(logger: Logger, { unread, unsettled }: Abandoned): void {
  if (unread > 0) {
    logger.warn(
      { unread },
      "answers have not been read to their end and are cut off; their charges are recorded in full",
    );
  }
  if (unsettled > 0) {
    logger.error(
      { unsettled },
      "requests are still not settled; if their charges cannot be recorded now, their holds expire and are charged by their last checkpoint",
    );
  }
}
