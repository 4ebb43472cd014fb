/**
 * Loads the configuration: `inkwell.yaml` over defaults that need no file. Beside
 * command-variables.ts, it is the only reader of the process's environment.
 *
 * A `Config` is complete and checked: every value is in its range, every path absolute, every
 * model has a price. All faults are reported together in one `OperatorError`. Loading opens no
 * other file and no connection.
 *
 * A few values have a variable of their own, which comes before the file: those without which a
 * process does not find its file, its data and its ports. inkwell.example.yaml has their names.
 *
 * Paths in the file and default paths are relative to the folder of the file. Paths in variables
 * are relative to the working directory.
 *
 * The types of the configuration follow from its readers, which describe each value once.
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { firstOf, messageOf, OperatorError } from "../errors.ts";
import { shownPath } from "../invocation.ts";
import { readDatabase } from "./database.ts";
import { type Environment, type Found, parseYaml } from "./document.ts";
import { readEvents } from "./events.ts";
import * as kind from "./kinds.ts";
import { readLimits } from "./limits.ts";
import { readModels } from "./model.ts";
import { readOperator } from "./operator.ts";
import { readPlans } from "./plan.ts";
import { readPortal } from "./portal.ts";
import { Problems } from "./problems.ts";
import { type ReadContext, Section } from "./section.ts";
import { withoutServiceLinks } from "./service-links.ts";
import { readSignIn } from "./sign-in.ts";
import { readTracing } from "./tracing.ts";
import { refuseUnknownVariables, settingVariables, withVariables } from "./variables.ts";
import { readWorkers } from "./workers.ts";

export type Config = ReturnType<typeof readConfig> & {
  /** Path of the configuration file. Null if no file is used. */
  file: string | null;
  /** Names of settings whose variables Kubernetes sets for a Service. Their values are ignored. */
  ignoredVariables: readonly string[];
  /** Faults of the section `sign_in`. The service runs without sign-in if there are any. */
  signInProblems: readonly string[];
};

export type LogLevel = Config["log"]["level"];

interface LoadOptions {
  /** Folder that contains `inkwell.yaml`. */
  cwd?: string | undefined;
  /** Another file to read, which must exist and must not be empty. */
  file?: string | undefined;
  env?: Environment | undefined;
}

const fileName = "inkwell.yaml";
const fileBytesMax = 256 * 1024;

/** Used without a file. A file with `plans` or `models` replaces the ones here. */
const defaults = `
plans:
  starter:
    base: { credits: 100000, every: P1D }
    overage: { credits: 20000, every: P1M }
    limits: { requests_per_minute: 600, tokens_per_minute: 100000, concurrent: 16 }
    models: ["*"]
models:
  smollm2-135m-instruct:
    engine: llama
    source: default
    defaults: { temperature: 0.2, top_p: 0.9, frequency_penalty: 0.4, max_tokens: 400 }
    system_prompt: Be helpful, correct and concise.
    price: { prompt: 20000, completion: 100000 }
`;

export function loadConfig({
  cwd = process.cwd(),
  file,
  env: environment = process.env,
}: LoadOptions = {}): Config {
  const { env, links } = withoutServiceLinks(environment);
  const problems = new Problems();
  const found = findFile(cwd, file, env);
  const text = found === null ? "" : readText(found);
  const shownName = found === null ? "the defaults" : shownPath(cwd, found);
  const root = parseYaml(text, shownName, environment, problems);
  // A reload names its file, which may be half written. The defaults would replace all models.
  if (file !== undefined && root.value.size === 0 && problems.count === 0)
    throw new OperatorError(`${found} has no settings.`);
  const written = new Map<string, Found>([
    ...parseYaml(defaults, "the defaults", {}, problems).value,
    ...root.value,
  ]);
  // The keys of a file that is not valid YAML are unknown.
  if (problems.count > 0 && root.value.size === 0) throw configurationError(problems.lines());

  const context: ReadContext = {
    env,
    problems,
    folders: { variables: cwd, file: found === null ? cwd : path.dirname(found) },
  };
  const section = new Section(withVariables(written, env), { names: [], where: shownName }, context);
  const config = readConfig(section);
  section.refuseUnknown();
  refuseUnknownVariables(env, root.variables, problems);
  const signInProblems = problems.take("sign_in");
  if (problems.count > 0) throw configurationError([...problems.lines(), ...signInProblems]);
  const signIn = signInProblems.length > 0 ? null : config.signIn;
  return {
    ...config,
    signIn,
    signInProblems,
    file: found,
    ignoredVariables: links.filter((name) => settingVariables.includes(name)),
  };
}

