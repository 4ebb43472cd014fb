/** `inkwell clock`: shows whether the ledger trusts its clock, and accepts the clock. */
import { Command } from "commander";
import { isoTime } from "../accounts/json-objects.ts";
import { acceptedClockObject, clockObject } from "../accounts/operator-objects.ts";
import { inkwell } from "../invocation.ts";
import type { AcceptedClock } from "../ledger/clock.ts";
import { type EpochMs, momentRule } from "../units.ts";
import { moment } from "./arguments.ts";
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
          const lines = [`clock   ${isoTime(state.clockMs)}`, `ledger  ${isoTime(state.ledgerMs)}`];
          cli.print(clockObject.of(state), lines.join("\n"));
          cli.remark(
            state.isTrusted
              ? "The clock is trusted."
              : `The clock is not trusted. Correct it, or accept it with the true time: ${inkwell("clock accept TIME")}`,
          );
        },
        { warnsOfClock: false },
      ),
    );

  clock
    .command("accept")
    .description("believe the clock: check first that it shows the true time")
    .argument("<time>", `the true time, to within a minute, ${momentRule}`, moment)
    .addHelpText("after", examples(inkwell("clock accept 2027-01-31T18:04Z")))
    .action((timeMs: EpochMs) =>
      cli.withActions(
        cli.config(),
        async (actions) => {
          const accepted = await actions.acceptClock(timeMs);
          cli.print(acceptedClockObject.of(accepted), "");
          cli.remark(`${continued(accepted)} Running services follow within 5 s.`);
        },
        { warnsOfClock: false },
      ),
    );

  return clock;
}

function continued({ ledgerMs, clockMs }: AcceptedClock): string {
  return ledgerMs <= clockMs
    ? `The ledger continues at ${isoTime(clockMs)}, after ${isoTime(ledgerMs)}.`
    : `The ledger continues at ${isoTime(ledgerMs)}, at half pace until the clock has caught up.`;
}
