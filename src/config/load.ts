/**
 * The configuration: `inkwell.yaml` under the environment, over defaults that run without a file. The only reader of
 * the process's environment, which everything else is handed from here.
 *
 * Guarantees that a `Config` is complete and checked: every value in its range, every path absolute, every model
 * priced. Whatever is wrong is told at once, in one `OperatorError`. Opens nothing and fetches nothing.
 *
 * Every value can be set from the environment: by the name given in inkwell.example.yaml, or else by `INKWELL_` and
 * the path of the value in capitals, `__` between its parts and `_` for whatever is no letter or digit:
 * `INKWELL_LIMITS__QUEUE`, `INKWELL_MODELS__SMOLLM2_135M_INSTRUCT__PRICE__PROMPT`. A part that matches no plan or
 * model of the file makes a new one, in lower case with dashes.
 *
 * Paths in the file, and the default ones, start from the folder of the file; paths in variables from the working
 * directory.
 */
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { link, readFile, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import type { Plans } from "../ledger/plan.ts";
import { makeFolder } from "../make-folder.ts";
import { type DatabaseConfig, readDatabase } from "./database.ts";
import { type Environment, type Found, Problems, parseYaml } from "./document.ts";
import * as kind from "./kinds.ts";
import { type ModelConfig, readModels } from "./model.ts";
import { type OperatorListener, readOperator } from "./operator.ts";
import { readPlans } from "./plan.ts";
import { type ReadContext, refuseUnknownVariables, Section } from "./section.ts";
import { withoutServiceLinks } from "./service-links.ts";
import { readTracing, type TracingConfig } from "./tracing.ts";

export interface Listener {
  host: string;
  /** 0: any free port. */
  port: number;
}

/** Every limit of the service that is not a plan's or a key's. */
export interface ServiceLimits {
  bodyBytesMax: number;
  /** Bytes of all request bodies that are being received or checked. */
  uploadBytesMax: number;
  /** Longest time that the body of a request may take. */
  uploadMs: number;
  /** Body bytes, and processor time of the main thread, for refused requests of one key. */
  refusedBytesPerMinute: number;
  refusedMsPerMinute: number;
  /** Null: as many as suit the number of files that the process may open. */
  connectionsMax: number | null;
  /** Null: a quarter of `connectionsMax`. */
  connectionsPerAddressMax: number | null;
  /** Addresses and networks that are exempt from the limit of one address. */
  trustedProxies: readonly string[];
  messagesMax: number;
  /** Most keys in the JSON of one request. */
  keysMax: number;
  /** Requests that may wait for one model. */
  queueMax: number;
  /** How long a service that is being stopped still takes requests, while `/readyz` says that it is not ready. */
  unreadyMs: number;
  drainMs: number;
  streamIdleMs: number;
}

/** What fetching models needs to know of the machine and its network. */
export interface SourcesConfig {
  /** Without a slash at the end. */
  hubUrl: string;
  hubToken: string | null;
  /** Settings of pip and of proxies, under the names that they have (`PIP_INDEX_URL`, `HTTPS_PROXY`), and no others. */
  env: Environment;
  home: string;
}

export interface Config {
  /** The file that was read; null: defaults and environment only. */
  file: string | null;
  /** Names of settings that Kubernetes has set for a Service; their values are not used. */
  ignoredVariables: readonly string[];
  listen: Listener;
  operator: OperatorListener;
  dataDir: string;
  modelsDir: string;
  database: DatabaseConfig;
  /** At least one, in the order of the configuration. */
  plans: Plans;
  /** At least one, in the order of the configuration. */
  models: readonly ModelConfig[];
  limits: ServiceLimits;
  /** Origins whose pages may call the public API; none: no browser may. */
  cors: { origins: readonly string[] };
  log: { level: LogLevel };
  /** Null: none. */
  tracing: TracingConfig | null;
  sources: SourcesConfig;
  /** For `inkwell chat`. */
  client: { apiKey: string | null };
}

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "silent";

export interface LoadOptions {
  /** Where `inkwell.yaml` is looked for. */
  cwd?: string | undefined;
  /** A file to read instead; must exist. */
  file?: string | undefined;
  env?: Environment | undefined;
}

/** In the data folder. */
export const tokenFileName = "operator-token";

const fileName = "inkwell.yaml";
const fileBytesMax = 1024 * 1024;

/** What a service without a file offers; a file that has `plans` or `models` has its own instead. */
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
    defaults: { temperature: 0.2, top_p: 0.9, max_tokens: 512 }
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
  const shownName = found === null ? "the defaults" : shortest(cwd, found);
  const root = parseYaml(text, shownName, environment, problems);
  const entries = new Map<string, Found>([
    ...parseYaml(defaults, "the defaults", {}, problems).value,
    ...root.value,
  ]);
  // A file that is no YAML says nothing about what its keys would have been.
  if (problems.count > 0 && root.value.size === 0) throw refusal(problems);

  const context: ReadContext = {
    env,
    problems,
    folders: { variables: cwd, file: found === null ? cwd : path.dirname(found) },
    taken: new Set(),
    known: new Set(),
  };
  const section = new Section(entries, { path: "", where: shownName, prefix: "INKWELL_" }, context);
  const config = readConfig(section, env);
  section.refuseUnknown();
  refuseUnknownVariables(context, new Set(["INKWELL_CONFIG", "INKWELL_API_KEY", ...root.variables]));
  if (problems.count > 0) throw refusal(problems);
  return { ...config, file: found, ignoredVariables: links.filter((name) => context.known.has(name)) };
}