function readConfig(root: Section) {
  const listen = root.section("listen", (section) => ({
    host: section.value("host", kind.host, { or: "127.0.0.1" }),
    /** 0: any free port. */
    port: section.value("port", kind.port, { or: 8080 }),
    /** URL that callers use, if it differs from that of the listener. The portal shows it. */
    url: section.optional("url", kind.ownUrl),
  }));
  const operator = root.section("operator", (section) => readOperator(section, listen));
  const portal = readPortal(root, { listen, operator });

  const dataDir = root.resolve(root.placed("data", kind.filePath, { or: "./data" }));
  const modelsDir = root.placed("models_dir", kind.filePath, { or: path.join(dataDir, "models") });
  const database = readDatabase(root, dataDir);

  const models = readModels(root);
  const timezone = root.value("timezone", kind.timezone, { or: "UTC" });
  const plans = readPlans(root, { modelIds: models.map((model) => model.id), timezone });
  const signIn = root.optionalSection("sign_in", (section) =>
    readSignIn(section, { plans: plans.map(({ plan }) => plan.id), hasPortal: portal !== null }),
  );

  return {
    listen,
    operator,
    /** Null: no portal. */
    portal,
    dataDir,
    modelsDir: root.resolve(modelsDir),
    database,
    /** Days of reports, and windows of the calendar unless a plan has its own. */
    timezone,
    /** The price of credits, for reports. Null: reports have no money. */
    currency: root.optionalSection("currency", (section) => ({
      code: section.value("code", kind.currency),
      priceMicro: section.value("credits_1000", kind.money),
    })),
    /** At least one, in the order of the configuration. */
    plans: new Map(plans.map(({ plan }) => [plan.id, plan])),
    /** The rights of people over keys, by plan. */
    personKeys: new Map(plans.map(({ plan, keys }) => [plan.id, keys])),
    /** Null: nobody signs in with OpenID Connect. */
    signIn,
    /** At least one, in the order of the configuration. */
    models,
    limits: root.section("limits", readLimits),
    /** Processes that share the listeners. */
    workers: readWorkers(root, database.kind === "sqlite", models),
    /** Origins whose pages may call the public API. If empty, browsers may not. */
    cors: root.section("cors", (section) => ({
      origins: section.list("origins", kind.origin, 'a list of origins: ["https://app.example"]').values,
    })),
    log: root.section("log", (section) => ({
      level: section.value("level", kind.oneOf("info", "trace", "debug", "warn", "error", "silent"), {
        or: "info",
      }),
    })),
    /** Null: no traces. */
    tracing: root.section("tracing", readTracing),
    /** Null: no events. */
    events: root.optionalSection("events", readEvents),
    sources: readSources(root),
    /** For `inkwell chat`. */
    client: { apiKey: root.env.INKWELL_API_KEY || null },
  };
}

/** Settings of the machine and its network for downloading models. */
function readSources(root: Section) {
  const { env } = root;
  const hubUrl = root.variable("HF_ENDPOINT", kind.httpUrl) ?? "https://huggingface.co";
  const network =
    /^(PIP_.*|XDG_CONFIG_(HOME|DIRS)|APPDATA|PROGRAMDATA|VIRTUAL_ENV|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR))$/i;
  return {
    hubUrl: hubUrl.replace(/\/+$/, ""),
    hubToken: env.HF_TOKEN || null,
    /** Only the variables of pip, proxies and certificates, such as `PIP_INDEX_URL`. */
    env: Object.fromEntries(Object.entries(env).filter(([name]) => network.test(name))),
    home: env.HOME || homeHere(),
  };
}

/** In a container, the user may have no entry in passwd. Its home is then /, as Docker has it. */
function homeHere(): string {
  try {
    return homedir() || "/";
  } catch {
    return "/";
  }
}

function findFile(cwd: string, named: string | undefined, env: Environment): string | null {
  const chosen = named ?? (env.INKWELL_CONFIG || undefined);
  if (chosen !== undefined) {
    const file = path.resolve(cwd, chosen);
    if (existsSync(file)) return file;
    throw new OperatorError(
      named === undefined
        ? `INKWELL_CONFIG is ${file}, but this file does not exist.`
        : `The configuration file ${file} does not exist.`,
    );
  }
  const file = path.join(cwd, fileName);
  if (existsSync(file)) return file;
  const other = path.join(cwd, "inkwell.yml");
  if (existsSync(other))
    throw new OperatorError(`Found ${other}, but the file must have the name ${fileName}. Rename it.`);
  return null;
}

function readText(file: string): string {
  try {
    const bytes = readFileSync(file);
    if (bytes.length > fileBytesMax)
      throw new Error(`it has ${bytes.length} bytes, the limit is ${fileBytesMax}`);
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new OperatorError(`The configuration ${file} cannot be read: ${messageOf(error)}`, error);
  }
}

export function configurationError(lines: readonly string[]): OperatorError {
  const places = lines.length === 1 ? "" : ` in ${lines.length} places`;
  return new OperatorError([`The configuration is wrong${places}:`, ...firstOf(lines)].join("\n"));
}
