/** `inkwell backup`: a copy of the ledger as it is at one moment, also beside a running service. */

import path from "node:path";
import { Command } from "commander";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

export function backupCommand(cli: Cli): Command {
  return new Command("backup")
    .description("copy the ledger into a new file, also beside a running service")
    .argument("<file>", "must not be there yet; readable by its owner only")
    .addHelpText("after", examples("inkwell backup /backups/inkwell-$(date +%F).db"))
    .action((file: string) => backup(cli, file));
}

async function backup(cli: Cli, name: string): Promise<void> {
  const { cwd, services } = cli.host;
  const file = path.resolve(cwd, name);
  const { bytes } = await services.backup(cli.config(), file);
  cli.print({ file, bytes }, "");
  cli.remark(
    `The ledger is copied to ${file} (${grouped(bytes)} bytes). To restore it: docs/operating/backup.md.`,
  );
}
