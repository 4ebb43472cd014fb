/**
 * Counts the tokens of a prompt before anything is held or sent: with the model's tokenizer if one
 * is configured, or by the server if it can, otherwise by its bytes.
 *
 * Guarantees: counting never fails. A hold for `max` tokens covers the prompt. If an upstream
 * reports more than a count, later prompts are held for the arithmetic bound for a while.
 * Arithmetic is linear in the text, without a call to `normalize` on it: Unicode normalisation of
 * a text takes minutes if a caller sends a million combining marks.
 */

import type { Message } from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import { ConversationForms } from "../text/conversation-forms.ts";
import type { Dialect, Fields } from "./dialects.ts";
import type { TokenizedPrompt } from "./loaded-tokenizer.ts";
import type { ServerPool } from "./server-pool.ts";
import { ServerTokenizer } from "./server-tokenizer.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The messages as they are sent, and what they cost. */
export interface PreparedConversation {
  /** The conversation in the first form that the chat template accepts, as far as is known. */
  forms: ConversationForms;
  tokens: PromptTokens;
}

interface PromptTokens {
  /** Most tokens that are charged. The hold pays for them. */
  max: number;
  /** Compared with the context window and the limits per minute. */
  expected: number;
  /** Charged if the upstream reports no count. */
  likely: number;
  /** `max` of the shortest prompt, or null if it is unknown. */
  shortest: number | null;
  isCounted: boolean;
}

interface PromptCounterOptions {
  pool: ServerPool;
  kind: Dialect["tokenizer"];
  /** Name of the model at the upstream. */
  model: string;
  contextWindow: number;
  /** Most tokens that the chat template adds to a prompt, besides those around each message. */
  templateTokens: number;
  /** Counts in place of the server, or null. */
  tokenizer: Tokenizer | null;
  log: EngineLog;
}

interface PromptToCount {
  accountId: string;
  messages: readonly Message[];
  /** Fields of the chat request that change the template's output. */
  template: Fields;
}

/**
 * Tokens that a server's rendering may have more than ours: another date, or a second mark of the
 * beginning.
 */
const renderedMarginTokens = 16;
/** Tokens that a template adds to each message: marks, role and line ends. Measured: 5 to 10. */
const messageTokens = { usual: 8, max: 16 };
/** English text has about four. */
const bytesPerToken = 4;
/** Pause in which counts are not trusted. */
const distrustMs = 600_000;

export class PromptCounter {
  readonly #options: PromptCounterOptions;
  readonly #server: ServerTokenizer;
  #distrustedUntilMs = 0;

