/**
 * `inkwell chat`: a streamed conversation with the running service, with the cost of each turn. It
 * knows the service only by its URL and a key, and expects no field of a response to be present.
 *
 * Without a key, it makes one for the account, because existing keys cannot be read back. That key
 * is revoked when the conversation ends, and expires after a day.
 */
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline/promises";
import { Command, InvalidArgumentError } from "commander";
import { EventSourceParserStream } from "eventsource-parser/stream";
import type { NewKeyJson } from "../accounts/operator-objects.ts";
import { makeKey, revokeKey } from "../actions/keys.ts";
import { httpUrl } from "../config/kinds.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { dialled, urlOf } from "../http/listening.ts";
import { inkwell } from "../invocation.ts";
import { dayMs } from "../units.ts";
import { visibleText } from "../visible-text.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { onSignal, onStopSignal, signalExitCodes } from "./signals.ts";
import { keyHeader } from "./transport.ts";

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
    .option("--account <name>", "account to charge, unless a key is given", "default")
    .option("--key <key>", "API key to use (or INKWELL_API_KEY)")
    .option("--url <url>", "URL of the service (default: that of this folder)", serviceUrl)
    .option("--max-tokens <number>", "maximum tokens of an answer (default: the model's)", tokenLimit)
    .addHelpText("after", examples(inkwell("chat"), `echo "What is ink?" | ${inkwell("chat")}`))
    .action((model: string | undefined, options: ChatOptions) => chat(cli, model, options));
}

async function chat(cli: Cli, model: string | undefined, options: ChatOptions): Promise<void> {
  if (cli.json) throw new OperatorError("chat has no JSON document. Send requests to the API instead.");
  const config = await cli.config();
  const ownKey = options.key ?? config.client.apiKey;
  const { host, port } = config.listen;
  // A key that is made for the conversation goes to the service that made it.
  const found = () => (ownKey === null || port === 0 ? cli.api.publicUrl() : urlOf(dialled(host), port));
  const url = options.url ?? (await found());
  const leaving = new AbortController();
  const leave = (name: keyof typeof signalExitCodes) => {
    cli.exitCode = signalExitCodes[name];
    leaving.abort();
  };
  // Until the key is revoked: a terminal that closes sends it twice.
  using _hangUp = onSignal(cli.signals, "SIGHUP", leave);
  const talk = async (key: string) => {
    using _stop = onStopSignal(cli.signals, leave);
    await converse(cli, senderTo(url, key), leaving, model, options.maxTokens).catch((error: unknown) => {
      // A terminal that has closed cannot be set back.
      if (codeOf(error) !== "EIO") throw error;
    });
  };
  if (ownKey !== null) return await talk(ownKey);
  if (options.url !== undefined)
    throw new OperatorError("A service at another URL needs a key of its own: --key, or INKWELL_API_KEY.");
  const { account } = options;
  const { nowMs } = await cli.api.clock();
  const made = await cli.api.get<NewKeyJson>(makeKey, {
    account,
    operation_id: `chat-${randomUUID()}`,
    name: "chat",
    expires_at: new Date(nowMs + dayMs).toISOString(),
  });
  try {
    await talk(made.key ?? "");
  } finally {
    await cli.api.get(revokeKey, { key: made.id });
  }
}

/** Every line is a turn. At a terminal, Ctrl-C stops an answer, and leaves at the prompt. */
async function converse(cli: Cli, send: Send, leaving: AbortController, wanted?: string, tokens?: number) {
  const { stdin: input, stdout: output } = cli.host;
  const terminal = input.isTTY === true && output.isTTY === true;
  // Nobody reads the answers any more.
  output.on("error", () => leaving.abort());
  const listed = parse(await (await send("/v1/models", leaving.signal)).text());
  const model = wanted ?? listed?.data?.[0]?.id;
  if (model === undefined) throw new OperatorError("The service lists no model for this key.");
  const reader = createInterface({ input, output, terminal, prompt: "> ", signal: leaving.signal });
  /** Ends with the next Ctrl-C: the answer, or the conversation. */
  let current = leaving;
  if (terminal) {
    reader.on("SIGINT", () => (current.signal.aborted ? leaving : current).abort());
    reader.on("close", () => leaving.abort());
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
        output.write(visibleText(text));
      };
      current = new AbortController();
      const signal = AbortSignal.any([leaving.signal, current.signal]);
      const question = { role: "user", content: line.trim() };
      const request = { model, messages: [...messages, question], max_tokens: tokens };
      const outcome = await ask(send, request, signal, show).catch((error: unknown) => {
        if (!terminal) cli.exitCode ||= 1;
        if (signal.aborted) return "Stopped. The prompt and the tokens made until now are charged.";
        return error instanceof OperatorError ? error.message : `The answer broke off: ${messageOf(error)}.`;
      });
      current = leaving;
      // A question without an answer is not sent again.
      if (answer !== "") messages.push(question, { role: "assistant", content: answer });
      if (answer !== "") output.write("\n");
      cli.remark(outcome);
    }
    if (terminal && !leaving.signal.aborted) reader.prompt();
  }
  // The prompt of the shell belongs on a new line.
  if (terminal) output.write("\n");
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
  const headers = { ...keyHeader(key.trim(), "The API key"), "content-type": "application/json" };
  return async (path, signal, body) => {
    const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const response = await fetch(`${url}${path}`, { ...init, headers, signal }).catch((error: Error) => {
      if (signal.aborted) throw new OperatorError("Stopped.", error);
      const reason = codeOf(error.cause) ?? messageOf(error.cause ?? error);
      throw new OperatorError(
        `No service responds at ${url} (${reason}). "${inkwell("serve")}" starts one.`,
        error,
      );
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

/** Parses the URL of the service. The `/v1` of its API is removed. */
function serviceUrl(value: string): string {
  if (httpUrl.read(value, true) !== undefined && !/[?#@]/.test(value))
    return value.replace(/(\/v1)?\/*$/, "");
  throw new InvalidArgumentError(
    "It is a URL such as http://127.0.0.1:8080, without a user, a query and a fragment.",
  );
}

const tokensMax = 1_000_000_000;

function tokenLimit(value: string): number {
  const tokens = /^\d{1,10}$/.test(value) ? Number(value) : 0;
  if (tokens >= 1 && tokens <= tokensMax) return tokens;
  throw new InvalidArgumentError(`It is a whole number of tokens from 1 to ${tokensMax}.`);
}
