/**
 * Options of the benches: `--name value`, each with a default. An unknown option throws and is
 * named in the message.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const root = join(import.meta.dirname, "..");
const downloaded = join(root, "data", "models", "SmolLM2-135M-Instruct.Q4_1.gguf");

/** Path of the default model if it has been downloaded, otherwise of the miniature. */
export const defaultModel = existsSync(downloaded) ? downloaded : join(root, "models", "miniature.gguf");

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
