/**
 * The settings that have a variable: what a process needs to find its data and its ports. Other
 * variables that look like settings are refused. The file reads any variable as `${NAME}`.
 */
import { editDistance } from "../spelling.ts";
import { type Environment, type Found, quoteShort } from "./document.ts";
import type { Problems } from "./problems.ts";

const settings: Readonly<Record<string, string>> = {
  INKWELL_HOST: "listen.host",
  INKWELL_PORT: "listen.port",
  INKWELL_OPERATOR_HOST: "operator.host",
  INKWELL_OPERATOR_PORT: "operator.port",
  INKWELL_OPERATOR_TOKEN: "operator.token",
  INKWELL_PORTAL_HOST: "portal.host",
  INKWELL_PORTAL_PORT: "portal.port",
  INKWELL_DATA: "data",
  INKWELL_MODELS: "models_dir",
  INKWELL_DATABASE: "database",
};

/** The variable of the file, and those of commands. */
const others = ["INKWELL_CONFIG", "INKWELL_API_KEY", "INKWELL_SERVER", "INKWELL_OPERATOR_KEY"];

/** Names that suggest a setting. So does every `INKWELL_A__B`, for `a.b`. */
const suggested: Readonly<Record<string, string>> = {
  INKWELL_URL: "listen.url",
  INKWELL_OPERATOR_HOSTS: "operator.hosts",
  INKWELL_OPERATOR_URL: "operator.url",
  INKWELL_PORTAL_URL: "portal.url",
  INKWELL_TIMEZONE: "timezone",
};

export const settingVariables: readonly string[] = Object.keys(settings);

/**
 * Puts the values of variables over those of the file. An empty variable counts as not set:
 * compose files and shells create such variables.
 */
export function withVariables(file: ReadonlyMap<string, Found>, env: Environment): Map<string, Found> {
  const root = new Map(file);
  for (const [where, path] of Object.entries(settings)) {
    const text = env[where];
    if (!text) continue;
    const value: Found = { where, value: text, text: true, shown: quoteShort(text) };
    const [first = "", key] = path.split(".");
    const known = root.get(first);
    const isWritten = known !== undefined && !known.omitted;
    const section = isWritten ? known : { where, value: null, text: false, shown: "nothing" };
    if (key === undefined) root.set(first, value);
    // Another value in place of a section is a fault of the file.
    else if (section.value === null || section.value instanceof Map)
      root.set(first, { ...section, value: new Map([...(section.value ?? []), [key, value]]) });
  }
  return root;
}

/**
 * Reports every variable that suggests a setting or is a misspelled one. Any other variable may
 * belong to another program (`INKWELL_DB_PASSWORD`). `named`: variables that the file names.
 */
export function refuseUnknownVariables(
  env: Environment,
  named: ReadonlySet<string>,
  problems: Problems,
): void {
  const known = [...settingVariables, ...others];
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("INKWELL_") || !value || known.includes(name) || named.has(name)) continue;
    const path = pathOf(name);
    const near = known.find((each) => editDistance(name, each) === 1);
    if (path !== undefined) {
      const help = `set ${path} in inkwell.yaml, where \${NAME} reads a variable`;
      problems.add(name, `this variable is not read; ${help}`);
    } else if (near !== undefined) problems.add(name, `no setting has this name; did you mean ${near}?`);
  }
}

/** The path in the file. Names of plans and models do not follow from those of variables. */
function pathOf(variable: string): string | undefined {
  if (!variable.includes("__")) return suggested[variable];
  const [section = "", ...keys] = variable.slice("INKWELL_".length).toLowerCase().split("__");
  if (section === "models" || section === "plans") keys[0] = "NAME";
  return [section, ...keys].filter((part) => part !== "").join(".");
}
