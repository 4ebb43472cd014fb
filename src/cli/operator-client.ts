/**
 * Requests of commands to the operator listener of the running service, with the operator token of
 * the configuration or of the data folder.
 */
import * as http from "node:http";
import * as https from "node:https";
import { text } from "node:stream/consumers";
import { Command } from "commander";
import type { Static, TSchema } from "typebox";
import type { Config } from "../config/load.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { dialled, urlOf } from "../http/listening.ts";
import { inkwell } from "../invocation.ts";
import { given, isRecord } from "../objects.ts";
import { serviceUrl } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { tokenOf } from "./operator-token.ts";

interface Listener {
  config: Config;
  url: string;
  token(): string;
}

/** Returns a command that calls the operator listener. Its option `--url` names the listener. */
export function listenerCommand(
  cli: Cli,
  name: string,
  about: string,
  action: (listener: Listener) => Promise<void>,
): Command {
  return new Command(name)
    .description(about)
    .option("--url <url>", "URL of the operator listener (default: from the configuration)", serviceUrl)
    .addHelpText("after", examples(inkwell(name), inkwell(`${name} --url http://127.0.0.1:8081`)))
    .action(({ url }: { url?: string }) => {
      const config = cli.config();
      return action({
        config,
        url: url ?? listenerUrl(config.operator, "its operator listener"),
        token: () => tokenOf(config),
      });
    });
}

/** Returns the URL of a listener for this machine. `listener` is its name in a sentence. */
export function listenerUrl({ host, port }: Config["listen"], listener: string): string {
  if (port !== 0) return urlOf(dialled(host), port);
  throw new OperatorError(
    `The configuration lets the service choose the port of ${listener}. Name its URL with --url.`,
  );
}

/**
 * Sends a POST without a body and returns the response, which has this schema. Waits without a
 * time limit: a reload takes minutes. Throws an `OperatorError` for another response.
 */
export async function post<S extends TSchema>(url: string, token: string, schema: S): Promise<Static<S>> {
  return checked(await send("POST", url, token), schema);
}

/** Sends a GET, which must be answered within two seconds. Otherwise like `post`. */
export async function get<S extends TSchema>(url: string, token: string, schema: S): Promise<Static<S>> {
  return checked(await send("GET", url, token, AbortSignal.timeout(2000)), schema);
}

async function checked<S extends TSchema>(answer: unknown, schema: S): Promise<Static<S>> {
  // Only the commands that call the service load the checker.
  const { Check } = await import("typebox/value");
  if (Check(schema, answer)) return answer;
  throw new OperatorError(refusalIn(answer));
}

async function send(method: string, url: string, token: string, signal?: AbortSignal): Promise<unknown> {
  const { request } = url.startsWith("https:") ? https : http;
  const options = { method, headers: { authorization: `Bearer ${token}` }, ...given({ signal }) };
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  request(url, options, (response) => text(response).then(resolve, reject))
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
