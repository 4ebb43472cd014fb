/** The operator token, as commands read it. */
import { readFileSync } from "node:fs";
import path from "node:path";
import type { Config } from "../config/load.ts";
import { tokenFileName } from "../config/operator.ts";
import { OperatorError } from "../errors.ts";

/** Returns the operator token of the configuration, or of the data folder; null without one. */
export function findToken({ operator, dataDir }: Config): string | null {
  if (operator.token !== null) return operator.token;
  try {
    return readFileSync(path.join(dataDir, tokenFileName), "utf8").trim();
  } catch {
    return null;
  }
}

/** Returns that token. Throws an `OperatorError` without one. */
export function tokenOf(config: Config): string {
  const token = findToken(config);
  if (token !== null) return token;
  throw new OperatorError(noToken(config));
}

export function noToken({ dataDir }: Config): string {
  return `The operator token in ${dataDir} cannot be read. Run the command in the folder of the service's inkwell.yaml and as its user, or set INKWELL_OPERATOR_TOKEN. If the data folder has changed in the file, restart the service.`;
}
