/** How the command line explains itself: `--help`, and the line below a wrong usage. Decides no behaviour. */
import { Command, Help, type Option } from "commander";

const plain = Object.assign(new Help(), { showGlobalOptions: true });

/** `inkwell` without its commands. */
export function rootCommand(version: string): Command {
  return new Command("inkwell")
    .description("A self-hosted, OpenAI-compatible text-generation server with an exact credit ledger.")
    .version(version, "-V, --version", "print the version")
    .option("--config <file>", "the configuration to read (default: INKWELL_CONFIG, or inkwell.yaml here)")
    .option("--json", "one JSON document on stdout, nothing else; also for errors")
    .commandsGroup("More:")
    .addHelpText(
      "after",
      `
A first walk, in the folder in which the service runs:
  inkwell serve                                     start it; the first start prints a key
  inkwell chat                                      talk to it, from another terminal
  inkwell account create ada --plan starter         open an account,
  inkwell key create ada                            make it a key,
  inkwell credits add ada 50000 --payment inv-2041  add what was paid for,
  inkwell usage ada                                 and see what it has used

In a checkout "npm run -s inkwell --" stands for "inkwell".

Every command works on the ledger itself, beside a running service or without one.
Exit codes: 0 done, 1 refused (stderr says why), 2 wrong usage. Results go to stdout, remarks to stderr.
With --json an error is one line on stdout, too: {"error":{"code","message"}}. docs/cli.md has the shape of every document.
Settings: inkwell.example.yaml has all of them, with their variables. Operation: docs/operating/README.md.`,
    );
}

/** Lines to copy, for below the help of a command. */
export function examples(...lines: string[]): string {
  return ["", lines.length === 1 ? "Example:" : "Examples:", ...lines.map((line) => `  ${line}`)].join("\n");
}

/** What Commander is to say of a command: how it is used in full, what must be given, where there is more. */
export function explainUse(command: Command): void {
  if (isGroup(command)) command.helpCommand("help [command]", "the same as --help behind the command");
  command
    .usage(usageOf(command))
    .helpOption("-h, --help", "show this")
    .showHelpAfterError(`For how it is used: ${pathOf(command)} --help`)
    .configureHelp({
      showGlobalOptions: true,
      visibleGlobalOptions: (of) => plain.visibleGlobalOptions(of).filter(({ long }) => long !== "--version"),
      commandDescription: (of) => sentence(of.description()),
      subcommandTerm: (of) => [of.name(), ...argumentsOf(of), ...(needsCommand(of) ? ["..."] : [])].join(" "),
      optionDescription: (option) =>
        `${plain.optionDescription(option)}${isRequired(option) ? " (required)" : ""}`,
    });
}

function usageOf(command: Command): string {
  const required = command.options.filter(isRequired).map(({ flags }) => flags);
  const isMore = command.options.some((option) => !isRequired(option));
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

function isGroup({ commands }: Command): boolean {
  return commands.length > 0;
}

/** A group that does nothing by itself; one that does takes the name of a command as an argument. */
function needsCommand(command: Command): boolean {
  return isGroup(command) && command.registeredArguments.length === 0;
}

function isRequired({ mandatory }: Option): boolean {
  return mandatory;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}
