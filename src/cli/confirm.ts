/** Asks at a terminal before a change that cannot be undone. Elsewhere, commands need `--yes`. */
import { createInterface } from "node:readline/promises";
import { OperatorError } from "../errors.ts";
import type { Cli } from "./cli.ts";

export interface Confirmation {
  /** Says what the change does. */
  effect: string;
  question: string;
}

/** Throws unless the change is confirmed. Asks on stderr: stdout stays free for the result. */
export async function requireConfirmed(cli: Cli, { effect, question }: Confirmation): Promise<void> {
  const { stdin, stderr } = cli.host;
  if (stdin.isTTY !== true) throw new OperatorError(`${effect} Confirm it with --yes.`);
  using reader = createInterface({ input: stdin, output: stderr });
  // The end of the input answers nothing.
  const ended = new Promise<string>((resolve) => reader.once("close", () => resolve("")));
  const answer = await Promise.race([reader.question(`${effect} ${question} [y/N] `), ended]);
  if (!/^y(es)?$/i.test(answer.trim())) throw new OperatorError("Nothing has changed.");
}
