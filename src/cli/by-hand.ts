/** The commands that are no request: they load the service, or the ledger. */
import { auditCommand, backupCommand } from "./audit-and-backup.ts";
import { chatCommand } from "./chat.ts";
import { clockCommand } from "./clock.ts";
import { configCommand } from "./config.ts";
import { consoleCommand } from "./console.ts";
import { modelsCommand } from "./models.ts";
import { serveCommand } from "./serve.ts";

export const ofService = [serveCommand, consoleCommand, chatCommand, modelsCommand, configCommand];
export const ofLedger = [auditCommand, backupCommand, clockCommand];
