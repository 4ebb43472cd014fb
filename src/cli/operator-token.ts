/** The operator token, as commands read it. */
import { readFileSync } from "node:fs";
import path from "node:path";
import type { Config } from "../config/load.ts";
import { tokenFileName } from "../config/operator.ts";
import { messageOf, OperatorError } from "../errors.ts";

/** Returns the operator token of the configuration, or of the data folder. */
export function tokenOf({ operator, dataDir }: Config): string {
  if (operator.token !== null) return operator.token;
  const file = path.join(dataDir, tokenFileName);
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new OperatorError(
      `The operator token cannot be read (${messageOf(error)}). Run the command in the folder of the service's inkwell.yaml and as its user, or set INKWELL_OPERATOR_TOKEN. If the data folder has changed in the file, restart the service.`,
      error,
    );
  }
}
