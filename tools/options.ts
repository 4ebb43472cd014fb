/** Reads the options of a tool. A wrong one ends the process with its usage and exit code 2. */
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type ParseArgsConfig, parseArgs } from "node:util";
import { messageOf } from "../src/errors.ts";

type Options = NonNullable<ParseArgsConfig["options"]>;

/** Ends the process. */
export function refuse(usage: string, problem: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}

/** Returns the values of the options. `--help` prints the usage and ends the process. */
export function optionsOf<const O extends Options>(usage: string, options: O) {
  if (process.argv.includes("--help")) {
    console.log(usage);
    process.exit(0);
  }
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    return refuse(usage, messageOf(error));
  }
}

/** Returns the value of an option as a number. */
export function wholeNumber(usage: string, name: string, value: string): number {
  const number = Number(value);
  // A seed can be 0.
  if (Number.isSafeInteger(number) && number >= (name === "seed" ? 0 : 1)) return number;
  return refuse(usage, `--${name} is a whole number above 0, not ${value}`);
}

/** Returns the folder and the names of `NAME... [--folder DIR]`. Without names: all of them. */
export function namesAndFolder(usage: string, known: readonly string[], defaultFolder: string) {
  if (process.argv.includes("--help")) optionsOf(usage, {});
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { folder: { type: "string" } },
    });
    const unknown = positionals.find((name) => !known.includes(name));
    if (unknown !== undefined) refuse(usage, `There is no ${unknown}`);
    const folder = path.resolve(values.folder ?? path.join(tmpdir(), defaultFolder));
    mkdirSync(folder, { recursive: true });
    return { folder, isNamed: positionals.length > 0, names: positionals.length > 0 ? positionals : known };
  } catch (error) {
    return refuse(usage, messageOf(error));
  }
}
