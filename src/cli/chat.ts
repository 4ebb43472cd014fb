/**
 * `inkwell chat`: a streamed conversation with the running service, with the cost of each turn.
 *
 * It uses the key from `--key` or INKWELL_API_KEY. Without one, it issues a temporary key for the
 * account, because existing keys cannot be read back. The temporary key is revoked when the
 * conversation ends, and expires after a day.
 */
import { createInterface } from "node:readline";
import { Command } from "commander";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import { dialled, urlOf } from "../http/listening.ts";
import { inkwell, shipped } from "../invocation.ts";
import { unknownName } from "../spelling.ts";
import { accountName, serviceUrl, tokenLimit } from "./arguments.ts";
import { ChatClient, ClientError, type OfferedModel } from "./chat-client.ts";
import type { Chat } from "./chat-commands.ts";
import { pipeSession, terminalSession } from "./chat-session.ts";
import type { Cli } from "./cli.ts";
import { Conversation, sentence } from "./conversation.ts";
import { examples } from "./help.ts";
import { onStopSignal, type StopSignal, signalExitCodes } from "./signals.ts";

const temporaryKeyTtlMs = 24 * 60 * 60 * 1000;

interface ChatOptions {
  account: string;
  key?: string;
  url?: string;
  maxTokens?: number;
}

export function chatCommand(cli: Cli): Command {
  return new Command("chat")
    .description("talk to a model of the running service; shows the cost of each turn")
    .argument("[model]", "id of the model (default: the first that the service lists)")
    .option("--account <name>", "account to charge, unless a key is given", accountName, "default")
    .option("--key <key>", "API key to use (or INKWELL_API_KEY)")
    .option("--url <url>", "URL of the service (default: from the configuration)", serviceUrl)
    .option(
      "--max-tokens <number>",
      "maximum tokens of an answer (default: the model's, or 2048)",
      tokenLimit,
    )
    .addHelpText(
      "after",
      examples(
        inkwell("chat"),
        inkwell("chat smollm2-135m-instruct --account ada --max-tokens 100"),
        inkwell("chat --url https://llm.example --key ink_..."),
        `echo "What is an inkwell?" | ${inkwell("chat --json")}`,
      ) +
        `\n\nIn a conversation: /help, /balance, /model [id], /clear, /quit. Ctrl-C stops an answer. ${shipped("docs/cli.md")} has more.`,
    )
    .action((model: string | undefined, options: ChatOptions) => chat(cli, model, options));
}

async function chat(cli: Cli, model: string | undefined, options: ChatOptions): Promise<void> {
  const config = cli.config();
  const url = options.url ?? urlIn(config);
  const key = options.key ?? config.client.apiKey;
  const talk = (withKey: string) =>
    converse(cli, new ChatClient(url, withKey), model, options.maxTokens ?? null);
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

async function converse(
  cli: Cli,
  client: ChatClient,
  wanted: string | undefined,
  maxTokens: number | null,
): Promise<void> {
  const { stdin, stdout, stderr } = cli.host;
  const starting = new AbortController();
  /** Replaced when the session begins. */
  let onSignal = (signal: StopSignal): void => {
    cli.exitCode = signalExitCodes[signal];
    starting.abort();
  };
  using _signals = onStopSignal((signal) => onSignal(signal));
  const models = await offeredModels(client, starting.signal);
  if (starting.signal.aborted) return;
  const model = chooseModel(models, wanted);
  // With --json, stdout is for the document: prompts and answers go to stderr.
  const output = cli.json ? stderr : stdout;
  const atTerminal = stdin.isTTY === true && output.isTTY === true;
  const conversation = new Conversation(client, model, maxTokens, { answers: output, remarks: stderr });
  const reader = createInterface({ input: stdin, output, terminal: atTerminal, prompt: "> " });
  const chat: Chat = { conversation, models, turns: [] };
  const session = atTerminal ? terminalSession(reader, chat, output) : pipeSession(reader, chat);
  onSignal = (signal) => session.onSignal(signal);
  cli.exitCode = await session.run();
  if (cli.json) cli.print({ model: model.id, turns: chat.turns }, "");
}

async function offeredModels(client: ChatClient, signal: AbortSignal): Promise<OfferedModel[]> {
  try {
    return await client.models(signal);
  } catch (error) {
    if (error instanceof ClientError) throw new OperatorError(sentence(error.message), error);
    throw error;
  }
}

function chooseModel(offered: readonly OfferedModel[], wanted: string | undefined): OfferedModel {
  const [first] = offered;
  if (first === undefined) throw new OperatorError("This key may use no model of the service.");
  if (wanted === undefined) return first;
  const ids = offered.map(({ id }) => id);
  const model = offered.find(({ id }) => id === wanted);
  if (model === undefined) throw new OperatorError(unknownName("model", wanted, ids));
  return model;
}

function urlIn({ listen: { host, port } }: Config): string {
  if (port === 0)
    throw new OperatorError("The configuration lets the service choose its port. Name its URL with --url.");
  return urlOf(dialled(host), port);
}
