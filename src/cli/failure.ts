/**
 * Failures of commands: their codes, and their texts for people and scripts (docs/cli.md). The
 * codes are part of the interface of `--json`; the texts may change.
 */
import { CommanderError } from "commander";
import { ApiError } from "../actions/api-error.ts";
import { type Code, OperatorError, Refusal, StoreUnavailableError } from "../errors.ts";
import { inkwell, shipped } from "../invocation.ts";
import { NoAnswer } from "./transport.ts";

interface Failure {
  code: "wrong_usage" | "refused" | "store_unavailable" | "service_unavailable" | "internal_error";
  /** For people, with a line end. */
  text: string;
}

/** For an account whose balance cannot be read. */
export const repairAdvice =
  `If the plan of an account is missing, choose another with "${inkwell("account set NAME --plan PLAN")}". For other problems ` +
  `see ${shipped("docs/operating/incidents.md")}.`;

/** Appended to the messages of the operator API. */
const advice: ReadonlyMap<string, string> = new Map<Code, string>([
  [
    "account_not_found",
    `"${inkwell("account list")}" lists the accounts; "${inkwell("account create")}" opens one.`,
  ],
  ["key_not_found", `"${inkwell("key list")}" lists the ids.`],
  ["request_not_found", `"${inkwell("requests list")}" lists what runs.`],
  ["balance_unavailable", repairAdvice],
  ["window_differs", "The options are --at refresh and --new-window."],
]);

/**
 * `complaint`: everything that Commander wrote to stderr. `operation`: the id that the command has
 * made for its change.
 */
export function commandFailureOf(error: unknown, complaint: string, operation: string | null): Failure {
  if (error instanceof SuppressedError) {
    const { code, text } = commandFailureOf(error.suppressed, complaint, operation);
    return { code, text: text + commandFailureOf(error.error, "", operation).text };
  }
  if (error instanceof CommanderError) return { code: "wrong_usage", text: complaint };
  if (error instanceof OperatorError || error instanceof Refusal) return refused(error.message);
  if (error instanceof ApiError) {
    const { code, message } = error;
    if (code === "service_unavailable" || code === "internal_error") return { code, text: `${message}\n` };
    return refused(message, advice.get(code));
  }
  if (error instanceof NoAnswer) {
    const text = error.isSent ? `${error.message}\n${again(operation)}\n` : `${error.message}\n`;
    return { code: "service_unavailable", text };
  }
  if (error instanceof StoreUnavailableError) {
    const reason = error.message.replace(/\.$/, "");
    const text = `The ledger could not be read or written: ${reason}.\n${again(operation)}\n`;
    return { code: "store_unavailable", text };
  }
  const stack = error instanceof Error ? error.stack : error;
  return { code: "internal_error", text: `This is a defect of Inkwell, please report it:\n${stack}\n` };
}

/** How to go on after a change whose effect is not known. */
function again(operation: string | null): string {
  return operation === null
    ? "Sending the same command again is safe, even if this one took effect."
    : `This one may have taken effect: send it again with --id ${operation}, so that it does not count twice.`;
}

function refused(...sentences: (string | undefined)[]): Failure {
  return { code: "refused", text: `${sentences.filter((each) => each !== undefined).join(" ")}\n` };
}

/** Returns the failure as one line of JSON: `{"error":{"code":"refused","message":"..."}}`. */
export function failureLine({ code, text }: Failure): string {
  // If the command is missing, Commander writes the whole help.
  const message = text.startsWith("Usage:")
    ? `The command is incomplete. "${inkwell("--help")}" lists the commands.`
    : text.replace(/^error: /, "").trimEnd();
  return JSON.stringify({ error: { code, message } });
}
