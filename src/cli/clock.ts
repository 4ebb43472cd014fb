/** `inkwell clock`: shows whether the ledger trusts its clock, and accepts the clock. */
import { userInfo } from "node:os";
import { Command } from "commander";
import { isoTime } from "../accounts/json-objects.ts";
import { acceptedClockObject, clockObject } from "../accounts/operator-objects.ts";
import { inkwell } from "../invocation.ts";
import { note } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

export function clockCommand(cli: Cli): Command {
  const clock = new Command("clock").description("show the clock of the ledger, or accept it after a step");

  clock
    .command("show")
    .description("show the clock, and the time that the ledger uses")
    .action(() =>
      cli.withActions(
        cli.config(),
        async (actions) => {
          const state = await actions.clock();
          const lines = [`clock   ${isoTime(state.clockMs)}`, `ledger  ${isoTime(state.trustedMs)}`];
          cli.print(clockObject.of(state), lines.join("\n"));
          cli.remark(
            state.isTrusted
              ? "The clock is trusted."
              : `The clock is not trusted. Correct it, or accept it: ${inkwell("clock accept")}`,
          );
        },
        { warnsOfClock: false },
      ),
    );

  clock
    .command("accept")
    .description("make the present reading of the clock the time of the ledger; check the clock first")
    .option("--by <name>", "your name, for the record (default: the user of this process)", note)
    .addHelpText("after", examples(inkwell("clock accept --by ada")))
    .action(({ by = userName() }: { by?: string }) =>
      cli.withActions(
        cli.config(),
        async (actions) => {
          const accepted = await actions.acceptClock(by);
          cli.print(acceptedClockObject.of(accepted), "");
          cli.remark(
            `The ledger continues at ${isoTime(accepted.clockMs)}, after ${isoTime(accepted.trustedMs)}. Running services follow within 5 s.`,
          );
        },
        { warnsOfClock: false },
      ),
    );

  return clock;
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // In containers, the user often has no name.
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
}
