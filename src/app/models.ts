/**
 * The models of the configuration: their files fetched, their engines started, their place in the
 * catalog.
 */
import type { Logger } from "pino";
import type { Model } from "../chat/catalog.ts";
import type { EngineSlot } from "../chat/engine-slot.ts";
import type { Config } from "../config/load.ts";
import type { LlamaModelConfig, ModelConfig, UpstreamModelConfig } from "../config/model.ts";
import { startLlamaEngine } from "../engines/llama/process/engine.ts";
import { UpstreamEngine } from "../engines/upstream/engine.ts";
import { OperatorError } from "../errors.ts";
import { given } from "../given.ts";
import type { ProgressStream } from "../model-files/progress-display.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { miniatureNotice, miniaturePath, notObtained, obtainModel } from "./model-files.ts";

/**
 * Fetches the file of a model unless it is there already; its path. Null where an upstream runs
 * it.
 */
export async function pullModel(
  config: Config,
  modelId: string,
  { stderr }: { stderr: ProgressStream },
): Promise<string | null> {
  const model = config.models.find(({ id }) => id === modelId);
  if (model === undefined) throw new OperatorError(`There is no model "${modelId}" in the configuration.`);
  if (model.engine === "upstream") return null;
  const obtained = await obtainModel(config, model, stderr, new AbortController().signal);
  if (!obtained.found) throw new OperatorError(notObtained(model, obtained));
  return obtained.path;
}

/**
 * Nobody knows when a model was made; a time of this process or of its files would differ between
 * starts and nodes.
 */
const unknownCreated = 0;

export function catalogued(model: ModelConfig, slot: EngineSlot): Model {
  return {
    id: model.id,
    engine: slot,
    price: model.price,
    outputTokensMax: model.outputTokensMax,
    defaults: model.defaults,
    created: unknownCreated,
    ownedBy: "inkwell",
  };
}

/** What is told of a model's engine. */
interface Watchers {
  logger: Logger;
  metrics: Metrics;
}

/** One after another: each takes the machine for itself while it loads. */
export async function startModels(
  config: Config,
  offered: readonly { model: ModelConfig; slot: EngineSlot }[],
  stderr: ProgressStream,
  watchers: Watchers,
  signal: AbortSignal,
): Promise<{ id: string; onMiniature: boolean }[]> {
  // There is nothing to load: these answer while others are still being fetched.
  for (const { model, slot } of offered) {
    if (model.engine === "upstream") await slot.fill(upstreamEngine(config, model, watchers));
  }
  const started = [];
  for (const { model, slot } of offered) {
    if (model.engine === "upstream") {
      started.push({ id: model.id, onMiniature: false });
      continue;
    }
    const { onMiniature } = await startModel(config, model, slot, stderr, watchers, signal);
    started.push({ id: model.id, onMiniature });
    signal.throwIfAborted();
  }
  return started;
}

/**
 * Fills the slot with the model's engine, or with one on the miniature where the model cannot be
 * fetched.
 */
async function startModel(
  config: Config,
  model: LlamaModelConfig,
  slot: EngineSlot,
  stderr: ProgressStream,
  { logger, metrics }: Watchers,
  signal: AbortSignal,
): Promise<{ onMiniature: boolean }> {
  const obtained = await obtainModel(config, model, stderr, signal);
  if (!obtained.found) stderr.write(`${notObtained(model, obtained)}\n${miniatureNotice(model)}\n`);
  const engine = await startLlamaEngine(
    {
      modelPath: obtained.found ? obtained.path : miniaturePath,
      contextWindow: model.contextWindow,
      parallel: model.parallel,
      queueMax: config.limits.queueMax,
      pausedBytesMax: model.pausedBytesMax,
      gpu: model.gpu === "off" ? false : model.gpu,
      ...given({ threads: model.threads, reasoning: model.reasoning, loadMs: model.loadMs }),
      environment: model.environment,
      onDecode: (answers) => metrics.decoded(model.id, answers),
      log: logger.child({ model: model.id }),
    },
    signal,
  ).catch((cause: unknown) => {
    if (cause instanceof OperatorError)
      throw new OperatorError(`models.${model.id}: ${cause.message}`, cause);
    throw cause;
  });
  await slot.fill(engine);
  return { onMiniature: !obtained.found };
}

function upstreamEngine(
  config: Config,
  model: UpstreamModelConfig,
  { logger }: Pick<Watchers, "logger">,
): UpstreamEngine {
  const { connectMs, headersMs, idleMs } = model;
  return new UpstreamEngine({
    urls: model.urls,
    key: model.key,
    model: model.model,
    dialect: model.dialect,
    contextWindow: model.contextWindow,
    parallel: model.parallel,
    queueMax: config.limits.queueMax,
    times: { connectMs, headersMs, idleMs },
    reserved: model.reserved,
    sendStop: model.sendStop,
    reasoning: model.reasoning,
    log: logger.child({ model: model.id }),
  });
}
