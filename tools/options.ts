/** Reads the options of a tool. A wrong one ends the process with its usage and exit code 2. */
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
