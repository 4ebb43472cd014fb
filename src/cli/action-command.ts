/**
 * Commands made from actions: arguments and options are the fields of the action. A value that
 * breaks a rule of its field is wrong usage. Nothing is opened then.
 */
import { Command, Option } from "commander";
import { closed } from "../accounts/json-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { placeOf } from "../actions/action.ts";
import type { BoundAction } from "../actions/bind.ts";
import { type Field, type Fields, optional, withWord } from "../actions/field.ts";
import { inputOf, propertiesOf } from "../actions/input.ts";
import { Refusal } from "../errors.ts";
import { explain } from "../http/openai-format/explain.ts";
import { inkwell } from "../invocation.ts";
import type { EpochMs } from "../units.ts";
import type { Cli } from "./cli.ts";
import { type Confirmation, requireConfirmed } from "./confirm.ts";
import { examples } from "./help.ts";

interface CommandOf<Result> {
  /** Words of the command. Default: those of the action. */
  words?: string;
  /** Default: the title of the action. */
  about?: string;
  /** Values that the command has and its user does not give. */
  preset?: object;
  /** The result for people, on stdout. */
  text?(result: Result, nowMs: EpochMs): string;
  /** Asked before a change that cannot be undone, unless `--yes` is given. */
  confirm?: Confirmation;
  /** What was done, on stderr. Default: what the action says, `done`. */
  remark?(result: Result, done: string): string;
}

/** Adds the command of an action below its group. */
export function addAction<Result>(
  cli: Cli,
  group: Command,
  bound: BoundAction<OperatorActions, Result>,
  options: CommandOf<Result> = {},
): void {
  group.addCommand(actionCommand(cli, bound, options));
}

/** Returns the command of an action. */
export function actionCommand<Result>(
  cli: Cli,
  bound: BoundAction<OperatorActions, Result>,
  options: CommandOf<Result> = {},
): Command {
  const { action } = bound;
  const { words = action.cli ?? "", about = action.title, preset = {}, text, confirm, remark } = options;
  const [name = "", ...args] = words.split(" ").slice(words.includes(" ") ? 1 : 0);
  const command = new Command(name).description(about.charAt(0).toLowerCase() + about.slice(1));
  const { once } = action;
  const own = fieldsWithout(action.input, Object.keys(preset));
  const id = once === undefined ? undefined : own[once];
  const fields = once === undefined || id === undefined ? own : { ...own, [once]: optional(id) };
  const read = withFields(command, fields, { args });
  const lines = action.examples ?? [];
  if (lines.length > 0) command.addHelpText("after", examples(...lines.map(exampleOf)));
  if (confirm !== undefined) command.option("--yes", "do not ask");
  command.action(async () => {
    const json: Record<string, unknown> = { ...read(), ...preset };
    if (once !== undefined) json[once] ??= cli.newOperation(command.name());
    if (placeOf(action).method === "PATCH" && !isAnyGiven(command))
      command.error("error: nothing to change: name at least one setting");
    const config = cli.config();
    requireSound(command, fields, () => bound.check(json, config.timezone));
    if (confirm !== undefined && command.getOptionValue("yes") !== true) await requireConfirmed(cli, confirm);
    await cli.withActions(config, async (actions) => {
      const { result, done } = await bound.run(actions, json);
      const shown = text === undefined ? "" : text(result, actions.ledgerMs());
      cli.print(result, shown);
      const said = remark?.(result, done ?? "") ?? done;
      if (said !== null && said !== "") cli.remark(said);
    });
  });
  return command;
}

function isAnyGiven(command: Command): boolean {
  return Object.values(command.opts()).some((value) => value !== undefined);
}

/** `key create ada` and `KEY=$(key create ada)` are examples. */
function exampleOf(line: string): string {
  const [, before = "", args = ""] = /^(\w+=\$\()?(.*)$/.exec(line) ?? [];
  return before + inkwell(args);
}

function fieldsWithout(fields: Fields, names: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));
}

interface Words {
  /** Arguments, such as `<account>`. */
  args?: readonly string[];
}

/**
 * Adds arguments and options to a command. Returns how to read them as an object that fits the
 * schemas of the fields. A fault ends the command.
 */
