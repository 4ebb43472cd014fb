/**
 * Turns the messages of a request into the tokens of its prompt, and decides about thinking.
 *
 * Guarantees: every conversation has a plan. A conversation whose size already exceeds the window
 * is not tokenized, because tokenizing delays the next token of every answer.
 */
import type { Message, Reasoning } from "../../../chat/engine.ts";
import { messageOf } from "../../../errors.ts";
import type { ThinkTags } from "../../text/thinking-filter.ts";
import type { Prepared } from "../protocol.ts";
import { ChatTemplate, fallbackTemplate, type Part } from "./chat-template.ts";
import { markersIn, PromptBuilder, type PromptTokenizer } from "./prompt-builder.ts";
import { type RoleMarks, roleMarksOf } from "./role-marks.ts";
import { TimeLimitExceeded } from "./time-limit.ts";

/** Maximum thinking tokens for each `effort`, unless `reasoning.max_tokens` is set. */
const thinkingTokensOfEffort: ReadonlyMap<string, number> = new Map([
  ["none", 0],
  ["minimal", 256],
  ["low", 512],
  ["medium", 2048],
  ["high", 8192],
  ["xhigh", 16_384],
  ["max", 32_768],
]);

const knownThinkTags: readonly ThinkTags[] = [
  ["<think>", "</think>"],
  ["[THINK]", "[/THINK]"],
  ["<seed:think>", "</seed:think>"],
];

export interface PlannerOptions extends PromptTokenizer {
  /** Chat template of the model's file. Null: ChatML. */
  template: string | null;
  bosText: string;
  eosText: string;
  contextWindow: number;
  /** Default: found in the template. */
  thinkTags?: ThinkTags | null | undefined;
  /** Time limit of the template. Default 5 s. */
  renderMs?: number | undefined;
  warn: (message: string) => void;
}

export class PromptPlanner {
  readonly thinkTags: ThinkTags | null;
  /** Closes the thinking when its limit is reached. */
  readonly closingTokens: Uint32Array;
  readonly #options: PlannerOptions;
  readonly #template: ChatTemplate;
  readonly #builder: PromptBuilder;

  constructor(options: PlannerOptions) {
    this.#options = options;
    this.#template = templateOf(options);
    this.thinkTags = options.thinkTags === undefined ? this.#thinkTags() : options.thinkTags;
    const tags: readonly string[] = this.thinkTags ?? [];
    const marks = marksOf(this.#template, options);
    this.#builder = new PromptBuilder(
      options,
      marks.plain,
      (marker) => this.#template.mentions(marker) || marks.emitted.includes(marker) || tags.includes(marker),
    );
    const { inseparable } = this.#builder;
    if (inseparable.length > 0) {
      options.warn(
        `messages can imitate these marks of the model's chat template, which its tokenizer spells in single characters: ${inseparable.join(" ")}`,
      );
    }
    const [, close] = tags;
    this.closingTokens = close === undefined ? new Uint32Array(0) : this.#builder.markers(close);
  }

  async plan(messages: readonly Message[], reasoning: Reasoning): Promise<Prepared> {
    // Many templates cut blanks off, but not all do.
    const least = this.#leastTokens(messages.map(({ content }) => content.trim()));
    if (least >= this.#options.contextWindow) return { promptTokens: least, prompt: null };
    const thinkingTokensMax =
      reasoning.maxTokens ??
      (reasoning.effort === undefined ? undefined : thinkingTokensOfEffort.get(reasoning.effort));
    const parts = this.#render(messages, this.#switch(thinkingTokensMax));
    const contents = parts.map(({ from, text }) => (from === "content" ? text : ""));
    const rendered = this.#leastTokens([contents.join("")]);
    if (rendered >= this.#options.contextWindow) return { promptTokens: rendered, prompt: null };
    let thinking = this.thinkTags !== null && endsWith(parts, this.thinkTags[0]);
    if (this.thinkTags !== null && thinkingTokensMax === 0) {
      const [open, close] = this.thinkTags;
      if (thinking) parts.push({ from: "template", text: `\n${close}\n\n` });
      else if (!this.#template.switchesThinking)
        parts.push({ from: "template", text: `${open}\n\n${close}\n\n` });
      thinking = false;
    }
    const tokens = await this.#builder.build(parts, this.#options.contextWindow);
    if (tokens.length >= this.#options.contextWindow) return { promptTokens: tokens.length, prompt: null };
    return { promptTokens: tokens.length, prompt: { tokens, thinking, thinkingTokensMax } };
  }

  #render(messages: readonly Message[], thinking: boolean | undefined): Part[] {
    try {
      return this.#template.render(messages, { thinking });
    } catch (cause) {
      if (!(cause instanceof TimeLimitExceeded)) throw cause;
      throw new Error(`the chat template takes ${cause.message} over this conversation`, { cause });
    }
  }

  /** Returns the known tags of the template. The closing tag may also be a special token. */
  #thinkTags(): ThinkTags | null {
    const { markers } = this.#options.vocabulary;
    const mentions = (tag: string) => this.#template.mentions(tag);
    const tags = knownThinkTags.find(
      ([open, close]) => mentions(open) && (mentions(close) || markers.has(close)),
    );
    return tags ?? null;
  }

  /** Returns `enable_thinking` for the template. It is passed only if the request sets a limit. */
  #switch(thinkingTokensMax: number | undefined): boolean | undefined {
    if (this.thinkTags === null || thinkingTokensMax === undefined) return undefined;
    return thinkingTokensMax > 0;
  }

  /** Returns a lower bound, from the number of texts and their bytes. */
  #leastTokens(texts: readonly string[]): number {
    const { vocabulary } = this.#options;
    let bytes = 0;
    for (const text of texts) bytes += Buffer.byteLength(text);
    const byBytes = vocabulary.lossless ? Math.ceil(bytes / vocabulary.bytesPerTokenMax) : 0;
    return Math.max(texts.length, byBytes);
  }
}

function templateOf(options: PlannerOptions): ChatTemplate {
  const texts = { bos: options.bosText, eos: options.eosText };
  let why = "the model's file has no chat template";
  if (options.template !== null) {
    try {
      return new ChatTemplate(options.template, texts, options.renderMs);
    } catch (cause) {
      if (cause instanceof TimeLimitExceeded) throw loops(cause);
      why = `the model's chat template cannot be used (${messageOf(cause)})`;
    }
  }
  options.warn(`${why}; ChatML is used`);
  return new ChatTemplate(fallbackTemplate, texts);
}

function marksOf(template: ChatTemplate, { vocabulary }: PlannerOptions): RoleMarks {
  try {
    return roleMarksOf(template, markersIn(vocabulary));
  } catch (cause) {
    throw cause instanceof TimeLimitExceeded ? loops(cause) : cause;
  }
}

function loops(cause: TimeLimitExceeded): Error {
  return new Error(`its chat template takes ${cause.message} for a few words, so it may loop for ever`, {
    cause,
  });
}

function endsWith(parts: readonly Part[], tag: string): boolean {
  const last = parts.at(-1);
  return last?.from === "template" && last.text.trimEnd().endsWith(tag);
}
