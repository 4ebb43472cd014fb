/** What a command says when the store or the configuration has another answer than hoped for. Exit code 1. */
import { existsSync } from "node:fs";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import type { AccountError } from "../ledger/operations.ts";
import { unknownName } from "../spelling.ts";

/** Of an account that cannot be read or changed. */
export const mendIt =
  'An account whose plan is gone is put on another one by "inkwell account set NAME --plan PLAN"; for anything else ' +
  "see docs/operating/incidents.md.";

export function noAccount(account: string): OperatorError {
  return new OperatorError(
    `There is no account ${account}. "inkwell account list" shows those there are; "inkwell account create" makes one.`,
  );
}

/** On a server it cannot be told from an empty one before it is opened, and nobody takes a server for another by its folder. */
export function requireLedger({ database }: Config): void {
  if (database.kind === "postgres" || existsSync(database.path)) return;
  throw new OperatorError(
    `There is no ledger at ${database.path}. The first "inkwell serve" or "inkwell account create" makes one; where it ` +
      "lies elsewhere, go to the folder of its inkwell.yaml, or name that with --config or INKWELL_CONFIG, or the database with INKWELL_DATABASE.",
  );
}

export function groundFault(account: string, fault: AccountError): OperatorError {
  if (fault.kind === "no_account") return noAccount(account);
  return new OperatorError(
    `The account ${account} cannot be changed before it is mended: ${fault.problem}. ${mendIt}`,
  );
}

export function requirePlan(config: Config, plan: string): void {
  if (!config.plans.has(plan)) throw new OperatorError(unknownName("plan", plan, [...config.plans.keys()]));
}

export function requireModel(config: Config, model: string): void {
  const ids = config.models.map(({ id }) => id);
  if (!ids.includes(model)) throw new OperatorError(unknownName("model", model, ids));
}
