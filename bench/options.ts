/**
 * Options of the benches: `--name value`, each with a default. An unknown option throws and is
 * named in the message.
 */
import { parseArgs } from "node:util";
import { downloadedModel, miniature } from "../test/fixtures/program.ts";

/** Path of the default model if it has been downloaded, otherwise of the miniature. */
export const defaultModel = downloadedModel ?? miniature;

/**
 * Returns the value of each option. Without a default, an option is undefined unless it is given.
 */
export function optionsOf<const Defaults extends Record<string, string | undefined>>(
  args: readonly string[],
  defaults: Defaults,
): { [Name in keyof Defaults]: Defaults[Name] extends string ? string : string | undefined };
export function optionsOf(args: readonly string[], defaults: Record<string, string | undefined>) {
  const options = Object.fromEntries(
    Object.keys(defaults).map((name) => [name, { type: "string" as const }]),
  );
  return { ...defaults, ...parseArgs({ args: [...args], options }).values };
}

/** Returns the numbers of a list such as `1,4,8`. */
export function numbersOf(list: string): number[] {
  return list.split(",").map(Number);
}
