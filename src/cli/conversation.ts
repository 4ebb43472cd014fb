/**
 * One conversation: the messages so far, the request under way, and the cost of each turn. Writes answers to one stream
 * and remarks to another. Knows neither terminal nor keyboard.
 */

import type { Writable } from "node:stream";
import { styleText } from "node:util";
import { exactCredits, grouped } from "../units.ts";
import {
  type Balance,
  type ChatClient,
  type ChatMessage,
  ClientError,
  costOfAnswer,
  type OfferedModel,
  type TokenUsage,
} from "./chat-client.ts";

/** Bounds an answer of a model that has no default of its own. */
const answerTokensMax = 2048;

/** One exchange, as `--json` reports it. */
export interface Turn {
  user: string;
  model: string;
  /** As far as it came. */
  assistant: string;
  /** Null if the answer was stopped or failed. */
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

export interface ConversationOptions {
  model: OfferedModel;
  /** Most tokens of an answer; null: the model's default, else `answerTokensMax`. */
  maxTokens: number | null;
}

export class Conversation {
  readonly #client: ChatClient;
  readonly #screen: Screen;
  readonly #maxTokens: number | null;
  #model: OfferedModel;
  #history: ChatMessage[] = [];
  /** Of the request under way. */
  #abort: AbortController | null = null;

  constructor(client: ChatClient, { model, maxTokens }: ConversationOptions, screen: Screen) {
    this.#client = client;
    this.#model = model;
    this.#maxTokens = maxTokens;
    this.#screen = screen;
  }

  /** Whether there is a request to stop. */
  get busy(): boolean {
    return this.#abort !== null;
  }

  get model(): OfferedModel {
    return this.#model;
  }

  /** Goes on with another model; the messages stay. */
  use(model: OfferedModel): void {
    this.#model = model;
  }

  /** Ends the request under way, if there is one. */
  stop(): void {
    this.#abort?.abort();
  }

  forget(): void {
    this.#history = [];
  }

  remark(text: string): void {
    const { remarks } = this.#screen;
    remarks.write(`${styleText("dim", printable(text), { stream: remarks })}\n`);
  }

  /** Asks, and writes the answer as it comes. An error of the service is shown, and is in the turn. */
  async say(said: string): Promise<Turn> {
    return await this.#stoppable(async (signal) => {
      const turn = await this.#ask(said, signal);
      this.remark(await this.#summary(turn, signal));
      return turn;
    });
  }

  /** Returns null if the balance is unknown, which has been shown, or if `stop` was called. */
  async balance(): Promise<Balance | null> {
    return await this.#stoppable(async (signal) => {
      try {
        return await this.#client.balance(signal);
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        this.remark(sentence(error.message));
        return null;
      }
    });
  }

  async #stoppable<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const abort = new AbortController();
    this.#abort = abort;
    try {
      return await work(abort.signal);
    } finally {
      this.#abort = null;
    }
  }

  async #ask(said: string, signal: AbortSignal): Promise<Turn> {
    const { answers } = this.#screen;
    const messages: ChatMessage[] = [...this.#history, { role: "user", content: said }];
    const turn: Turn = {
      user: said,
      model: this.#model.id,
      assistant: "",
      finish_reason: null,
      usage: null,
      credits: null,
      error: null,
    };
    try {
      for await (const event of this.#client.answer(turn.model, messages, this.#limit(), signal)) {
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
    }
    if (turn.assistant !== "") {
      answers.write("\n");
      // A turn without an answer is forgotten, so that the next request does not repeat it.
      this.#history = [...messages, { role: "assistant", content: turn.assistant }];
    }
    return turn;
  }

  /** Returns the `max_tokens` to send; null leaves it to the model's default. */
  #limit(): number | null {
    if (this.#maxTokens !== null) return this.#maxTokens;
    return this.#model.limits.defaultTokens === null ? answerTokensMax : null;
  }

  async #summary(turn: Turn, signal: AbortSignal): Promise<string> {
    if (turn.error !== null) return sentence(turn.error);
    if (turn.finish_reason === null) return "Stopped. The prompt and the tokens made until now are charged.";
    const { usage, credits } = turn;
    const left = await this.#creditsLeft(signal);
    const parts = [
      usage === null
        ? []
        : `${grouped(usage.prompt_tokens)} prompt + ${grouped(usage.completion_tokens)} completion tokens`,
      credits === null ? [] : `${credits} credits`,
      left.text,
      turn.finish_reason === "length" ? this.#reasonOfLength(usage, left.credits) : [],
    ];
    return parts.flat().join(" · ");
  }

  /** An answer that is shorter than every limit ended because its credits did (docs/api.md). */
  #reasonOfLength(usage: Turn["usage"], creditsLeft: number | null): string {
    const { defaultTokens, outputTokensMax, contextWindow } = this.#model.limits;
    if (usage === null || outputTokensMax === null || contextWindow === null) return "cut off at the limit";
    const asked = this.#limit() ?? defaultTokens ?? Number.POSITIVE_INFINITY;
    const room = Math.min(outputTokensMax, contextWindow - usage.prompt_tokens);
    if (usage.completion_tokens < Math.min(asked, room)) {
      return creditsLeft === 0
        ? "cut off: the credits are used up"
        : "cut off: other requests hold the credits that are left";
    }
    return asked < room
      ? `cut off at the limit of ${grouped(asked)} tokens; --max-tokens sets another`
      : "cut off at the limit of the model";
  }

  /** An unknown balance does not fail the turn. */
  async #creditsLeft(signal: AbortSignal): Promise<{ credits: number | null; text: string[] }> {
    try {
      const balance = await this.#client.balance(signal);
      if (balance === null) return { credits: null, text: [] };
      return { credits: balance.total, text: [`${grouped(balance.total)} left`] };
    } catch (error) {
      if (error instanceof ClientError) return { credits: null, text: [`balance unknown: ${error.message}`] };
      throw error;
    }
  }
}

function usageObject(usage: TokenUsage | null): Turn["usage"] {
  if (usage === null) return null;
  const { promptTokens, cachedTokens, completionTokens } = usage;
  return { prompt_tokens: promptTokens, cached_tokens: cachedTokens, completion_tokens: completionTokens };
}

/** Without control characters, which could steer the terminal: the text comes from a model or a service. */
function printable(text: string): string {
  return text.replace(/(?![\n\t])\p{Cc}/gu, "");
}

/** A message of the service as a sentence of its own. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!)]$/.test(text) ? "" : ".");
}
