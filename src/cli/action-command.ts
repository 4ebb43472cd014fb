/**
 * Commands made from actions: arguments and options are the fields of the action, and the command
 * sends its request. A value that breaks a rule of its field is wrong usage. Nothing is sent then.
 */
import { Command, Option } from "commander";
import { type Action, caseOf, routeOf } from "../actions/action.ts";
import { ApiError } from "../actions/api-error.ts";
import { emptyWord, flagOf, flagsOf } from "../actions/command.ts";
import { type Field, type Fields, optional, optionally, plainParts, renameField } from "../actions/field.ts";
import { textProblem } from "../actions/value-problem.ts";
import { inkwell } from "../invocation.ts";
import { momentOf } from "../units.ts";
import type { Cli } from "./cli.ts";
import { type Confirmation, requireConfirmed } from "./confirm.ts";
import { type Column, table } from "./format.ts";
import { examples } from "./help.ts";

/** The values of the command line, by the names of the API. */
export type Given = Record<string, unknown>;

interface CommandWords {
  /** With the group and the arguments: `key list [account]`. */
  words: string | undefined;
  about: string;
  fields: Fields;
  /** Lines without the program. */
  examples?: readonly string[] | undefined;
}

/** Returns a command that only has commands below it. */
export function commandGroup(name: string, about: string, commands: readonly Command[]): Command {
  const group = new Command(name).description(about);
  for (const command of commands) group.addCommand(command);
  return group;
}

