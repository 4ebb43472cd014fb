/**
 * `inkwell chat`: a streamed conversation with the running service, with the cost of each turn. It
 * knows the service only by its URL and a key, and expects no field of a response to be present.
 *
 * It uses the key from `--key` or INKWELL_API_KEY. Without one, it issues a temporary key for the
 * account, because existing keys cannot be read back. The temporary key is revoked when the
 * conversation ends, and expires after a day.
 */
import { createInterface } from "node:readline/promises";
import { Command } from "commander";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { visibleText } from "../visible-text.ts";
import { accountName, serviceUrl, tokenLimit } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { listenerUrl } from "./operator-client.ts";
import { onStopSignal, type StopSignal, signalExitCodes } from "./signals.ts";

const temporaryKeyTtlMs = 24 * 60 * 60 * 1000;
/** Bounds the memory for an event that never ends. */
const eventCharactersMax = 16 * 1024 * 1024;

interface ChatOptions {
  account: string;
  key?: string;
  url?: string;
  maxTokens?: number;
}

/** Sends a request, and returns a response with a status of success. */
type Send = (path: string, signal: AbortSignal, body?: object) => Promise<Response>;

/** Parsed JSON whose fields may all be missing or of another type. */
type Json = { readonly [field: string]: Json } | null | undefined;

export function chatCommand(cli: Cli): Command {
  return new Command("chat")
    .description("talk to a model of the running service; shows the cost of each turn")
    .argument("[model]", "id of the model (default: the first that the service lists)")
    .option("--account <name>", "account to charge, unless a key is given", accountName, "default")
    .option("--key <key>", "API key to use (or INKWELL_API_KEY)")
    .option("--url <url>", "URL of the service (default: from the configuration)", serviceUrl)
    .option("--max-tokens <number>", "maximum tokens of an answer (default: the model's)", tokenLimit)
    .addHelpText("after", examples(inkwell("chat"), `echo "What is ink?" | ${inkwell("chat")}`))
    .action((model: string | undefined, options: ChatOptions) => chat(cli, model, options));
}

async function chat(cli: Cli, model: string | undefined, options: ChatOptions): Promise<void> {
  if (cli.json) throw new OperatorError("chat has no JSON document. Send requests to the API instead.");
  const config = cli.config();
  const url = options.url ?? listenerUrl(config.listen, "its public API");
  const key = options.key ?? config.client.apiKey;
  const talk = (withKey: string) => converse(cli, senderTo(url, withKey), model, options.maxTokens);
  if (key !== null) return await talk(key);
  if (options.url !== undefined) {
    throw new OperatorError("A service at another URL needs a key of its own: --key, or INKWELL_API_KEY.");
  }
  await cli.withActions(config, async (actions) => {
    const { ledgerMs: nowMs } = await actions.clock();
    const properties = { name: "chat", expiresMs: nowMs + temporaryKeyTtlMs };
    const issued = await actions.keys.issue(options.account, properties);
    try {
      await talk(issued.key);
    } finally {
      await actions.keys.revoke(issued.row.id);
    }
  });
}

