/**
 * The command line as a whole: parses it, runs one command, and turns whatever happens into an exit code: 0 for
 * success, 1 for a refusal, 2 for wrong usage.
 */
import { type Command, CommanderError } from "commander";
import { StoreUnavailableError } from "../credits/patience.ts";
import { OperatorError } from "../errors.ts";
import { accountCommand } from "./account.ts";
import { auditCommand } from "./audit.ts";
import { backupCommand } from "./backup.ts";
import { balanceCommand } from "./balance.ts";
import { chatCommand } from "./chat.ts";
import { Cli, type GlobalOptions, type Host } from "./cli.ts";
import { configCommand } from "./config.ts";
import { creditsCommand } from "./credits.ts";
import { explainUse, rootCommand } from "./help.ts";
import { keyCommand } from "./key.ts";
import { modelsCommand } from "./models.ts";
import { serveCommand } from "./serve.ts";
import { usageCommand } from "./usage.ts";

/** Of what is no terminal. */
const plainColumns = 100;

/** `argv` without the program itself. */
export async function run(argv: readonly string[], host: Host): Promise<number> {
  const program = rootCommand(host.services.version);
  const cli = new Cli(host, () => program.opts<GlobalOptions>());
  const groups = {
    "The service:": [serveCommand, chatCommand, modelsCommand, configCommand],
    "Accounts and credits:": [accountCommand, keyCommand, creditsCommand, balanceCommand, usageCommand],
    "The ledger:": [auditCommand, backupCommand],
  };
  for (const [heading, commands] of Object.entries(groups)) {
    for (const command of commands) program.addCommand(command(cli).helpGroup(heading));
  }
  settle(program, host);
  try {
    await program.parseAsync(argv, { from: "user" });
    return cli.exitCode;
  } catch (error) {
    return explained(error, host);
  }
}

/** The same manners for every command: nothing exits by itself, nothing writes but to the host's streams. */
function settle(command: Command, host: Host): void {
  explainUse(command);
  command.exitOverride().configureOutput({
    writeOut: (text) => host.stdout.write(text),
    writeErr: (text) => host.stderr.write(text),
    getOutHelpWidth: () => host.stdout.columns ?? plainColumns,
    getErrHelpWidth: () => host.stderr.columns ?? plainColumns,
  });
  for (const each of command.commands) settle(each, host);
}

function explained(error: unknown, { stderr }: Host): number {
  if (error instanceof CommanderError) {
    // Commander has written what is wrong, or the help that was asked for.
    return error.exitCode === 0 ? 0 : 2;
  }
  if (error instanceof OperatorError) {
    stderr.write(`${error.message}\n`);
  } else if (error instanceof StoreUnavailableError) {
    stderr.write(
      `The ledger could not be read or written: ${error.message}.\nSending the same command again is safe, ` +
        "also where this one was done after all: with the same --payment or --id nothing is counted twice.\n",
    );
  } else {
    stderr.write(
      `This is a defect of Inkwell, please report it:\n${error instanceof Error ? error.stack : error}\n`,
    );
  }
  return 1;
}
