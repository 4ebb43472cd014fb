/**
 * The command line as a whole: parses it, runs one command, and turns the outcome into an exit
 * code: 0 for success, 1 for a refusal, 2 for wrong usage. Errors go to stderr as text, or with
 * --json to stdout as one line of JSON.
 */
import { type Command, CommanderError } from "commander";
import { nearest } from "../spelling.ts";
import { visibleText } from "../visible-text.ts";
import { accountCommand } from "./account.ts";
import { balanceCommand } from "./balance.ts";
import { Cli, type GlobalOptions, OutputClosed } from "./cli.ts";
import { creditsCommand } from "./credits.ts";
import { eventsCommand } from "./events.ts";
import { commandFailureOf, failureLine } from "./failure.ts";
import { findCommand } from "./find.ts";
import { explainUse, rootCommand } from "./help.ts";
import type { Host } from "./host.ts";
import { keyCommand } from "./key.ts";
import { linkCommand } from "./link.ts";
import { logCommand, operatorKeyCommand } from "./operator-key.ts";
import { personCommand } from "./person.ts";
import { plansCommand } from "./plans.ts";
import { reloadCommand } from "./reload.ts";
import { requestsCommand } from "./requests.ts";
import { usageCommand } from "./usage.ts";

/** Width of help that is not written to a terminal. */
const plainColumns = 100;

/** Runs `argv`, without the program itself, and returns the exit code. */
export async function run(argv: readonly string[], host: Host): Promise<number> {
  const program = rootCommand(host.services.version);
  const cli = new Cli(host, () => program.opts<GlobalOptions>());
  const made = (heading: string, makers: readonly ((cli: Cli) => Command)[]) =>
    makers.map((make) => make(cli).helpGroup(heading));
  const requests = [
    ...made("The service:", [reloadCommand, requestsCommand, eventsCommand]),
    ...made("Accounts and credits:", [findCommand, accountCommand, keyCommand, creditsCommand]),
    ...made("Accounts and credits:", [balanceCommand, usageCommand, plansCommand]),
    ...made("People and operators:", [personCommand, linkCommand, operatorKeyCommand, logCommand]),
  ];
  const first = firstCommand(program, argv);
  const isRequest = requests.some((command) => command.name() === first);
  const { ofService, ofLedger } = isRequest ? { ofService: [], ofLedger: [] } : await commandsByHand();
  const commands = [...made("The service:", ofService), ...requests, ...made("The ledger:", ofLedger)];
  for (const command of commands) program.addCommand(command);
  const complaint: string[] = [];
  configure(program, host, argv, complaint);
  try {
    await using closing = cli;
    await program.parseAsync(first === "help" ? helpWords(program, argv) : argv, { from: "user" });
    return closing.exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    if (error instanceof OutputClosed) return cli.exitCode;
    const failure = commandFailureOf(error, complaint.join(""), cli.operation);
    if (cli.json) host.stdout.write(`${visibleText(failureLine(failure))}\n`);
    else host.stderr.write(visibleText(failure.text));
    return failure.code === "wrong_usage" ? 2 : 1;
  }
}

/** Returns the first word that is no option of the program, and not the value of one. */
function firstCommand({ options }: Command, argv: readonly string[]): string | undefined {
  const withValue = options.flatMap(({ long, required }) => (required && long ? [long] : []));
  return argv.find((word, n) => !word.startsWith("-") && !withValue.includes(argv[n - 1] ?? ""));
}

/** `help key create` is `key help create`: a command `help` knows the commands below its own. */
function helpWords({ commands }: Command, argv: readonly string[]): readonly string[] {
  const at = argv.indexOf("help");
  const [group = "", ...rest] = argv.slice(at + 1);
  const isGroup = commands.some((each) => each.name() === group && each.commands.length > 0);
  return isGroup && rest.length > 0 ? [...argv.slice(0, at), group, "help", ...rest] : argv;
}

/** The process of a request is small and starts soon, because it does not load them. */
async function commandsByHand() {
  const { ofService, ofLedger } = await import("./by-hand.ts");
  return { ofService, ofLedger };
}

/**
 * Sets up every command so that it does not exit the process, and collects errors for the end of
 * `run`.
 */
function configure(command: Command, host: Host, argv: readonly string[], complaint: string[]): void {
  explainUse(command);
  command.exitOverride().configureOutput({
    writeOut: (text) => host.stdout.write(text),
    writeErr: (text) => complaint.push(text),
    outputError: (text, write) => write(text + misspelledOption(command, argv, text)),
    getOutHelpWidth: () => host.stdout.columns ?? plainColumns,
    getErrHelpWidth: () => host.stderr.columns ?? plainColumns,
  });
  for (const each of command.commands) configure(each, host, argv, complaint);
}

/**
 * Suggests an option for a misspelled one: Commander reports a missing required option before an
 * unknown option.
 */
function misspelledOption(command: Command, argv: readonly string[], text: string): string {
  if (!text.startsWith("error: required option")) return "";
  const known = longOptionsOf(command);
  const unknown = beforeDashes(argv)
    .map((word) => word.split("=", 1)[0] ?? "")
    .find((word) => word.startsWith("--") && !known.includes(word));
  if (unknown === undefined) return "";
  const near = nearest(unknown, known);
  return `(Unknown option '${unknown}'.${near === undefined ? "" : ` Did you mean ${near}?`})\n`;
}

/** Returns the options of the command and of its parents. */
function longOptionsOf(command: Command): string[] {
  const own = command.options.flatMap(({ long }) => long ?? []);
  return command.parent === null ? own : [...own, ...longOptionsOf(command.parent)];
}

/** Returns the words before `--`. All words after it are arguments. */
function beforeDashes(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf("--");
  return end < 0 ? argv : argv.slice(0, end);
}
