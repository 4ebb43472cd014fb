/** The environment variables of commands that read no configuration. */
import type { Environment } from "./document.ts";

/** Returns the value of a variable; null if it is unset or empty. */
export function commandVariable(
  name: "INKWELL_SERVER" | "INKWELL_OPERATOR_KEY",
  env: Environment = process.env,
): string | null {
  return env[name] || null;
}
