/** `inkwell models`: what the configuration offers, and fetching a model's file before it is needed. */

import { Command } from "commander";
import { longestAnswer } from "../chat/catalog.ts";
import type { ModelConfig } from "../config/model.ts";
import { OperatorError } from "../errors.ts";
import { defaultsObject } from "../http/openai-format/response.ts";
import { findModelFile } from "../model-files/model-files.ts";
import { megabytes } from "../model-files/progress.ts";
import { withoutLogin } from "../model-files/source.ts";
import { nearest, unknownName } from "../spelling.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { table } from "./format.ts";
import { examples } from "./help.ts";

export function modelsCommand(cli: Cli): Command {
  const models = new Command("models")
    .description("the models of the configuration, their prices and their files")
    .argument("[command]")
    .action((word: string | undefined) => {
      if (word === undefined) return list(cli);
      const near = nearest(word, ["list", "pull"]);
      const help = near === undefined ? "" : `\n(Did you mean ${near}?)`;
      return models.error(`error: unknown command '${word}'${help}`);
    });

  models
    .command("list")
    .description("the same as without a command")
    .action(() => list(cli));

  models
    .command("pull")
    .description("fetch the file of a model, so that no start has to wait for it")
    .argument("<id>", "as in the configuration")
    .addHelpText("after", examples("inkwell models pull smollm2-135m-instruct"))
    .action(async (id: string) => {
      const config = cli.config();
      const ids = config.models.map((model) => model.id);
      if (!ids.includes(id)) throw new OperatorError(unknownName("model", id, ids));
      const file = await cli.host.services.pullModel(config, id, cli.host);
      if (file === null) {
        cli.print({ id, file }, `${id} is run by an upstream: there is no file to fetch.`);
        return;
      }
      cli.print({ id, file }, file);
    });

  return models;
}

async function list(cli: Cli): Promise<void> {
  const { models, modelsDir } = cli.config();
  const files = await Promise.all(models.map((model) => fileOf(model, modelsDir)));
  const right = { align: "right" } as const;
  cli.print(
    models.map((model, i) => ({ ...modelObject(model), file: files[i] ?? null })),
    table(
      [
        { head: "MODEL" },
        { head: "SOURCE" },
        { head: "CONTEXT", ...right },
        { head: "PARALLEL", ...right },
        { head: "PROMPT", ...right },
        { head: "CACHED", ...right },
        { head: "COMPLETION", ...right },
        { head: "FILE" },
      ],
      models.map((model, i) => [
        model.id,
        sourcesOf(model).join(", "),
        grouped(model.contextWindow),
        grouped(model.parallel),
        grouped(model.price.prompt),
        grouped(model.price.cachedPrompt ?? model.price.prompt),
        grouped(model.price.completion),
        fileText(files[i] ?? null),
      ]),
    ),
  );
  for (const file of files) if (file !== null && file.problem !== null) cli.remark(`${file.problem}.`);
  cli.remark("Prices in credits per million tokens.");
}

/** All null: it is still to be fetched. With a problem no service starts. */
interface ModelFile {
  path: string | null;
  bytes: number | null;
  problem: string | null;
}

/** Null where an upstream runs the model. */
export async function fileOf(model: ModelConfig, modelsDir: string): Promise<ModelFile | null> {
  if (model.engine === "upstream") return null;
  try {
    const found = await findModelFile(model.source, modelsDir);
    return { path: found?.path ?? null, bytes: found?.sizeBytes ?? null, problem: null };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { path: null, bytes: null, problem: error.message };
  }
}

function fileText(file: ModelFile | null): string {
  if (file === null) return "-";
  if (file.problem !== null) return "will not do";
  return file.bytes === null ? "to be fetched" : megabytes(file.bytes);
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
    pricing: {
      prompt: price.prompt,
      completion: price.completion,
      cached_prompt: price.cachedPrompt ?? price.prompt,
    },
  };
}

/** Where a model's weights come from, or who runs it. */
export function sourcesOf(model: ModelConfig): string[] {
  return model.engine === "llama" ? [shownSource(model.source)] : model.urls.map(shownSource);
}

/** As the configuration has it, without what may be secret in an address. */
export function shownSource(source: string): string {
  if (!/^https?:/i.test(source)) return source;
  const { origin, pathname } = new URL(source);
  return withoutLogin(origin + pathname);
}
