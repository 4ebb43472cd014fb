/** `inkwell config check`: whether the next start would take the configuration, and what it comes down to. */
import { Command } from "commander";
import { databaseText } from "../config/database.ts";
import type { Config } from "../config.ts";
import type { Plan } from "../credits/plan.ts";
import { OperatorError } from "../errors.ts";
import type { Cli } from "./cli.ts";
import { count, grouped, table } from "./format.ts";
import { fileOf, modelObject } from "./models.ts";

export function configCommand(cli: Cli): Command {
  const command = new Command("config").description("the configuration");
  command
    .command("check")
    .description("tell everything that is wrong, or what holds; secrets are left out")
    .action(() => check(cli));
  return command;
}

async function check(cli: Cli): Promise<void> {
  const config = cli.config();
  await requireModelFiles(config);
  const rows = [
    ["file", config.file ?? "none: defaults and environment"],
    ["public API", `${config.listen.host} port ${config.listen.port}`],
    ["operator API", `${config.operator.host} port ${config.operator.port}`],
    ["data", config.dataDir],
    ["models", config.modelsDir],
    ["database", databaseText(config.database)],
    ...[...config.plans.values()].map((plan) => ["plan", planText(plan)]),
    ...config.models.map(({ id, price }) => [
      "model",
      `${id}: ${grouped(price.prompt)} / ${grouped(price.completion)} credits per million prompt / completion tokens`,
    ]),
  ];
  cli.print(effective(config), table([{ head: "SETTING" }, { head: "VALUE" }], rows));
  const { plans, models } = config;
  cli.say(`The configuration is right: ${count(plans.size, "plan")}, ${count(models.length, "model")}.`);
}

/** A file that is still to be fetched may be missing; one that lies there, or should, must do. */
async function requireModelFiles({ models, modelsDir }: Config): Promise<void> {
  const problems: string[] = [];
  for (const model of models) {
    const file = await fileOf(model, modelsDir);
    if (file !== null && file.problem !== null) problems.push(`  models.${model.id}.source: ${file.problem}`);
  }
  if (problems.length === 0) return;
  throw new OperatorError(
    ["The configuration can be read, but no service starts with its model files:", ...problems].join("\n"),
  );
}

function planText({ id, base, overage }: Plan): string {
  return `${id}: ${grouped(base.credits)} credits every ${base.every}, overage ${grouped(overage.credits)} every ${overage.every}`;
}

/** In the shape of the file, with every default; secrets only as whether they are set. */
function effective(config: Config) {
  const { limits } = config;
  return {
    file: config.file,
    listen: config.listen,
    operator: {
      host: config.operator.host,
      port: config.operator.port,
      token: config.operator.token === null ? "in the data folder" : "configured",
    },
    data: config.dataDir,
    models_dir: config.modelsDir,
    database: databaseText(config.database),
    plans: Object.fromEntries(
      [...config.plans.values()].map(({ id, base, overage, limits: planLimits, models }) => [
        id,
        {
          base,
          overage,
          limits: {
            requests_per_minute: planLimits.requestsPerMinute ?? null,
            tokens_per_minute: planLimits.tokensPerMinute ?? null,
            concurrent: planLimits.concurrent ?? null,
          },
          models,
        },
      ]),
    ),
    models: config.models.map(modelObject),
    limits: {
      body_bytes: limits.bodyBytesMax,
      messages: limits.messagesMax,
      queue: limits.queueMax,
      drain_seconds: limits.drainMs / 1000,
      stream_idle_seconds: limits.streamIdleMs / 1000,
    },
    cors: config.cors,
    log: config.log,
  };
}