export function withFields(
  command: Command,
  fields: Fields,
  words: Words = {},
): () => Record<string, unknown> {
  const { args = [] } = words;
  const named = args.map((word) => word.slice(1, -1));
  for (const name of named) command.argument(`<${name}>`, aboutOf(name, fields[name]));
  const options = fieldsWithout(fields, named);
  addOptions(command, options);
  return () => {
    const given = named.map((name, n) => [name, parsed(fields[name], command.args[n])] as const);
    const json: Record<string, unknown> = { ...Object.fromEntries(given), ...read(command, options) };
    requireSound(command, fields, () => {
      const fault = explain(closed(propertiesOf(fields)), json, "");
      if (fault !== null) throw fault;
      inputOf(fields, json, "UTC");
    });
    return json;
  };
}

function addOptions(command: Command, fields: Fields): void {
  for (const [name, field] of Object.entries(fields)) {
    const { isNullable = false, isOptional = false, kind } = field;
    const word = isNullable ? emptyWord(field) : null;
    if (kind === "group") addOptions(command, optionalParts(field.fields));
    else {
      const removes = word === null ? "" : `; ${word} removes it`;
      const option = new Option(flagsOf(name, field), aboutOf(name, field) + removes);
      if (kind === "choice") option.choices(field.values);
      command.addOption(option.makeOptionMandatory(!isOptional));
    }
    if (isNullable && word === null) {
      const flag = flagOf(name, field);
      command.option(`--no-${flag.slice(2)}`, `remove what ${flag} has set`);
    }
  }
}

/** Returns the word that removes a setting, as it is shown; null if an option `--no-...` does. */
function emptyWord({ kind, isRemovedByEmpty = false }: Field): string | null {
  if (kind === "moment") return '"never"';
  return isRemovedByEmpty ? '""' : null;
}

/** The parts that a group needs are checked with all options at hand. */
function optionalParts(fields: Fields): Fields {
  const parts = Object.entries(fields).map(([name, field]) => [name, { ...field, isOptional: true }]);
  return Object.fromEntries(parts);
}

function read(command: Command, fields: Fields): Record<string, unknown> {
  const values = Object.entries(fields).flatMap(([name, field]) => {
    const value = valueAt(command, name, field);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(values);
}

function valueAt(command: Command, name: string, field: Field): unknown {
  const value: unknown = command.getOptionValue(attributeOf(name, field));
  if (field.kind !== "group") return value === false && field.isNullable ? null : parsed(field, value);
  const parts = read(command, field.fields);
  if (value !== false) return Object.keys(parts).length === 0 ? undefined : parts;
  const others = Object.entries(field.fields).filter(([part]) => part in parts && parts[part] !== false);
  if (others.length === 0) return null;
  const flags = others.map(([part, each]) => flagOf(part, each)).join(" and ");
  return command.error(`error: --no-${flagOf(name, field).slice(2)} excludes ${flags}`);
}

/** Returns the value as JSON. What cannot be parsed stays, and is refused by its schema. */
function parsed(field: Field | undefined, word: unknown): unknown {
  if (field === undefined || typeof word !== "string") return word;
  if (field.isNullable && emptyWord(field) === `"${word}"`) return null;
  if (field.kind === "number") return /^[+-]?\d{1,15}$/.test(word) ? Number(word) : word;
  if (field.kind === "texts") return word.split(",").map((each) => each.trim());
  return word;
}

/** Ends the command with the fault of its input, in the words of the command line. */
function requireSound(command: Command, fields: Fields, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    command.error(`error: ${withFlags(error.message, fields).replace(", or null", "")}`);
  }
}

/** Returns a message of the API with options in the place of its names. */
function withFlags(message: string, fields: Fields, path = ""): string {
  return Object.entries(fields).reduce((text, [name, field]) => {
    const inParts = field.kind === "group" ? withFlags(text, field.fields, `${path}${name}.`) : text;
    if (field.option === undefined && path === "") return inParts;
    return withWord(inParts, path + name, (index) => flagOf(name, field) + index);
  }, message);
}

function flagsOf(name: string, { option, kind }: Field): string {
  return option ?? `--${name.replaceAll("_", "-")}${kind === "flag" ? "" : " <value>"}`;
}

function flagOf(name: string, field: Field): string {
  return flagsOf(name, field).split(" ", 1)[0] ?? "";
}

function attributeOf(name: string, field: Field): string {
  return new Option(flagsOf(name, field)).attributeName();
}

function labelOf(name: string, { label = name.replaceAll("_", " ") }: Field): string {
  return label;
}

function aboutOf(name: string, field: Field | undefined): string {
  return field === undefined ? "" : (field.about ?? labelOf(name, field).toLowerCase());
}
