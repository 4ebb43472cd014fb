/**
 * `inkwell chat`: a conversation with the running service, streamed, with what each turn cost.
 *
 * It uses the key it is given (`--key`, INKWELL_API_KEY). Keys cannot be read back from the store, so without one it
 * makes a key of its own for the account, which expires within a day, and revokes it when the conversation ends.
 *
 * Ctrl-C stops the answer and keeps the conversation; at the prompt, Ctrl-D or Ctrl-C twice leaves. If stdin is not a
 * terminal, each line is a turn, and only answers go to stdout.
 */
import { createInterface, type Interface } from "node:readline";
import type { Writable } from "node:stream";
import { Command } from "commander";
import { issueKey } from "../accounts/keys.ts";
import { dialled, urlOf } from "../app/listening.ts";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import { unknownName } from "../spelling.ts";
import { accountName, serviceUrl, tokenLimit } from "./arguments.ts";
import { ChatClient, ClientError, type OfferedModel } from "./chat-client.ts";
import { type Chat, takeLine } from "./chat-commands.ts";
import type { Cli } from "./cli.ts";
import { Conversation, sentence } from "./conversation.ts";
import { examples } from "./help.ts";
import { noAccount } from "./refusals.ts";

const ownKeyTtlMs = 24 * 60 * 60 * 1000;

interface ChatOptions {
  account: string;
  key?: string;
  url?: string;
  maxTokens?: number;
}

export function chatCommand(cli: Cli): Command {
  return new Command("chat")
    .description("talk to a model of the running service; shows what each turn cost")
    .argument("[model]", "its id (default: the first that the service lists)")
    .option("--account <name>", "whose credits are spent, unless a key is given", accountName, "default")
    .option("--key <key>", "the API key to use (or INKWELL_API_KEY)")
    .option(
      "--url <url>",
      "the service's address (default: where the configuration has it listen)",
      serviceUrl,
    )
    .option("--max-tokens <number>", "most tokens of an answer (default: the model's, or 2048)", tokenLimit)
    .addHelpText(
      "after",
      examples(
        "inkwell chat",
        "inkwell chat smollm2-135m-instruct --account ada --max-tokens 100",
        "inkwell chat --url https://llm.example --key ink_...",
        'echo "What is an inkwell?" | inkwell chat --json',
      ) +
        "\n\nIn a conversation: /help, /balance, /model [id], /clear, /quit. Ctrl-C stops an answer. docs/cli.md has more.",
    )
    .action((model: string | undefined, options: ChatOptions) => chat(cli, model, options));
}

async function chat(cli: Cli, model: string | undefined, options: ChatOptions): Promise<void> {
  const config = cli.config();
  const url = options.url ?? addressOf(config);
  const given = options.key ?? config.client.apiKey;
  if (given !== null) {
    await converse(cli, new ChatClient(url, given), model, options);
    return;
  }
  if (options.url !== undefined) {
    throw new OperatorError(
      "A service at another address needs a key of its own: --key, or INKWELL_API_KEY.",
    );
  }
  await cli.withStore(config, async ({ store }) => {
    const nowMs = Date.now();
    const own = await issueKey(
      store,
      options.account,
      { name: "chat", expiresMs: nowMs + ownKeyTtlMs },
      nowMs,
    );
    if (own === null) throw noAccount(options.account);
    try {
      await converse(cli, new ChatClient(url, own.key), model, options);
    } finally {
      await store.revokeKey(own.row.id, Date.now());
    }
  });
}

/** Exit codes of shells for a program that a signal ended. */
const signalExitCodes = { SIGINT: 130, SIGTERM: 143 } as const;
type StopSignal = keyof typeof signalExitCodes;

