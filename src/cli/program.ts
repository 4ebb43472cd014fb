/**
 * The command line as a whole: parses it, runs one command, and turns whatever happens into an exit code: 0 for
 * success, 1 for a refusal, 2 for wrong usage.
 */
import { Command, CommanderError } from "commander";
import { StoreUnavailableError } from "../credits/ledger.ts";
import { OperatorError } from "../errors.ts";
import { accountCommand } from "./account.ts";
import { auditCommand } from "./audit.ts";
import { backupCommand } from "./backup.ts";
import { balanceCommand } from "./balance.ts";
import { chatCommand } from "./chat.ts";
import { Cli, type GlobalOptions, type Host } from "./cli.ts";
import { configCommand } from "./config.ts";
import { creditsCommand } from "./credits.ts";
import { keyCommand } from "./key.ts";
import { modelsCommand } from "./models.ts";
import { serveCommand } from "./serve.ts";
import { usageCommand } from "./usage.ts";

/** `argv` without the program itself. */
export async function run(argv: readonly string[], host: Host): Promise<number> {
  const program = new Command("inkwell");
  const cli = new Cli(host, () => program.opts<GlobalOptions>());
  program
    .description("A self-hosted, OpenAI-compatible text-generation server with an exact credit ledger.")
    .version(host.services.version)
    .option("--config <file>", "read this instead of inkwell.yaml in the working directory")
    .option("--json", "one JSON document on stdout, nothing else");
  const commands = [
    serveCommand,
    chatCommand,
    accountCommand,
    keyCommand,
    creditsCommand,
    balanceCommand,
    usageCommand,
    auditCommand,
    backupCommand,
    modelsCommand,
    configCommand,
  ];
  for (const command of commands) program.addCommand(command(cli));
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
  command
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError("(add --help to see how it is used)")
    .configureOutput({
      writeOut: (text) => host.stdout.write(text),
      writeErr: (text) => host.stderr.write(text),
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
