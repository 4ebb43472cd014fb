/**
 * Requests as a person writes them in a terminal, for `curl` and for the command line. The options
 * of commands are named here, so that the command line reads what a dialog shows.
 *
 * Pages bundle this file.
 */
import { shellWordOf } from "../shell.ts";
import { type ActionTexts, caseOf, requestOf, routeOf } from "./action.ts";
import { type Field, type Fields, partOf, plainParts } from "./field.ts";

/** An action with its values, as JSON. */
export type Asked = readonly [action: ActionTexts, json: Readonly<Record<string, unknown>>];

/** Returns the option of a field, with its value. */
export function flagsOf(name: string, { option, kind }: Pick<Field, "option" | "kind">): string {
  return option ?? `--${name.replaceAll("_", "-")}${kind === "flag" ? "" : " <value>"}`;
}

export function flagOf(name: string, field: Field | undefined): string {
  return (field === undefined ? name : flagsOf(name, field)).split(" ", 1)[0] ?? "";
}

/** Returns the word that removes a setting; null if an option `--no-...` does. */
export function emptyWord({ kind, isRemovedByEmpty = false }: Field): string | null {
  if (kind === "moment") return "never";
  return isRemovedByEmpty ? "" : null;
}

/**
 * Returns requests for a terminal: by `curl`, and by commands if all of them have one. Names in
 * capital letters stand for values that are missing in a path or an argument.
 */
export function terminalTexts(requests: readonly Asked[], origin: string, program: string) {
  const commands = requests.map((asked) => commandOf(asked, program));
  return [
    ["curl", requests.map((asked) => curlOf(asked, origin)).join("\n\n")],
    ...(commands.includes(null) ? [] : [["inkwell", commands.join("\n")] as const]),
  ] as const;
}

function curlOf([action, json]: Asked, origin: string): string {
  const inPath = routeOf(action).names.map((name) => [name, json[name] ?? name.toUpperCase()]);
  const { method, path, body } = requestOf(action, { ...json, ...Object.fromEntries(inPath) });
  return inLines([
    `curl -X ${method} ${shellWordOf(origin + path)}`,
    '-H "Authorization: Bearer $INKWELL_OPERATOR_KEY"',
    ...(body ? ['-H "Content-Type: application/json"', `-d ${shellWordOf(JSON.stringify(body))}`] : []),
  ]);
}

/** Null: the action has no command. */
function commandOf([action, json]: Asked, program: string): string | null {
  const { cli } = caseOf(action, json);
  if (cli === undefined) return null;
  const names = [...cli.matchAll(/<(\w+)>/g)].map(([, name = ""]) => name);
  const args = names.map((name) => shellWordOf(`${json[name] ?? name.toUpperCase()}`));
  const isSaid = (name: string) => names.includes(name) || name === action.cases?.field;
  const inOptions = Object.entries(action.input).filter(([name]) => !isSaid(name));
  const options = optionsIn(Object.fromEntries(inOptions), json);
  const words = [program, cli.replace(/ <.*/, "")];
  // It would be taken for an option.
  const hasDash = args.some((arg) => /^'?-(?!\d+$)/.test(arg));
  const all = hasDash
    ? [words.join(" "), ...options, ["--", ...args].join(" ")]
    : [[...words, ...args].join(" "), ...options];
  const line = all.join(" ");
  return line.length <= 72 ? line : inLines(all);
}

function optionsIn(fields: Fields, json: unknown): string[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const value = partOf(json, name);
    return value === undefined ? [] : optionsOf(name, field, value);
  });
}

function optionsOf(name: string, field: Field, value: unknown): string[] {
  const flag = flagOf(name, field);
  const withWord = (word: string) => [flag + (word.startsWith("-") ? "=" : " ") + shellWordOf(word)];
  if (value === null) {
    const word = emptyWord(field);
    return word === null ? [`--no-${flag.slice(2)}`] : withWord(word);
  }
  switch (field.kind) {
    case "group":
      return optionsIn(field.fields, value);
    case "list": {
      const items = Array.isArray(value) ? value : [];
      // The options of the parts stand for a list of one.
      if (items.length === 1 && field.text.isPlain(items))
        return optionsIn(plainParts(field.fields), items[0]);
      return withWord(field.text.write(items) || "none");
    }
    case "flag":
      return value === true ? [flag] : [];
    case "choice": {
      const own = field.flags?.[`${value}`];
      return own === undefined ? withWord(`${value}`) : [own];
    }
    default:
      return withWord(Array.isArray(value) ? value.join(",") : `${value}`);
  }
}

function inLines(parts: readonly string[]): string {
  return parts.join(" \\\n  ");
}
