/**
 * `inkwell reload`: makes the running service read its configuration again, over its operator
 * listener, and shows what has changed.
 */
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import path from "node:path";
import { text } from "node:stream/consumers";
import { Command } from "commander";
import { Compile } from "typebox/compile";
import type { Config } from "../config/load.ts";
import { tokenFileName } from "../config/operator.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { reloadObject } from "../http/admin/service.ts";
import { dialled, urlOf } from "../http/listening.ts";
import { isRecord } from "../http/openai-format/json.ts";
import { serviceUrl } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

export function reloadCommand(cli: Cli): Command {
  return new Command("reload")
    .description("make the running service read its configuration again; shows what has changed")
    .option("--url <url>", "URL of the operator listener (default: from the configuration)", serviceUrl)
    .addHelpText("after", examples("inkwell reload", "inkwell reload --url http://127.0.0.1:8081"))
    .action(({ url }: { url?: string }) => reload(cli, url));
}

const isReport = Compile(reloadObject.schema);

async function reload(cli: Cli, url: string | undefined): Promise<void> {
  const config = cli.config();
  const answer = await post(`${url ?? operatorUrl(config)}/admin/reload`, tokenOf(config));
  if (!isReport.Check(answer)) throw new OperatorError(refusalIn(answer));
  const { models, prices, plans, settings, needs_restart } = answer;
  const lines: [label: string, names: readonly string[]][] = [
    ["models added", models.added],
    ["models removed", models.removed],
    ["models changed", models.changed],
    ["prices changed", prices],
    ["plans added", plans.added],
    ["plans changed", plans.changed],
    ["plans retired", plans.retired],
    ["settings changed", settings],
    ["needs a restart", needs_restart],
  ];
  const changed = lines.filter(([, names]) => names.length > 0);
  cli.print(answer, changed.map(([label, names]) => `${label}: ${names.join(", ")}`).join("\n"));
  for (const warning of answer.warnings) cli.remark(warning);
  cli.remark(
    changed.length === 0
      ? "The configuration is reloaded. Nothing has changed."
      : "The configuration is reloaded. Running answers keep their model and price.",
  );
}

function operatorUrl({ operator: { host, port } }: Config): string {
  if (port !== 0) return urlOf(dialled(host), port);
  throw new OperatorError(
    "The configuration lets the service choose the port of its operator listener. Name its URL with --url.",
  );
}

function tokenOf({ operator, dataDir }: Config): string {
  if (operator.token !== null) return operator.token;
  const file = path.join(dataDir, tokenFileName);
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new OperatorError(
      `The operator token cannot be read (${messageOf(error)}). Run the command in the folder of the service's inkwell.yaml and as its user, or set INKWELL_OPERATOR_TOKEN. If the data folder has changed in the file, restart the service.`,
      error,
    );
  }
}

/** Waits without a time limit: loading a model takes minutes. Returns the parsed body. */
async function post(url: string, token: string): Promise<unknown> {
  const { request: send } = url.startsWith("https:") ? https : http;
  const options = { method: "POST", headers: { authorization: `Bearer ${token}` } };
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  send(url, options, (response) => text(response).then(resolve, reject))
    .on("error", reject)
    .end();
  const body = await promise.catch((error: unknown) => {
    throw new OperatorError(
      `No service responds at ${url} (${codeOf(error) ?? messageOf(error)}). If it uses another address or was started with another file, name its URL with --url.`,
      error,
    );
  });
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new OperatorError(`${url} does not respond as Inkwell does. Is this the operator listener?`, error);
  }
}

/** Returns the message of an error response. */
function refusalIn(answer: unknown): string {
  const error = isRecord(answer) ? answer.error : null;
  if (isRecord(error) && typeof error.message === "string") return error.message;
  return "The service responded in an unknown form. Is it of the same version as this command?";
}
