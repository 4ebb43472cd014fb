/**
 * Lines of a conversation. A line that begins with a slash is a command and is never sent; any
 * other line is a turn. A line that begins with two slashes is sent with one.
 */
import { nearest, unknownName } from "../spelling.ts";
import { grouped } from "../units.ts";
import type { Balance, OfferedModel } from "./chat-client.ts";
import type { Conversation, Turn } from "./conversation.ts";

/** `refused`: the line had no effect. */
type LineOutcome = "done" | "leave" | "refused";

export interface Chat {
  conversation: Conversation;
  /** Models that the service offers. */
  models: readonly OfferedModel[];
  turns: Turn[];
}

interface Command {
  name: string;
  /** Shown behind the name. A command without it takes no argument. */
  argument?: string;
  help: string;
  run(chat: Chat, argument: string): Promise<LineOutcome> | LineOutcome;
}

const commands: readonly Command[] = [
  { name: "/help", help: "lists these commands", run: showHelp },
  { name: "/balance", help: "shows the credits of the account", run: showBalance },
  { name: "/model", argument: "[id]", help: "lists the models, or changes to another model", run: useModel },
  { name: "/clear", help: "begins a new conversation", run: clear },
  { name: "/quit", help: "leaves, as do /exit and Ctrl-D", run: () => "leave" },
];

const aliases: Readonly<Record<string, string>> = { "/exit": "/quit" };

const howToSend = "To send a line that begins with a slash, begin it with two.";

export async function takeLine(line: string, chat: Chat): Promise<LineOutcome> {
  const text = line.trim();
  if (text === "") return "done";
  if (!text.startsWith("/") || text.startsWith("//")) {
    chat.turns.push(await chat.conversation.send(text.replace(/^\/\//, "/")));
    return "done";
  }
  const [, word = "", argument = ""] = /^(\S+)\s*(.*)$/s.exec(text) ?? [];
  const command = commands.find(({ name }) => name === (aliases[word] ?? word));
  if (command === undefined) return refuse(chat, unknownCommand(word));
  if (argument !== "" && command.argument === undefined) {
    return refuse(chat, `${word} takes no argument. ${howToSend}`);
  }
  return await command.run(chat, argument);
}

function refuse({ conversation }: Chat, text: string): LineOutcome {
  conversation.remark(text);
  return "refused";
}

function unknownCommand(word: string): string {
  const names = commands.map(({ name }) => name);
  const near = nearest(word, names);
  const hint = near === undefined ? "/help lists the commands." : `Did you mean ${near}?`;
  return `There is no command ${word}. ${hint} ${howToSend}`;
}

function showHelp({ conversation }: Chat): LineOutcome {
  const lines = commands.map(
    ({ name, argument = "", help }) => `${`${name} ${argument}`.padEnd(13)} ${help}`,
  );
  conversation.remark([...lines, howToSend, "Ctrl-C stops an answer and keeps the conversation."].join("\n"));
  return "done";
}

async function showBalance({ conversation }: Chat): Promise<LineOutcome> {
  const balance = await conversation.balance();
  if (balance === null) return "refused";
  conversation.remark(balanceText(balance));
  return "done";
}

function balanceText({ total, buckets }: Balance): string {
  const lines = buckets.map(({ name, credits, cap, refreshesAt }) => {
    const of = cap === null ? "" : ` of ${grouped(cap)}`;
    const refreshes = refreshesAt === null ? "" : `, refreshes ${refreshesAt}`;
    return `  ${name.padEnd(10)} ${grouped(credits)}${of}${refreshes}`;
  });
  const held = "Credits that running requests hold count as left until those requests end.";
  return [`${grouped(total)} credits left`, ...lines, held].join("\n");
}

function useModel(chat: Chat, id: string): LineOutcome {
  const { conversation, models } = chat;
  if (id === "") {
    const width = Math.max(...models.map((model) => model.id.length));
    const mark = (model: OfferedModel) => (model.id === conversation.model.id ? "*" : " ");
    const lines = models.map((model) => `${mark(model)} ${model.id.padEnd(width)}${priceText(model)}`);
    conversation.remark(lines.join("\n"));
    return "done";
  }
  const model = models.find((each) => each.id === id);
  const ids = models.map((each) => each.id);
  if (model === undefined) return refuse(chat, unknownName("model", id, ids));
  conversation.use(model);
  conversation.remark(`The next answers come from ${model.id}.`);
  return "done";
}

function priceText({ price }: OfferedModel): string {
  if (price === null) return "";
  return `  ${grouped(price.prompt)} / ${grouped(price.completion)} credits per million prompt / completion tokens`;
}

function clear({ conversation }: Chat): LineOutcome {
  conversation.forget();
  conversation.remark("Forgotten. This is a new conversation.");
  return "done";
}
