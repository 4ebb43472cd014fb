/**
 * Turns one completion's tokens into text events, one event for each token that has text of its
 * own.
 *
 * Pure. Joins the bytes of characters, removes the thinking, and ends at a stop sequence in the
 * visible text.
 */
import type { TokenLogprob } from "../../../chat/engine.ts";
import type { Segment } from "../../text/held-segments.ts";
import { StopFinder } from "../../text/stop-finder.ts";
import { ThinkingFilter, type ThinkTags } from "../../text/thinking-filter.ts";
import { Utf8Joiner } from "../../text/utf8-joiner.ts";
import type { TextEvent } from "../protocol.ts";

interface CompletionOptions {
  stop: readonly string[];
  /** Null if the model does not think. */
  thinkTags: ThinkTags | null;
  /** True if the prompt opens the thinking. */
  thinking: boolean;
  /** True if the tokenizer puts a space before the first word. It is removed. */
  dropFirstSpace: boolean;
}

export class CompletionText {
  readonly #joiner = new Utf8Joiner();
  readonly #thinking: ThinkingFilter | null;
  readonly #stops: StopFinder;
  #dropSpace: boolean;
  #stopped = false;

  constructor(options: CompletionOptions) {
    this.#thinking =
      options.thinkTags === null ? null : new ThinkingFilter(options.thinkTags, options.thinking);
    this.#stops = new StopFinder(options.stop);
    this.#dropSpace = options.dropFirstSpace;
  }

  /** A stop sequence has been generated. */
  get stopped(): boolean {
    return this.#stopped;
  }

  get thinking(): boolean {
    return this.#thinking?.inside ?? false;
  }

  get reasoningTokens(): number {
    if (this.#thinking === null) return 0;
    return this.#thinking.tokens + (this.#thinking.inside ? this.#joiner.tokensWaiting : 0);
  }

  push(bytes: Uint8Array, logprob?: TokenLogprob): TextEvent[] {
    const segment = this.#joiner.push(this.#withoutFirstSpace(bytes), logprob);
    return segment === null
      ? []
      : this.#visible(this.#thinking === null ? [segment] : this.#thinking.push(segment));
  }

  /** Returns the text that was held, because no more tokens follow. */
  end(): TextEvent[] {
    if (this.#stopped) return [];
    const rest = this.#joiner.flush();
    const segments = rest === null ? [] : (this.#thinking?.push(rest) ?? [rest]);
    const events = this.#visible([...segments, ...(this.#thinking?.flush() ?? [])]);
    if (!this.#stopped) addEvents(events, this.#stops.flush());
    return events;
  }

  /** Ends the thinking at its limit. */
  closeThinking(): void {
    const waiting = this.#joiner.tokensWaiting;
    this.#joiner.flush();
    this.#thinking?.close(waiting);
  }

  #visible(segments: Segment[]): TextEvent[] {
    const events: TextEvent[] = [];
    for (const segment of segments) {
      if (this.#stopped) break;
      const found = this.#stops.push(segment);
      addEvents(events, found.segments);
      this.#stopped = found.stopped;
    }
    return events;
  }

  #withoutFirstSpace(bytes: Uint8Array): Uint8Array {
    if (!this.#dropSpace || bytes.length === 0) return bytes;
    this.#dropSpace = false;
    return bytes[0] === 0x20 ? bytes.subarray(1) : bytes;
  }
}

/** Adds one by one, because a call cannot take as many arguments as there may be held segments. */
function addEvents(events: TextEvent[], segments: readonly Segment[]): void {
  for (const { text, logprobs } of segments) {
    if (text === "") continue;
    events.push(logprobs.length === 0 ? { type: "text", text } : { type: "text", text, logprobs });
  }
}
