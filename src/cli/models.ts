/**
 * `inkwell models`: lists the models of the configuration with their state in a running service
 * and what it found odd about them, and downloads their files in advance.
 */

import { Command } from "commander";
import { draftModel } from "../actions/drafts.ts";
import { listModels } from "../actions/views.ts";
import { shownSource } from "../app/shown-settings.ts";
import { longestAnswer } from "../chat/catalog.ts";
import type { ModelConfig } from "../config/model.ts";
import { codeOf, OperatorError } from "../errors.ts";
import type { ModelJson } from "../http/admin/live-objects.ts";
import { defaultsObject, pricingObject } from "../http/openai-format/response.ts";
import { inkwell } from "../invocation.ts";
import { megabytes } from "../model-files/progress.ts";
import { nearest, unknownName } from "../spelling.ts";
import { actionCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";
import { draftTexts } from "./plans.ts";
import { NoAnswer } from "./transport.ts";

export function modelsCommand(cli: Cli): Command {
  const models = new Command("models")
    .description("list the models of the configuration with their prices and files")
    .argument("[command]")
    .action((word: string | undefined) => {
      if (word === undefined) return list(cli);
      const near = nearest(word, ["list", "pull", "draft"]);
      const help = near === undefined ? "" : `\n(Did you mean ${near}?)`;
      return models.error(`error: unknown command '${word}'${help}`);
    });

  models
    .command("list")
    .description("the same as without a command")
    .action(() => list(cli));

  models
    .command("pull")
    .description("download the file of a model, so that no start has to wait for it")
    .argument("<id>", "as in the configuration")
    .addHelpText("after", examples(inkwell("models pull smollm2-135m-instruct")))
    .action(async (id: string) => {
      const config = await cli.config();
      const ids = config.models.map((model) => model.id);
      if (!ids.includes(id)) throw new OperatorError(unknownName("model", id, ids));
      const file = await cli.host.services.pullModel(config, id, cli.host);
      cli.print({ id, file }, file ?? `${id} is run by an upstream: there is no file to fetch.`);
    });

  models.addCommand(actionCommand(cli, draftModel, { ...draftTexts(cli), needsService: true }));

  return models;
}

const columns = columnsOf(
  "model",
  "id state? source context_window parallel pricing.prompt pricing.cached_prompt pricing.completion file",
);

async function list(cli: Cli): Promise<void> {
  const config = await cli.config();
  const started = await startedModels(cli);
  const found = await Promise.all(
    config.models.map(async (model) => {
      const { state = null, warnings = null, servers } = started?.find(({ id }) => id === model.id) ?? {};
      const odd = servers?.filter((server) => server.state !== "ok") ?? [];
      const ofServers = odd.map(({ url, state }) => `the server ${url} is ${state.replaceAll("_", " ")}`);
      return {
        ...modelObject(model),
        file: await fileOf(model, config.modelsDir),
        state,
        warnings: warnings && [...warnings, ...ofServers],
      };
    }),
  );
  const rows = found.map((model) => ({
    ...model,
    source: "urls" in model ? model.urls : model.source,
    file: fileText(model.file),
  }));
  cli.print(found, table(rows, columns, cli));
  for (const { id, file, warnings } of found) {
    const remark = file?.problem ?? file?.unchecked ?? null;
    if (remark !== null) cli.remark(`${remark}.`);
    for (const warning of warnings ?? []) if (warning !== remark) cli.remark(`${id}: ${warning}.`);
  }
  cli.remark("Prices are in credits per million tokens.");
}

/** The models as the running service knows them. Null: no service responds. */
async function startedModels({ api }: Cli) {
  if ((await api.url()) === null) return null;
  try {
    return await api.all<ModelJson>(listModels);
  } catch (error) {
    // The address can be that of an earlier service.
    if (error instanceof NoAnswer || codeOf(error) === "service_unavailable") return null;
    throw error;
  }
}

/** All null: the file is not downloaded yet. With a problem, the service cannot start. */
interface ModelFile {
  path: string | null;
  bytes: number | null;
  problem: string | null;
  /** Why nothing has verified the download, and how to. Null: it is verified, or is not one. */
  unchecked: string | null;
}

/** Returns the file of the model. Null: an upstream runs it. */
export async function fileOf(model: ModelConfig, modelsDir: string): Promise<ModelFile | null> {
  if (model.engine === "upstream") return null;
  try {
    // With the module comes an HTTP client, which most commands do not need.
    const { findModelFile } = await import("../model-files/model-files.ts");
    const found = await findModelFile(model.source, modelsDir);
    const { path = null, sizeBytes: bytes = null, unchecked = null } = found ?? {};
    return { path, bytes, problem: null, unchecked };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { path: null, bytes: null, problem: error.message, unchecked: null };
  }
}

function fileText(file: ModelFile | null): string {
  if (file === null) return "-";
  if (file.problem !== null) return "unusable";
  if (file.bytes === null) return "not downloaded";
  return megabytes(file.bytes) + (file.unchecked === null ? "" : ", unchecked");
}

function modelObject(model: ModelConfig) {
  const { id, engine, contextWindow, outputTokensMax, parallel, defaults, price } = model;
  return {
    id,
    engine,
    ...(model.engine === "llama"
      ? { source: shownSource(model.source) }
      : {
          urls: model.urls.map(shownSource),
          key: model.key === null ? "none" : "configured",
          model: model.model,
          dialect: model.dialect,
        }),
    context_window: contextWindow,
    max_output_tokens: longestAnswer(contextWindow, outputTokensMax),
    parallel,
    defaults: defaultsObject(defaults),
    pricing: pricingObject(price),
  };
}