/**
 * The token of the operator listener: the configured one, or the one in `operator-token` in the data folder, which is
 * made on first use and readable by its owner only. `file` is null where the token was configured.
 */
export async function operatorToken(config: Config): Promise<{ token: string; file: string | null }> {
  if (config.operator.token !== null) return { token: config.operator.token, file: null };
  const file = path.join(config.dataDir, tokenFileName);
  try {
    makeFolder(config.dataDir);
    // A second name for a finished file: of two that start at once, one gives it, and both read the same token.
    const draft = `${file}.${randomBytes(6).toString("hex")}`;
    if (!existsSync(file)) {
      try {
        await writeFile(draft, `${randomBytes(32).toString("base64url")}\n`, { flag: "wx", mode: 0o600 });
        await link(draft, file);
      } catch (error) {
        if (codeOf(error) !== "EEXIST") throw error;
      } finally {
        await rm(draft, { force: true });
      }
    }
    const token = kind.operatorToken.read((await readFile(file, "utf8")).trim(), true);
    if (token !== undefined) return { token, file };
  } catch (error) {
    throw new OperatorError(
      `The operator token in ${file} cannot be read or made: ${messageOf(error)}`,
      error,
    );
  }
  throw new OperatorError(
    `The operator token in ${file} must be ${kind.operatorToken.expects}. Delete the file: the next start makes a new one.`,
  );
}

function readConfig(root: Section, env: Environment): Omit<Config, "file" | "ignoredVariables"> {
  const listen = root.section("listen", (section) => ({
    host: section.value("host", kind.host, { or: "127.0.0.1", env: "INKWELL_HOST" }),
    port: section.value("port", kind.port, { or: 8080, env: "INKWELL_PORT" }),
  }));
  const operator = root.section("operator", (section) => readOperator(section, listen));

  const dataDir = root.resolve(root.placed("data", kind.filePath, { or: "./data" }));
  const modelsDir = root.placed("models_dir", kind.filePath, {
    or: path.join(dataDir, "models"),
    env: "INKWELL_MODELS",
  });
  const database = readDatabase(root, dataDir);

  const models = readModels(root, env);
  const plans = readPlans(
    root,
    models.map((model) => model.id),
  );

  return {
    listen,
    operator,
    dataDir,
    modelsDir: root.resolve(modelsDir),
    database,
    plans: new Map(plans.map((plan) => [plan.id, plan])),
    models,
    limits: root.section("limits", readLimits),
    cors: root.section("cors", readCors),
    log: root.section("log", (section) => ({
      level: section.value("level", kind.oneOf("info", "trace", "debug", "warn", "error", "silent"), {
        or: "info",
      }),
    })),
    tracing: root.section("tracing", (section) => readTracing(section, env)),
    sources: readSources(root, env),
    client: { apiKey: env.INKWELL_API_KEY || null },
  };
}

/** A message has 2 keys, and 10 if an SDK sends it back with everything that it knows set to null. */
const keysPerMessage = 16;
const keysMin = 32_768;

