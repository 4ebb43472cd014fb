/** `inkwell models`: what the configuration offers, and fetching a model's file before it is needed. */
import { Command } from "commander";
import type { ModelConfig } from "../config/model.ts";
import type { Cli } from "./cli.ts";
import { grouped, table } from "./format.ts";
import { requireModel } from "./refusals.ts";

export function modelsCommand(cli: Cli): Command {
  const models = new Command("models")
    .description("the models of the configuration and their prices")
    .action(() => list(cli));

  models
    .command("pull")
    .description("fetch the file of a model, so that no start has to wait for it")
    .argument("<id>")
    .action(async (id: string) => {
      const config = cli.config();
      requireModel(config, id);
      const file = await cli.host.services.pullModel(config, id, cli.host);
      cli.print({ id, file }, file);
    });

  return models;
}

function list(cli: Cli): void {
  const { models } = cli.config();
  const right = { align: "right" } as const;
  cli.print(
    models.map(modelObject),
    table(
      [
        { head: "MODEL" },
        { head: "SOURCE" },
        { head: "CONTEXT", ...right },
        { head: "PARALLEL", ...right },
        { head: "PROMPT", ...right },
        { head: "CACHED", ...right },
        { head: "COMPLETION", ...right },
      ],
      models.map(({ id, source, contextWindow, parallel, price }) => [
        id,
        shownSource(source),
        grouped(contextWindow),
        grouped(parallel),
        grouped(price.prompt),
        grouped(price.cachedPrompt ?? price.prompt),
        grouped(price.completion),
      ]),
    ),
  );
  cli.say("Prices in credits per million tokens.");
}

export function modelObject({ id, engine, source, contextWindow, parallel, price }: ModelConfig) {
  return {
    id,
    engine,
    source: shownSource(source),
    context_window: contextWindow,
    parallel,
    pricing: {
      prompt: price.prompt,
      completion: price.completion,
      cached_prompt: price.cachedPrompt ?? price.prompt,
    },
  };
}

/** As the configuration has it, without what may be secret in an address. */
function shownSource(source: string): string {
  if (!/^https?:/i.test(source)) return source;
  const { origin, pathname } = new URL(source);
  return origin + pathname;
}