async function converse(
  cli: Cli,
  client: ChatClient,
  wanted: string | undefined,
  { maxTokens }: ChatOptions,
): Promise<void> {
  const { stdin, stdout, stderr } = cli.host;
  const starting = new AbortController();
  /** Replaced when the conversation begins. */
  let onSignal = (signal: StopSignal): void => {
    cli.exitCode = signalExitCodes[signal];
    starting.abort();
  };
  const listener = (signal: StopSignal) => onSignal(signal);
  process.on("SIGINT", listener);
  process.on("SIGTERM", listener);
  try {
    const models = await offeredModels(client, starting.signal);
    if (starting.signal.aborted) return;
    const model = chooseModel(models, wanted);
    // With --json, stdout is for the document: the prompt and the answers go the other way.
    const output = cli.json ? stderr : stdout;
    const atTerminal = stdin.isTTY === true && output.isTTY === true;
    const options = { model, maxTokens: maxTokens ?? null };
    const conversation = new Conversation(client, options, { answers: output, remarks: stderr });
    const reader = createInterface({ input: stdin, output, terminal: atTerminal, prompt: "> " });
    const chat: Chat = { conversation, models, turns: [] };
    const session = atTerminal ? new TerminalSession(reader, chat, output) : new PipeSession(reader, chat);
    onSignal = (signal) => session.onSignal(signal);
    await session.run();
    if (cli.json) cli.print({ model: model.id, turns: chat.turns }, "");
    cli.exitCode = session.exitCode;
  } finally {
    process.off("SIGINT", listener);
    process.off("SIGTERM", listener);
  }
}

/** Every line is a turn. The first SIGINT stops the answer under way; the second one, or one between answers, leaves. */
class PipeSession {
  readonly #reader: Interface;
  readonly #chat: Chat;
  #interrupted = false;
  #left: StopSignal | null = null;
  #refused = false;

  constructor(reader: Interface, chat: Chat) {
    this.#reader = reader;
    this.#chat = chat;
  }

  get exitCode(): number {
    if (this.#left !== null) return signalExitCodes[this.#left];
    return this.#refused || this.#chat.turns.some((turn) => turn.finish_reason === null) ? 1 : 0;
  }

  onSignal(signal: StopSignal): void {
    const { conversation } = this.#chat;
    const goesOn = signal === "SIGINT" && conversation.busy && !this.#interrupted;
    this.#interrupted = true;
    conversation.stop();
    if (goesOn) return;
    this.#left = signal;
    this.#reader.close();
  }

  async run(): Promise<void> {
    for await (const line of this.#reader) {
      // Lines that were read before the signal are still handed out.
      if (this.#left !== null) break;
      const outcome = await takeLine(line, this.#chat);
      if (outcome === "leave") break;
      if (outcome === "refused") this.#refused = true;
    }
    this.#reader.close();
  }
}

/** With a prompt; Ctrl-C reaches the reader as a key, or the process as SIGINT. */
class TerminalSession {
  readonly #reader: Interface;
  readonly #chat: Chat;
  readonly #output: Writable;
  readonly exitCode = 0;
  #open = true;
  #interrupted = false;

  constructor(reader: Interface, chat: Chat, output: Writable) {
    this.#reader = reader;
    this.#chat = chat;
    this.#output = output;
    reader.on("SIGINT", () => this.onSignal("SIGINT"));
    reader.on("close", () => {
      // Left by a key: the shell's prompt is not to stand behind ours.
      if (this.#open) output.write("\n");
      this.#open = false;
      this.#chat.conversation.stop();
    });
  }

  onSignal(signal: StopSignal): void {
    const { conversation } = this.#chat;
    if (signal === "SIGTERM" || (!conversation.busy && this.#interrupted)) {
      this.#reader.close();
    } else if (conversation.busy) {
      conversation.stop();
    } else {
      this.#interrupted = true;
      this.#output.write("\n");
      conversation.remark("Ctrl-C again, or Ctrl-D, leaves.");
      this.#reader.prompt();
    }
  }

  async run(): Promise<void> {
    const { conversation } = this.#chat;
    conversation.remark(
      `Talking to ${conversation.model.id}. /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.`,
    );
    this.#reader.prompt();
    for await (const line of this.#reader) {
      // Lines that were typed before Ctrl-D are still handed out.
      if (!this.#open) break;
      this.#interrupted = false;
      if ((await takeLine(line, this.#chat)) === "leave") {
        this.#open = false;
        break;
      }
      if (this.#open) this.#reader.prompt();
    }
    this.#reader.close();
  }
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
  const model = offered.find(({ id }) => id === wanted);
  if (model !== undefined) return model;
  const ids = offered.map(({ id }) => id);
  throw new OperatorError(unknownName("model", wanted, ids));
}

function addressOf({ listen: { host, port } }: Config): string {
  if (port === 0)
    throw new OperatorError("The configuration lets the service take any free port; say which with --url.");
  return urlOf(dialled(host), port);
}
