/**
 * Failures of commands: their code, and their text for people and for scripts (docs/cli.md).
 * The codes are part of the interface of `--json`; the texts may change.
 */
import { CommanderError } from "commander";
import { OperatorError } from "../errors.ts";
import { StoreUnavailableError } from "../ledger/retry.ts";

export interface Failure {
  code: "wrong_usage" | "refused" | "store_unavailable" | "internal_error";
  /** For people, with its line end. */
  text: string;
}

/** `complaint`: everything that Commander would have written to stderr. */
export function failureOf(error: unknown, complaint: string): Failure {
  if (error instanceof CommanderError) return { code: "wrong_usage", text: complaint };
  if (error instanceof OperatorError) return { code: "refused", text: `${error.message}\n` };
  if (error instanceof StoreUnavailableError) {
    const text =
      `The ledger could not be read or written: ${error.message}.\nSending the same command again is safe, ` +
      "also where this one was done after all: with the same --payment or --id nothing is counted twice.\n";
    return { code: "store_unavailable", text };
  }
  const stack = error instanceof Error ? error.stack : error;
  return { code: "internal_error", text: `This is a defect of Inkwell, please report it:\n${stack}\n` };
}

/** The failure as one line of JSON: `{"error":{"code":"refused","message":"..."}}`. */
export function failureLine({ code, text }: Failure): string {
  // Without a command, Commander writes the whole help.
  const message = text.startsWith("Usage:")
    ? 'The command is incomplete. "inkwell --help" lists the commands.'
    : text.replace(/^error: /, "").trimEnd();
  return JSON.stringify({ error: { code, message } });
}
