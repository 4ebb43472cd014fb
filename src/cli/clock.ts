/** `inkwell clock accept`: lets ledger time stand although it is far ahead of the clock. */
import { Command } from "commander";
import { isoTime } from "../accounts/json-objects.ts";
import { commandLine } from "../actors.ts";
import type { Cli } from "./cli.ts";
import { userName } from "./operator-api.ts";

export function clockCommand(cli: Cli): Command {
  const clock = new Command("clock").description("start although the clock is far behind the ledger");

  clock
    .command("accept")
    .description("let the time of the ledger stand until the clock has caught up")
    .action(async () => {
      const { store } = await cli.host.services.openStore(await cli.config(), {
        create: false,
        clockAcceptedBy: commandLine(userName()).by,
      });
      try {
        const { clockMs, ledgerMs } = await store.clock();
        const [clock_at, ledger_at] = [isoTime(clockMs), isoTime(ledgerMs)];
        cli.print({ clock_at, ledger_at }, "");
        cli.remark(`The time of the ledger stands at ${ledger_at} until the clock has caught up.`);
      } finally {
        await store.close();
      }
    });

  return clock;
}
