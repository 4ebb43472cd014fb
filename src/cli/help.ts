/** The text of `--help`, and the line that follows an error of usage. */
import { Command, Help } from "commander";
import { inkwell, shipped } from "../invocation.ts";

const tour = [
  ["serve", "start it; the first start makes a key"],
  ["chat", "talk to it, from another terminal"],
  ["account create ada --plan starter", "open an account,"],
  ["key create ada", "issue a key for it,"],
  ["credits add ada 50000 --payment inv-2041", "add what was paid for,"],
  ["usage ada", "and see its usage"],
] as const;
const tourWidth = Math.max(...tour.map(([args]) => inkwell(args).length));

const plain = Object.assign(new Help(), { showGlobalOptions: true });

/** Returns the program without its subcommands. */
export function rootCommand(version: string): Command {
  return new Command(inkwell())
    .description("A self-hosted, OpenAI-compatible text-generation server with an exact credit ledger.")
    .version(version, "-V, --version", "print the version")
    .option("--config <file>", "the configuration to read (default: INKWELL_CONFIG, or inkwell.yaml here)")
    .option(
      "--server <url>",
      "the operator listener of a service elsewhere (or INKWELL_SERVER), with the operator key in INKWELL_OPERATOR_KEY",
    )
    .option("--json", "one JSON document on stdout, nothing else; also for errors")
    .commandsGroup("More:")
    .addHelpText(
      "after",
      `
A first tour, in the folder of the service:
${tour.map(([args, purpose]) => `  ${inkwell(args).padEnd(tourWidth)}  ${purpose}`).join("\n")}

Commands ask the running service of this folder, or --server. Without a service they work on the ledger itself; only chat, reload, console and models draft need one.
Exit codes: 0 done, 1 refused (stderr has the reason), 2 wrong usage. Results go to stdout, remarks to stderr.
With --json, an error is one line on stdout: {"error":{"code","message"}}. ${shipped("docs/cli.md")} describes every document.
Settings and their variables: ${shipped("inkwell.example.yaml")}. Operation: ${shipped("docs/operating/README.md")}, and as pages with a search: /docs of the operator listener.`,
    );
}

/** Returns example lines, to be shown below the help of a command. */
export function examples(...lines: string[]): string {
  return ["", lines.length === 1 ? "Example:" : "Examples:", ...lines.map((line) => `  ${line}`)].join("\n");
}

/** Configures the help of a command: its full usage, required options, and a hint after errors. */
export function explainUse(command: Command): void {
  if (command.commands.length > 0)
    command.helpCommand("help [command...]", "the same as --help after the command");
  command
    .usage(usageOf(command))
    .helpOption("-h, --help", "show this")
    .showHelpAfterError(`For help: ${pathOf(command)} --help`)
    .configureHelp({
      showGlobalOptions: true,
      visibleGlobalOptions: (of) => plain.visibleGlobalOptions(of).filter(({ long }) => long !== "--version"),
      commandDescription: (of) => sentence(of.description()),
      subcommandTerm: (of) => [of.name(), ...argumentsOf(of), ...(needsCommand(of) ? ["..."] : [])].join(" "),
      optionDescription: (option) =>
        `${plain.optionDescription(option)}${option.mandatory ? " (required)" : ""}`,
    });
}

function usageOf(command: Command): string {
  const required = command.options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags);
  const isMore = command.options.some(({ mandatory }) => !mandatory);
  return [
    ...argumentsOf(command),
    ...required,
    ...(isMore ? ["[options]"] : []),
    ...(needsCommand(command) ? ["<command>"] : []),
  ].join(" ");
}

function argumentsOf(command: Command): string[] {
  return command.registeredArguments.map((each) => (each.required ? `<${each.name()}>` : `[${each.name()}]`));
}

/**
 * True for a group without an action of its own. `models` has one, and takes its subcommand as an
 * argument.
 */
function needsCommand(command: Command): boolean {
  return command.commands.length > 0 && command.registeredArguments.length === 0;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}
