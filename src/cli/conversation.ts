/**
 * One conversation: what was said so far, the answer under way, and what each turn cost. Writes answers to one stream
 * and remarks to another; knows neither terminal nor keyboard.
 */
import type { Writable } from "node:stream";
import { styleText } from "node:util";
import {
  type ChatClient,
  type ChatMessage,
  ClientError,
  costOfAnswer,
  type OfferedModel,
  type TokenUsage,
} from "./chat-client.ts";
import { exactCredits, grouped } from "./format.ts";

/** One exchange, as `--json` reports it. */
export interface Turn {
  user: string;
  /** As far as it came. */
  assistant: string;
  finish_reason: string | null;
  usage: { prompt_tokens: number; cached_tokens: number; completion_tokens: number } | null;
  /** Exact, with its fraction as decimal text. */
  credits: string | null;
  error: string | null;
}

/** Where a conversation is shown. */
export interface Screen {
  answers: Writable;
  remarks: Writable;
}

export class Conversation {
  readonly #client: ChatClient;
  readonly #model: OfferedModel;
  readonly #screen: Screen;
  #history: ChatMessage[] = [];
  /** Of the answer under way. */
  #abort: AbortController | null = null;

  constructor(client: ChatClient, model: OfferedModel, screen: Screen) {
    this.#client = client;
    this.#model = model;
    this.#screen = screen;
  }

  get answering(): boolean {
    return this.#abort !== null;
  }

  /** Ends the answer under way as it stands, if there is one. */
  stop(): void {
    this.#abort?.abort();
  }

  forget(): void {
    this.#history = [];
  }

  remark(text: string): void {
    const { remarks } = this.#screen;
    remarks.write(`${styleText("dim", text, { stream: remarks })}\n`);
  }

  /** Asks, and writes the answer as it comes. What goes wrong with the service is told, and is in the turn. */
  async say(said: string): Promise<Turn> {
    const { answers } = this.#screen;
    const messages: ChatMessage[] = [...this.#history, { role: "user", content: said }];
    const turn: Turn = {
      user: said,
      assistant: "",
      finish_reason: null,
      usage: null,
      credits: null,
      error: null,
    };
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    try {
      for await (const event of this.#client.answer(this.#model.id, messages, signal)) {
        if (event.kind === "text") {
          turn.assistant += event.text;
          answers.write(printable(event.text));
        } else {
          turn.finish_reason = event.finishReason;
          turn.usage = usageObject(event.usage);
          const cost = costOfAnswer(event.usage, this.#model.price);
          turn.credits = cost === null ? null : exactCredits(cost);
        }
      }
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      turn.error = error.message;
    } finally {
      this.#abort = null;
    }
    if (turn.assistant !== "") answers.write("\n");
    // What was refused or broke off with nothing said is forgotten, so that the next turn does not repeat it.
    if (turn.assistant !== "") this.#history = [...messages, { role: "assistant", content: turn.assistant }];
    this.remark(await this.#summary(turn, signal.aborted));
    return turn;
  }

  async #summary(turn: Turn, stopped: boolean): Promise<string> {
    if (turn.error !== null) return sentence(turn.error);
    if (stopped) return "Stopped. The prompt and the tokens made until now are charged.";
    const { usage, credits } = turn;
    const parts = [
      usage === null
        ? []
        : `${grouped(usage.prompt_tokens)} prompt + ${grouped(usage.completion_tokens)} completion tokens`,
      credits === null ? [] : `${credits} credits`,
      await this.#creditsLeft(),
      turn.finish_reason === "length" ? "cut off at the limit" : [],
    ];
    return parts.flat().join(" · ");
  }

  /** A remark at the edge of an answer: that it cannot be had is no failure of the turn. */
  async #creditsLeft(): Promise<string[]> {
    try {
      const left = await this.#client.creditsLeft();
      return left === null ? [] : [`${grouped(left)} left`];
    } catch (error) {
      if (error instanceof ClientError) return [`balance unknown: ${error.message}`];
      throw error;
    }
  }
}

function usageObject(usage: TokenUsage | null): Turn["usage"] {
  if (usage === null) return null;
  const { promptTokens, cachedTokens, completionTokens } = usage;
  return { prompt_tokens: promptTokens, cached_tokens: cachedTokens, completion_tokens: completionTokens };
}

/** Without what could steer the terminal: the text is a model's. */
function printable(text: string): string {
  return text.replace(/(?![\n\t])\p{Cc}/gu, "");
}

/** A message of the service as a sentence of its own. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!)]$/.test(text) ? "" : ".");
}
