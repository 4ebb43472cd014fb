/**
 * `inkwell chat`: a conversation with the running service, streamed, with what each turn cost.
 *
 * It uses the key it is given (`--key`, INKWELL_API_KEY). Keys cannot be read back from the store, so without one it
 * makes a key of its own for the account, which expires within a day, and revokes it when the conversation ends.
 *
 * Ctrl-C stops the answer and not the program; at the prompt, Ctrl-D or Ctrl-C twice leaves. Where stdin is no
 * terminal, every line of it is a turn, and answers alone go to stdout.
 */
import { createInterface, type Interface } from "node:readline";
import type { Writable } from "node:stream";
import { Command } from "commander";
import { issueKey } from "../access/issue-key.ts";
import type { Config } from "../config.ts";
import { OperatorError } from "../errors.ts";
import { dialled, urlOf } from "../main/listening.ts";
import { accountName, serviceUrl } from "./arguments.ts";
import { ChatClient, ClientError, type OfferedModel } from "./chat-client.ts";
import type { Cli } from "./cli.ts";
import { Conversation, sentence, type Turn } from "./conversation.ts";
import { examples } from "./help.ts";
import { noAccount, noSuch } from "./refusals.ts";

const ownKeyTtlMs = 24 * 60 * 60 * 1000;

interface ChatOptions {
  account: string;
  key?: string;
  url?: string;
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
    .addHelpText(
      "after",
      examples(
        "inkwell chat",
        "inkwell chat smollm2-135m-instruct --account ada",
        "inkwell chat --url https://llm.example --key ink_...",
        'echo "What is an inkwell?" | inkwell chat --json',
      ),
    )
    .action((model: string | undefined, options: ChatOptions) => chat(cli, model, options));
}

async function chat(cli: Cli, model: string | undefined, options: ChatOptions): Promise<void> {
  const config = cli.config();
  const url = options.url ?? addressOf(config);
  const given = options.key ?? config.client.apiKey;
  if (given !== null) {
    await converse(cli, new ChatClient(url, given), model);
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
      await converse(cli, new ChatClient(url, own.key), model);
    } finally {
      await store.revokeKey(own.row.id, Date.now());
    }
  });
}

async function converse(cli: Cli, client: ChatClient, wanted: string | undefined): Promise<void> {
  const { stdin, stdout, stderr } = cli.host;
  const model = await chooseModel(client, wanted);
  // With --json, stdout is for the document: the prompt and the answers go the other way.
  const output = cli.json ? stderr : stdout;
  const atTerminal = stdin.isTTY === true && output.isTTY === true;
  const conversation = new Conversation(client, model, { answers: output, remarks: stderr });
  const reader = createInterface({ input: stdin, output, terminal: atTerminal, prompt: "> " });
  const turns = await (atTerminal
    ? talk(reader, conversation, model, output)
    : readAll(reader, conversation));
  if (cli.json) cli.print({ model: model.id, turns }, "");
  if (!atTerminal && turns.some((turn) => turn.error !== null)) cli.exitCode = 1;
}

/** Every line is a turn. A signal ends the answer and the whole. */
async function readAll(reader: Interface, conversation: Conversation): Promise<Turn[]> {
  const turns: Turn[] = [];
  let left = false;
  const leave = () => {
    left = true;
    conversation.stop();
    reader.close();
  };
  process.on("SIGINT", leave);
  process.on("SIGTERM", leave);
  try {
    for await (const line of reader) {
      // Lines that were read before the signal are still handed out.
      if (left || !(await takeLine(line, conversation, turns))) break;
    }
  } finally {
    process.off("SIGINT", leave);
    process.off("SIGTERM", leave);
  }
  return turns;
}

/** With a prompt, and Ctrl-C as a key that the reader sees. */
async function talk(
  reader: Interface,
  conversation: Conversation,
  model: OfferedModel,
  output: Writable,
): Promise<Turn[]> {
  const turns: Turn[] = [];
  let open = true;
  let interrupted = false;
  const leave = () => {
    conversation.stop();
    reader.close();
  };
  reader.on("close", () => {
    // Left by a key: the shell's prompt is not to stand behind ours.
    if (open) output.write("\n");
    open = false;
  });
  reader.on("SIGINT", () => {
    if (conversation.answering) {
      conversation.stop();
    } else if (interrupted) {
      reader.close();
    } else {
      interrupted = true;
      output.write("\n");
      conversation.remark("Ctrl-C again, or Ctrl-D, leaves.");
      reader.prompt();
    }
  });
  process.on("SIGTERM", leave);
  try {
    conversation.remark(`Talking to ${model.id}. /clear begins anew, /exit leaves, Ctrl-C stops an answer.`);
    reader.prompt();
    for await (const line of reader) {
      interrupted = false;
      if (!(await takeLine(line, conversation, turns))) {
        open = false;
        break;
      }
      if (open) reader.prompt();
    }
  } finally {
    process.off("SIGTERM", leave);
  }
  return turns;
}

/** False where the line asks to leave. */
async function takeLine(line: string, conversation: Conversation, turns: Turn[]): Promise<boolean> {
  const said = line.trim();
  if (said === "/exit" || said === "/quit") return false;
  if (said === "/clear") {
    conversation.forget();
    conversation.remark("Forgotten; this is a new conversation.");
  } else if (said !== "") {
    turns.push(await conversation.say(said));
  }
  return true;
}

async function chooseModel(client: ChatClient, wanted: string | undefined): Promise<OfferedModel> {
  try {
    const offered = await client.models();
    const model = wanted === undefined ? offered[0] : offered.find(({ id }) => id === wanted);
    if (model !== undefined) return model;
    if (wanted === undefined || offered.length === 0)
      throw new ClientError("this key may use no model of the service");
    throw noSuch(
      "model",
      wanted,
      offered.map(({ id }) => id),
    );
  } catch (error) {
    if (error instanceof ClientError) throw new OperatorError(sentence(error.message), error);
    throw error;
  }
}

function addressOf({ listen: { host, port } }: Config): string {
  if (port === 0)
    throw new OperatorError("The configuration lets the service take any free port; say which with --url.");
  return urlOf(dialled(host), port);
}