function readLimits(section: Section): ServiceLimits {
  const bodyBytesMax = section.value("body_bytes", kind.whole(1024, 268_435_456), { or: 4_194_304 });
  const uploadBytes = section.placed("upload_bytes", kind.whole(1024, 17_179_869_184), {
    or: 16 * bodyBytesMax,
  });
  if (uploadBytes.value < bodyBytesMax) {
    section.problem(
      uploadBytes.where,
      `limits.upload_bytes: ${uploadBytes.value} has no room for one body of limits.body_bytes (${bodyBytesMax})`,
    );
  }
  const messagesMax = section.value("messages", kind.whole(1, 1_000_000), { or: 2048 });
  return {
    bodyBytesMax,
    uploadBytesMax: uploadBytes.value,
    uploadMs: section.value("upload_seconds", kind.whole(1, 3600), { or: 120 }) * 1000,
    refusedBytesPerMinute: section.value("refused_bytes_per_minute", kind.whole(1, 68_719_476_736), {
      or: 62_914_560,
    }),
    refusedMsPerMinute: section.value("refused_milliseconds_per_minute", kind.whole(1, 60_000), {
      or: 1_200,
    }),
    connectionsMax: section.optional("connections", kind.whole(1, 1_000_000)),
    connectionsPerAddressMax: section.optional("connections_per_address", kind.whole(1, 1_000_000)),
    trustedProxies: section
      .list("trusted_proxies", kind.network, {
        or: ["127.0.0.0/8", "::1"],
        expects: 'a list of addresses and networks: ["10.0.0.0/8"]',
      })
      .value.map(({ value }) => value),
    messagesMax,
    keysMax: section.value("keys", kind.whole(256, 16_000_000), {
      or: Math.max(keysMin, keysPerMessage * messagesMax),
    }),
    queueMax: section.value("queue", kind.whole(1, 100_000), { or: 256 }),
    unreadyMs: section.value("unready_seconds", kind.whole(0, 300), { or: 0 }) * 1000,
    drainMs: section.value("drain_seconds", kind.whole(0, 3600), { or: 30 }) * 1000,
    streamIdleMs: section.value("stream_idle_seconds", kind.whole(1, 3600), { or: 120 }) * 1000,
  };
}

function readCors(section: Section): Config["cors"] {
  const origins = section.list("origins", kind.origin, {
    or: [],
    expects: 'a list of origins: ["https://app.example"]',
  });
  return { origins: origins.value.map((each) => each.value) };
}

function readSources(root: Section, env: Environment): SourcesConfig {
  const hubUrl = env.HF_ENDPOINT || "https://huggingface.co";
  if (kind.httpUrl.read(hubUrl, true) === undefined) {
    root.problem("HF_ENDPOINT", `found ${JSON.stringify(hubUrl)}, expected ${kind.httpUrl.expects}`);
  }
  const network =
    /^(PIP_.*|XDG_CONFIG_(HOME|DIRS)|APPDATA|PROGRAMDATA|VIRTUAL_ENV|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR))$/i;
  return {
    hubUrl: hubUrl.replace(/\/+$/, ""),
    hubToken: env.HF_TOKEN || null,
    env: Object.fromEntries(Object.entries(env).filter(([name]) => network.test(name))),
    home: env.HOME || homedir(),
  };
}

function findFile(cwd: string, named: string | undefined, env: Environment): string | null {
  const chosen = named ?? (env.INKWELL_CONFIG || undefined);
  if (chosen !== undefined) {
    const file = path.resolve(cwd, chosen);
    if (existsSync(file)) return file;
    const by = named === undefined ? "INKWELL_CONFIG" : "--config";
    throw new OperatorError(`${by} names ${file}, but there is no such file.`);
  }
  const file = path.join(cwd, fileName);
  if (existsSync(file)) return file;
  const other = path.join(cwd, "inkwell.yml");
  if (existsSync(other))
    throw new OperatorError(`Found ${other}, but the file must be called ${fileName}; rename it.`);
  return null;
}

function readText(file: string): string {
  try {
    const bytes = readFileSync(file);
    if (bytes.length > fileBytesMax)
      throw new Error(`it has ${bytes.length} bytes, the most is ${fileBytesMax}`);
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new OperatorError(`The configuration ${file} cannot be read: ${messageOf(error)}`, error);
  }
}

function shortest(cwd: string, file: string): string {
  const relative = path.relative(cwd, file);
  return relative.startsWith("..") || path.isAbsolute(relative) ? file : relative;
}

function refusal(problems: Problems): OperatorError {
  const lines = problems.lines();
  const head =
    lines.length === 1
      ? "The configuration is wrong:"
      : `The configuration is wrong in ${lines.length} places:`;
  return new OperatorError([head, ...lines.map((each) => `  ${each}`)].join("\n"));
}