  constructor(options: PromptCounterOptions) {
    this.#options = options;
    this.#server = new ServerTokenizer((upstream, reason) => {
      options.log.warn(
        { upstream, reason },
        "the upstream's tokenizer does not count; for a while, prompts are estimated and held for one token per byte",
      );
    });
  }

  async count(prompt: PromptToCount, signal: AbortSignal): Promise<PreparedConversation> {
    const { tokenizer } = this.#options;
    const counted =
      tokenizer === null
        ? await this.#countAtServer(prompt, signal)
        : await this.#countHere(tokenizer, prompt, signal);
    signal.throwIfAborted();
    if (counted !== null) return counted;
    const { messages } = prompt;
    // If no template accepted a form, the model may still accept one.
    const forms = new ConversationForms(messages);
    const max = this.#bound(messages);
    const usual = Math.ceil(bytesOf(messages) / bytesPerToken) + messageTokens.usual * messages.length;
    const likely = Math.min(max, usual);
    const shortest = shortestBound(this.#options);
    return { forms, tokens: { max, expected: usual, likely, shortest, isCounted: false } };
  }

  /** Records the tokens of a prompt that the upstream reports. */
  learn({ tokens }: PreparedConversation, promptTokens: number, upstream: string): void {
    if (!tokens.isCounted || promptTokens <= tokens.max) return;
    if (performance.now() >= this.#distrustedUntilMs) {
      this.#options.log.warn(
        { upstream, countedTokens: tokens.likely, reportedTokens: promptTokens },
        "the upstream reported more prompt tokens than were counted; for ten minutes, prompts are held for one token per byte",
      );
    }
    this.#distrustedUntilMs = performance.now() + distrustMs;
  }

  async #countHere(
    tokenizer: Tokenizer,
    { accountId, messages, template }: PromptToCount,
    signal: AbortSignal,
  ): Promise<PreparedConversation | null> {
    const counted = await tokenizer.count({ accountId, messages, fields: template }, signal);
    if (counted === null) return null;
    const forms = new ConversationForms(messages);
    for (let step = 0; step < counted.steps; step += 1) forms.normaliseFurther();
    return { forms, tokens: this.#tokenized(counted, messages) };
  }

  #tokenized(
    { tokens, specialTokens, isRendered }: TokenizedPrompt,
    messages: readonly Message[],
  ): PromptTokens {
    if (isRendered) return this.#counted(tokens, tokens + specialTokens + renderedMarginTokens, messages);
    const around = messageTokens.max * messages.length + this.#options.templateTokens;
    const usual = tokens + messageTokens.usual * messages.length;
    return this.#counted(usual, tokens + specialTokens + around, messages);
  }

  async #countAtServer(
    { messages, template }: PromptToCount,
    signal: AbortSignal,
  ): Promise<PreparedConversation | null> {
    const { pool, kind, model, contextWindow } = this.#options;
    const server = kind === null ? null : pool.toAsk((each) => !this.#server.isPaused(each));
    if (kind === null || server === null) return null;
    const forms = new ConversationForms(messages);
    const request = { kind, model, contextWindow, forms, template };
    const count = await this.#server.count(server, request, signal);
    return count === null ? null : { forms, tokens: this.#counted(count, count, messages) };
  }

  #counted(count: number, countMax: number, messages: readonly Message[]): PromptTokens {
    const isTrusted = performance.now() >= this.#distrustedUntilMs;
    const max = isTrusted ? countMax : Math.max(countMax, this.#bound(messages));
    const shortest = isTrusted ? null : shortestBound(this.#options);
    return { max, expected: count, likely: count, shortest, isCounted: true };
  }

  /** A report of more tokens than the window is impossible, and is not charged. */
  #bound(messages: readonly Message[]): number {
    const { contextWindow, templateTokens } = this.#options;
    return Math.min(contextWindow, promptBound(messages, templateTokens));
  }
}

export function bytesOf(messages: readonly Message[]): number {
  return messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
}

/**
 * Returns the most tokens that a prompt can have. No tokenizer with a byte or character fallback
 * makes more of the texts, in any of the four normal forms
 * (docs/decisions/0042-prompts-are-held-for-in-full.md). `templateTokens`: the most that the
 * template adds to a prompt as a whole.
 */
export function promptBound(messages: readonly Message[], templateTokens: number): number {
  let tokens = templateTokens;
  for (const { content } of messages) tokens += messageTokens.max + textBound(content);
  return tokens;
}

/** Returns the bound of the shortest prompt, which is one empty message. */
export function shortestBound({
  contextWindow,
  templateTokens,
}: Pick<PromptCounterOptions, "contextWindow" | "templateTokens">): number {
  return Math.min(contextWindow, promptBound([{ role: "user", content: "" }], templateTokens));
}

/**
 * Returns the most tokens of a text: its UTF-8 bytes in its longest normal form. A token of a
 * byte-level or character-level vocabulary covers at least one byte.
 */
export function textBound(text: string): number {
  const bytes = Buffer.byteLength(text);
  if (bytes === text.length) return bytes;
  let bound = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) bound += 1;
    else {
      const point = text.codePointAt(at) ?? unit;
      if (point > 0xffff) at += 1;
      bound += longest[point] || learnLongest(point);
    }
  }
  return bound;
}

/** UTF-8 bytes of the longest normal form of each code point; 0 if it is not known yet. */
const longest = new Uint8Array(0x11_0000);

/**
 * A composed form is never longer than the decomposed one. Composition may fail (a mark between
 * two others), so the decomposed form counts. Hangul always composes.
 */
function learnLongest(point: number): number {
  // Half a character is sent as U+FFFD.
  const isHalf = point >= 0xd800 && point <= 0xdfff;
  const text = isHalf ? "\ufffd" : String.fromCodePoint(point);
  const forms = isPlain(point) ? [text] : [text, text.normalize("NFD"), text.normalize("NFKD")];
  const bytes = Math.max(...forms.map((form) => Buffer.byteLength(form)));
  longest[point] = bytes;
  return bytes;
}

/** Hangul, Han, and planes without decompositions: most of all code points, which saves time. */
function isPlain(point: number): boolean {
  return (
    (point >= 0x3400 && point <= 0x9fff) ||
    (point >= 0xac00 && point <= 0xd7a3) ||
    (point >= 0x2_0000 && point <= 0x2_f7ff) ||
    point >= 0x3_0000
  );
}