/** Every line is a turn. At a terminal, Ctrl-C during an answer stops only the answer. */
async function converse(cli: Cli, send: Send, wanted?: string, maxTokens?: number): Promise<void> {
  const { stdin, stdout } = cli.host;
  const atTerminal = stdin.isTTY === true && stdout.isTTY === true;
  const leaving = new AbortController();
  let answering: AbortController | null = null;
  const interrupt = (signal: StopSignal) => {
    if (atTerminal && signal === "SIGINT" && answering?.signal.aborted === false) return answering.abort();
    if (!atTerminal) cli.exitCode = signalExitCodes[signal];
    leaving.abort();
  };
  using _signals = onStopSignal(interrupt);
  const listed = await send("/v1/models", leaving.signal);
  const model = wanted ?? parse(await listed.text())?.data?.[0]?.id;
  if (model === undefined) throw new OperatorError("The service lists no model for this key.");
  const reader = createInterface({ input: stdin, output: stdout, terminal: atTerminal, prompt: "> " });
  leaving.signal.addEventListener("abort", () => reader.close());
  if (atTerminal) {
    reader.on("SIGINT", () => interrupt("SIGINT")).on("close", () => leaving.abort());
    cli.remark(`Talking to ${model}. Ctrl-C stops an answer. At the prompt, Ctrl-C or Ctrl-D leaves.`);
    reader.prompt();
  }
  const messages: object[] = [];
  for await (const line of reader) {
    // The reader still yields lines that it read before it was closed.
    if (leaving.signal.aborted) break;
    if (line.trim() !== "") {
      let answer = "";
      const show = (text: string) => {
        answer += text;
        stdout.write(visibleText(text));
      };
      answering = new AbortController();
      const signal = AbortSignal.any([leaving.signal, answering.signal]);
      messages.push({ role: "user", content: line.trim() });
      const request = { model, messages, max_tokens: maxTokens };
      const outcome = await ask(send, request, signal, show).catch((error: unknown) => {
        if (!atTerminal) cli.exitCode ||= 1;
        if (signal.aborted) return "Stopped. The prompt and the tokens made until now are charged.";
        return error instanceof OperatorError ? error.message : `The answer broke off: ${messageOf(error)}.`;
      });
      answering = null;
      // A question without an answer is not sent again.
      if (answer === "") messages.pop();
      else messages.push({ role: "assistant", content: answer });
      if (answer !== "") stdout.write("\n");
      cli.remark(outcome);
    }
    if (atTerminal && !leaving.signal.aborted) reader.prompt();
  }
  // The prompt of the shell belongs on a new line.
  if (atTerminal) stdout.write("\n");
}

/** Shows the answer while it arrives, and returns a line about its cost. */
async function ask(send: Send, request: object, signal: AbortSignal, show: (text: string) => void) {
  let cost = "cost unknown";
  const onComment = (comment: string) => {
    const [, credits, left] = /x-inkwell-cost: (\S+), x-inkwell-balance: (\S+)/.exec(comment) ?? [];
    if (credits !== undefined) cost = `${credits} credits · ${left} left`;
  };
  const body = { ...request, stream: true, stream_options: { include_usage: true } };
  const response = await send("/v1/chat/completions", signal, body);
  const events = response.body
    ?.pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream({ maxBufferSize: eventCharactersMax, onComment }));
  let ending = "";
  for await (const { data } of events ?? []) {
    if (data === "[DONE]") return ending === "stop" ? cost : `${cost} · cut off: ${ending}`;
    const chunk = parse(data);
    if (chunk?.error) throw refusalIn(chunk);
    const { delta, finish_reason } = chunk?.choices?.[0] ?? {};
    show(`${delta?.content ?? ""}`);
    ending = `${finish_reason ?? ending}`;
  }
  throw new OperatorError("The answer broke off before its end.");
}

function senderTo(url: string, key: string): Send {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  return async (path, signal, body) => {
    const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const response = await fetch(`${url}${path}`, { ...init, headers, signal }).catch((error: Error) => {
      if (signal.aborted) throw new OperatorError("Stopped.", error);
      const reason = codeOf(error.cause) ?? messageOf(error.cause ?? error);
      const advice = `"${inkwell("serve")}" starts one.`;
      throw new OperatorError(`No service responds at ${url} (${reason}). ${advice}`, error);
    });
    if (response.ok) return response;
    throw refusalIn(parse(await response.text()));
  };
}

/** Returns the error of the service as one line. */
function refusalIn(body: Json): OperatorError {
  const { message = "The service refuses the request.", code = "no code" } = body?.error ?? {};
  return new OperatorError(`${message} (${code})`.replace(/\s+/g, " "));
}

function parse(text: string): Json {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new OperatorError("The service responded with text that is not JSON. Is the URL right?", error);
  }
}