/** Returns a command with these arguments and options. `run` gets what was given. */
export function commandWith(
  { words = "", about, fields, examples: lines = [] }: CommandWords,
  run: (given: Given, command: Command) => Promise<void>,
): Command {
  const args = words.match(/[<[]\w+[\]>]/g) ?? [];
  const [name = ""] = words
    .replace(/ ?[<[].*/, "")
    .split(" ")
    .slice(-1);
  const command = new Command(name).description(about.charAt(0).toLowerCase() + about.slice(1));
  const named = args.map((word) => word.slice(1, -1));
  for (const word of args) command.argument(word, aboutOf(word.slice(1, -1), fields[word.slice(1, -1)]));
  const inOptions = Object.fromEntries(Object.entries(fields).filter(([each]) => !named.includes(each)));
  addOptions(command, inOptions);
  if (lines.length > 0) command.addHelpText("after", examples(...lines.map(exampleOf)));
  return command.action(async () => {
    const inArguments = named.flatMap((each, n) => {
      const [field, word] = [fields[each], command.args[n]];
      return field === undefined || word === undefined ? [] : [[each, parsed(command, field, word, each)]];
    });
    try {
      await run({ ...Object.fromEntries(inArguments), ...read(command, inOptions) }, command);
    } catch (error) {
      throw error instanceof ApiError ? inWords(error, fields) : error;
    }
  });
}

interface CommandOf<Result> {
  /** Default: the title of the action. */
  about?: string;
  /** Values that the command has and its user does not give. */
  preset?: Readonly<Record<string, unknown>>;
  examples?: readonly string[];
  /** Only a running service can do it. */
  needsService?: true;
  /** The result for people, on stdout. */
  text?(result: Result): string | Promise<string>;
  /** Asked before a change that cannot be undone, unless `--yes` is given. */
  confirm?: Confirmation | ((given: Given) => Promise<Confirmation>);
  /** What was done, on stderr. Default: what the action says, `done`. */
  remark?(result: Result, done: string): string;
}

/** Returns the command of an action. */
export function actionCommand<F extends Fields, Result>(
  cli: Cli,
  action: Action<F, Result>,
  options: CommandOf<Result> = {},
): Command {
  const { about = action.title, preset = {}, text, confirm, remark } = options;
  const { once, examples = action.examples } = action;
  const yes: Fields = confirm === undefined ? {} : { yes: yesField };
  const own = Object.entries<Field>(action.input).filter(([name]) => !(name in preset));
  const fields = own.map(([name, field]) => [name, name === once ? optional(field) : field] as const);
  return commandWith(
    {
      words: caseOf(action, preset).cli,
      about,
      examples: options.examples ?? examples,
      fields: { ...Object.fromEntries(fields), ...yes },
    },
    async ({ yes: isConfirmed = false, ...given }, command) => {
      const isChange = routeOf(action).method === "PATCH";
      if (isChange && Object.values(command.opts()).every((value) => value === undefined))
        command.error("error: nothing to change: name at least one setting");
      const asked = typeof confirm === "function" ? await confirm(given) : confirm;
      if (asked !== undefined && isConfirmed !== true) await requireConfirmed(cli, asked);
      const json: Given = { ...given, ...preset };
      if (once !== undefined) json[once] ??= cli.newOperation(command.name());
      if (options.needsService === true) await cli.api.requireService();
      const result = await cli.api.get<Result>(action, json);
      cli.print(result, (await text?.(result)) ?? "");
      const done = action.done?.(result) ?? "";
      const { key, id } = Object(result);
      const said = once !== undefined && key === null ? secretWasShown(id) : (remark?.(result, done) ?? done);
      if (said !== "") cli.remark(said);
    },
  );
}

const secretWasShown = (id: string) =>
  `This was done before, and only the first answer has the secret of ${id}. Nothing has changed. If that answer is lost, end ${id}, and make another key.`;

/** For lists without another limit of their own. */
export const rowsField = optionally.number({ min: 1, max: 1_000_000_000 }, "a whole number", {
  option: "--limit <rows>",
  about: "only the first rows",
});

const yesField: Field = { kind: "flag", rule: "", isOptional: true, option: "--yes", about: "do not ask" };

interface ListOf<Row> {
  words?: string;
  about?: string;
  /** Those of the action without its pages, unless given. */
  fields?: Fields;
  /** Fields of the request in place of what was given. */
  asked?(given: Given): Given;
  examples?: readonly string[];
  /** Rows that are shown, unless `--limit` is given. Default: all. */
  limit?: number;
  columns: readonly Column<Row>[] | ((rows: readonly Row[]) => readonly Column<Row>[]);
  /** Makes the shown rows of those that were read. */
  shown?(rows: Row[], given: Given): Row[] | Promise<Row[]>;
  /** Said if there are none. `isFiltered`: others may exist. */
  none(given: Given, isFiltered: boolean): string;
  /** Further sentences about the rows. */
  remarks?(shown: readonly Row[]): readonly string[] | Promise<readonly string[]>;
  /** Said if `--limit` leaves rows out. */
  more?: string;
}

/** Returns the command that shows a list. */
export function listCommand<Row>(cli: Cli, action: Action<Fields, unknown>, options: ListOf<Row>): Command {
  const { words = action.cli, about = action.title, columns, none, shown, remarks, more, limit } = options;
  const { limit: _, after: __, ...own } = action.input;
  const { fields = own, asked = (given) => given, examples = action.examples } = options;
  const hasLimit = limit !== undefined;
  return commandWith(
    { words, about, examples, fields: hasLimit ? { ...fields, rows: rowsField } : fields },
    async ({ rows: given = limit, ...filters }) => {
      const most = typeof given === "number" ? given : Number.POSITIVE_INFINITY;
      // One more than is shown, to know whether another one follows.
      const read = await cli.api.all<Row>(action, asked(filters), most + (more === undefined ? 0 : 1));
      const rows = (await shown?.(read, filters)) ?? read.slice(0, most);
      const inColumns = typeof columns === "function" ? columns(rows) : columns;
      cli.print(rows, rows.length === 0 ? "" : table(rows, inColumns, cli));
      if (rows.length === 0) {
        const said = none(filters, Object.keys(filters).length > 0);
        if (said !== "") cli.remark(said);
      }
      if (more !== undefined && read.length > most) cli.remark(more);
      for (const remark of (await remarks?.(rows)) ?? []) cli.remark(remark);
    },
  );
}

/** `key create ada` and `KEY=$(key create ada)` are examples. */
function exampleOf(line: string): string {
  const [, before = "", args = ""] = /^(\w+=\$\()?(.*)$/.exec(line) ?? [];
  return before + inkwell(args);
}

function addOptions(command: Command, fields: Fields): void {
  for (const [name, field] of Object.entries(fields)) {
    const { isNullable = false, isOptional = false, kind } = field;
    const word = isNullable ? emptyWord(field) : null;
    if (kind === "group") addOptions(command, optionalParts(field.fields));
    // Its parts stand for a list of one.
    if (kind === "list") addOptions(command, optionalParts(plainParts(field.fields)));
    if (kind !== "group") {
      const removes = word === null ? "" : `; ${JSON.stringify(word)} removes it`;
      const option = new Option(flagsOf(name, field), aboutOf(name, field) + removes);
      if (kind === "choice" && option.required) option.choices(field.values);
      command.addOption(option.makeOptionMandatory(!isOptional));
    }
    if (isNullable && word === null) {
      const flag = flagOf(name, field);
      command.option(`--no-${flag.slice(2)}`, `remove what ${flag} has set`);
    }
  }
}

/** The parts that a group needs are checked with all options at hand. */
function optionalParts(fields: Fields): Fields {
  const parts = Object.entries(fields).map(([name, field]) => [name, { ...field, isOptional: true }]);
  return Object.fromEntries(parts);
}

function read(command: Command, fields: Fields): Given {
  const values = Object.entries(fields).flatMap(([name, field]) => {
    const value = optionValueOf(command, name, field);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(values);
}

function optionValueOf(command: Command, name: string, field: Field): unknown {
  const option = new Option(flagsOf(name, field));
  const value: unknown = command.getOptionValue(option.attributeName());
  if (field.kind === "list") {
    const parts = plainParts(field.fields);
    const one = optionValueOf(command, name, { ...field, kind: "group", fields: parts });
    const flag = flagOf(name, field);
    if (one === undefined) return value === undefined ? value : parsed(command, field, String(value), flag);
    const flags = Object.entries(parts).map(([part, each]) => flagOf(part, each));
    if (value !== undefined) command.error(`error: ${flag} excludes ${flags.join(", ")}`);
    return [one];
  }
  if (field.kind !== "group") {
    if (value === false && field.isNullable) return null;
    // An option without a value stands for the choice that is not the default.
    if (value === true && field.kind === "choice") return field.values.at(-1);
    return typeof value === "string" ? parsed(command, field, value, flagOf(name, field)) : value;
  }
  // The option of the group can be that of a part.
  const entries = Object.entries(read(command, field.fields)).filter(([, part]) => part !== false);
  const parts = Object.fromEntries(entries);
  const isGiven = Object.keys(parts).length > 0;
  if (value === false) {
    const flags = Object.keys(parts).map((part) => flagOf(part, field.fields[part]));
    if (isGiven) command.error(`error: --no-${flagOf(name, field).slice(2)} excludes ${flags.join(" and ")}`);
    return null;
  }
  const missing = Object.entries(field.fields).find(
    ([part, { isOptional }]) => !isOptional && !(part in parts),
  );
  if (isGiven && missing !== undefined)
    command.error(`error: ${flagOf(...missing)} is missing: it must be ${missing[1].rule}.`);
  return isGiven ? parts : undefined;
}

/** Returns the value as JSON. Ends the command if it breaks the rule of its field. */
function parsed(command: Command, field: Field, word: string, name: string): unknown {
  if (field.isNullable && emptyWord(field) === word) return null;
  const wrong = (problem: string, at = name) => command.error(`error: ${at} ${problem}`);
  const mustBe = (rule: string, part = word, at = name) =>
    wrong(`must be ${rule}, not ${JSON.stringify(part)}.`, at);
  switch (field.kind) {
    case "number": {
      const value = /^[+-]?\d{1,15}$/.test(word) ? Number(word) : Number.NaN;
      return value >= field.min && value <= field.max ? value : mustBe(field.rule);
    }
    case "moment":
      return momentOf(word) === null ? mustBe(field.rule) : word;
    case "texts": {
      const parts = word.split(",").map((each) => each.trim());
      const at = parts.findIndex((part) => !field.item.pattern.test(part));
      if (at !== -1) mustBe(field.item.rule, parts[at], `${name}[${at}]`);
      return parts.length <= field.max ? parts : mustBe(field.rule);
    }
    case "list":
      return field.text.read(word) ?? mustBe(`${field.rule}, such as ${field.text.example}`);
    case "text": {
      if (field.pattern?.test(word) === false) mustBe(field.rule);
      const problem = textProblem(field.check, word);
      return problem === null ? word : wrong(problem);
    }
    default:
      return word;
  }
}

/** Returns a refusal in the words of the command line: with the option of its field. */
function inWords({ status, code, message, param }: ApiError, fields: Fields): ApiError {
  const name = param === null ? null : optionAt(param.split("."), fields);
  return new ApiError(status, code, name === null ? message : renameField(message, param ?? "", name), param);
}

function optionAt([name = "", ...rest]: readonly string[], fields: Fields): string | null {
  const field = fields[name.replace(/\[\d+\]$/, "")];
  if (field === undefined) return null;
  if (field.kind === "group" && rest.length > 0) return optionAt(rest, field.fields);
  return field.option === undefined ? null : flagOf(name, field);
}

function aboutOf(name: string, field: Field | undefined): string {
  if (field === undefined) return "";
  const { about, label = name.replaceAll("_", " ") } = field;
  return about ?? label.toLowerCase();
}
