/**
 * Counts the tokens of a prompt before anything is held or sent: by the server if it can. Prompts
 * that are not counted are held for their bytes.
 *
 * Guarantees: counting never fails. A hold for the bound covers the prompt. A server that counted
 * fewer tokens than were reported later is not asked for a while. Arithmetic is linear in the
 * text, without a call to `normalize` on it: Unicode normalisation of a text takes minutes if a
 * caller sends a million combining marks.
 */

import { contextWindowMax, type Message, type PromptBound } from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import { ConversationForms } from "../text/conversation-forms.ts";
import type { Dialect, Fields } from "./dialects.ts";
import type { UpstreamServer } from "./server.ts";
import type { ServerPool } from "./server-pool.ts";
import { ServerTokenizer } from "./server-tokenizer.ts";

/** The messages as they are sent, and what they cost. */
export interface PreparedConversation {
  /** The conversation in the first form that the chat template accepts, as far as is known. */
  forms: ConversationForms;
  /** The count of `countedBy`. Of a prompt that is not counted, a quarter of the bytes. */
  tokens: number;
  /** Null: the prompt is not counted. */
  countedBy: UpstreamServer | null;
  /** Null: the prompt is counted. */
  bound: PromptBound | null;
}

interface PromptCounterOptions {
  pool: ServerPool;
  kind: Dialect["tokenizer"];
  /** Name of the model at the upstream. */
  model: string;
  contextWindow: number;
  /** Most tokens that the chat template adds to a prompt, besides those around each message. */
  templateTokens: number;
  log: EngineLog;
}

interface PromptToCount {
  messages: readonly Message[];
  /** Fields of the chat request that change the template's output. */
  template: Fields;
}

/** Most tokens that a template adds to each message: marks, role and line ends. Measured: 10. */
const messageTokensMax = 16;
/** English text has about four. */
const bytesPerToken = 4;

export class PromptCounter {
  readonly #options: PromptCounterOptions;
  readonly #tokenizer: ServerTokenizer;

  constructor(options: PromptCounterOptions) {
    this.#options = options;
    this.#tokenizer = new ServerTokenizer((upstream, reason) => {
      options.log.warn(
        { upstream, reason },
        "the upstream does not count prompts; for a while, they are held for one token per byte",
      );
    });
  }

  async count(prompt: PromptToCount, signal: AbortSignal): Promise<PreparedConversation> {
    const counted = await this.#countAtServer(prompt, signal);
    signal.throwIfAborted();
    if (counted !== null) return counted;
    const { messages } = prompt;
    const { templateTokens } = this.#options;
    return {
      // If no template accepted a form, the model may still accept one.
      forms: new ConversationForms(messages),
      tokens: Math.max(1, Math.ceil(bytesOf(messages) / bytesPerToken)),
      countedBy: null,
      bound: { tokens: promptBound(messages, templateTokens), shortestTokens: shortestBound(templateTokens) },
    };
  }

  /** Compares a count with the tokens that were reported of the prompt. */
  compare({ tokens, countedBy }: PreparedConversation, reportedTokens: number): void {
    if (countedBy === null || reportedTokens <= tokens) return;
    this.#tokenizer.distrust(
      countedBy,
      `it counted ${tokens} tokens, and the prompt was reported with ${reportedTokens}`,
    );
  }

  async #countAtServer(
    { messages, template }: PromptToCount,
    signal: AbortSignal,
  ): Promise<PreparedConversation | null> {
    const { pool, kind, model, contextWindow } = this.#options;
    const server = kind === null ? null : pool.toAsk((each) => !this.#tokenizer.isPaused(each));
    if (kind === null || server === null) return null;
    const forms = new ConversationForms(messages);
    const request = { kind, model, contextWindow, forms, template };
    const tokens = await this.#tokenizer.count(server, request, signal);
    return tokens === null ? null : { forms, tokens, countedBy: server, bound: null };
  }
}

export function bytesOf(messages: readonly Message[]): number {
  return messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
}

/**
 * Returns the most tokens that a prompt can have. No tokenizer with a byte or character fallback
 * makes more of the texts, in any of the four normal forms
 * (docs/decisions/0096-prompts-are-held-by-their-bytes.md). `templateTokens`: the most that the
 * template adds to a prompt as a whole.
 */
export function promptBound(messages: readonly Message[], templateTokens: number): number {
  let tokens = templateTokens;
  for (const { content } of messages) tokens += messageTokensMax + textBound(content);
  // No server takes a longer prompt.
  return Math.min(tokens, contextWindowMax);
}

/** Returns the bound of the shortest prompt, which is one empty message. */
export function shortestBound(templateTokens: number): number {
  return promptBound([{ role: "user", content: "" }], templateTokens);
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
