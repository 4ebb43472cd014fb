/**
 * A conversation: its messages, the running request, and the cost of each turn. Writes answers to
 * one stream and remarks to another, and does not read input.
 */
import type { Writable } from "node:stream";
import { styleText } from "node:util";
import { exactCredits, grouped } from "../units.ts";
import { visibleText } from "../visible-text.ts";
import {
  type Balance,
  type ChatClient,
  type ChatMessage,
  ClientError,
  costOfAnswer,
  type OfferedModel,
  type TokenUsage,
} from "./chat-client.ts";

/** Limits an answer of a model without a default. */
const answerTokensMax = 2048;

/** One exchange, in the form of the `--json` document. */
export interface Turn {
  user: string;
  model: string;
  /** The text received, even if the answer is not whole. */
  assistant: string;
  /** Null if the answer was stopped or failed. */
  finish_reason: string | null;
  usage: TokenUsage | null;
  /** Exact credits as decimal text. */
  credits: string | null;
  error: string | null;
}

/** Streams that show a conversation. */
interface Screen {
  answers: Writable;
  remarks: Writable;
}

export class Conversation {
  readonly #client: ChatClient;
  readonly #screen: Screen;
  /** Maximum tokens of an answer. Null: the model's default, or `answerTokensMax`. */
  readonly #maxTokens: number | null;
  #model: OfferedModel;
  #history: ChatMessage[] = [];
  /** Aborts the running request. */
  #abort: AbortController | null = null;

  constructor(client: ChatClient, model: OfferedModel, maxTokens: number | null, screen: Screen) {
    this.#client = client;
    this.#model = model;
    this.#maxTokens = maxTokens;
    this.#screen = screen;
  }

  /** Whether a request is running. */
  get busy(): boolean {
    return this.#abort !== null;
  }

  get model(): OfferedModel {
    return this.#model;
  }

  /** Changes the model and keeps the messages. */
  use(model: OfferedModel): void {
    this.#model = model;
  }

  /** Ends the running request, if there is one. */
  stop(): void {
    this.#abort?.abort();
  }

  forget(): void {
    this.#history = [];
  }

  remark(text: string): void {
    const { remarks } = this.#screen;
    remarks.write(`${styleText("dim", visibleText(text), { stream: remarks })}\n`);
  }

  /**
   * Sends a message and writes the answer while it arrives. An error of the service is shown and
   * part of the turn.
   */
  async send(text: string): Promise<Turn> {
    return await this.#stoppable(async (signal) => {
      const turn = await this.#ask(text, signal);
      this.remark(await this.#summary(turn, signal));
      return turn;
    });
  }

  /** Returns null if the balance is unknown, with a remark, or if `stop` was called. */
  async balance(): Promise<Balance | null> {
    return await this.#stoppable(async (signal) => {
      const balance = await this.#readBalance(signal);
      if (!(balance instanceof ClientError)) return balance;
      this.remark(sentence(balance.message));
      return null;
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

  async #ask(text: string, signal: AbortSignal): Promise<Turn> {
    const { answers } = this.#screen;
    const messages: ChatMessage[] = [...this.#history, { role: "user", content: text }];
    const turn: Turn = {
      user: text,
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
          answers.write(visibleText(event.text));
        } else {
          turn.finish_reason = event.finishReason;
          turn.usage = event.usage;
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
      // A turn without an answer is not added, so that the next request does not repeat it.
      this.#history = [...messages, { role: "assistant", content: turn.assistant }];
    }
    return turn;
  }

  /** Returns the `max_tokens` to send; null leaves the limit to the model's default. */
  #limit(): number | null {
    if (this.#maxTokens !== null) return this.#maxTokens;
    return this.#model.limits.defaultTokens === null ? answerTokensMax : null;
  }

  async #summary({ error, finish_reason, usage, credits }: Turn, signal: AbortSignal): Promise<string> {
    if (error !== null) return sentence(error);
    if (finish_reason === null) return "Stopped. The prompt and the tokens made until now are charged.";
    // An unknown balance does not fail the turn.
    const balance = await this.#readBalance(signal);
    const parts: string[] = [];
    if (usage !== null) {
      const { prompt_tokens, completion_tokens } = usage;
      parts.push(`${grouped(prompt_tokens)} prompt + ${grouped(completion_tokens)} completion tokens`);
    }
    if (credits !== null) parts.push(`${credits} credits`);
    if (balance instanceof ClientError) parts.push(`balance unknown: ${balance.message}`);
    else if (balance !== null) parts.push(`${grouped(balance.total)} left`);
    const creditsLeft = balance === null || balance instanceof ClientError ? null : balance.total;
    if (finish_reason === "length") parts.push(this.#reasonOfLength(usage, creditsLeft));
    return parts.join(" · ");
  }

  /** An answer that is shorter than every limit ended for lack of credits (docs/api.md). */
  #reasonOfLength(usage: TokenUsage | null, creditsLeft: number | null): string {
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

  async #readBalance(signal: AbortSignal): Promise<Balance | ClientError | null> {
    try {
      return await this.#client.balance(signal);
    } catch (error) {
      if (error instanceof ClientError) return error;
      throw error;
    }
  }
}

/** Returns a message of the service as a sentence. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!)]$/.test(text) ? "" : ".");
}
