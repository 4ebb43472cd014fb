/**
 * The visible text of one upstream's answer. Characters are whole, thinking between tags is
 * removed, and a stop sequence ends the text.
 *
 * Pure. Guarantees: half characters, text between the tags and stop sequences are never passed on.
 */
import type { FinishReason, TokenLogprob } from "../../chat/engine.ts";
import type { Segment } from "../text/held-segments.ts";
import { StopFinder } from "../text/stop-finder.ts";
import { ThinkingFilter, type ThinkTags } from "../text/thinking-filter.ts";

interface AnswerTextOptions {
  stop: readonly string[];
  /** Null if thinking has a field of its own, or the model does not think. */
  tags: ThinkTags | null;
  /** The prompt opens the thinking, so the answer starts inside it. */
  opened: boolean;
}

/**
 * Returns the start of the end that may be a part of a character. Servers that write `\u` escapes
 * may cut a surrogate pair. Others send U+FFFD for the bytes of an unfinished character, of which
 * there are at most three.
 */
function partOf(text: string): number {
  let start = text.length;
  const last = text.charCodeAt(start - 1);
  if (last >= 0xd800 && last <= 0xdbff) start -= 1;
  const least = start - 3;
  while (start > least && text[start - 1] === "\ufffd") start -= 1;
  return start;
}

export class AnswerText {
  readonly #thinking: ThinkingFilter | null;
  readonly #stops: StopFinder | null;
  /** An end that may be a part of a character. It waits for more text or the end. */
  #part: Segment | null = null;
  #stopped = false;

  constructor({ stop, tags, opened }: AnswerTextOptions) {
    this.#thinking = tags === null ? null : new ThinkingFilter(tags, opened);
    this.#stops = stop.length === 0 ? null : new StopFinder(stop);
  }

  /** True once a stop sequence has ended the text. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Tokens of thinking between tags so far. */
  get thinkingTokens(): number {
    return this.#thinking?.tokens ?? 0;
  }

  /** True if `push` would return the text as it is, as one segment. */
  passes(text: string): boolean {
    return (
      this.#thinking === null &&
      this.#stops === null &&
      this.#part === null &&
      !text.endsWith("\ufffd") &&
      text.isWellFormed()
    );
  }

  push(text: string, tokens: number, logprobs: readonly TokenLogprob[]): Segment[] {
    const part = this.#part ?? { text: "", tokens: 0, logprobs: [] };
    const joined = part.text + text;
    const partStart = partOf(joined);
    const whole = {
      text: joined.slice(0, partStart).toWellFormed(),
      tokens: part.tokens + tokens,
      logprobs: [...part.logprobs, ...logprobs],
    };
    const rest = joined.slice(partStart);
    if (whole.text === "" && rest !== "") {
      this.#part = { ...whole, text: rest };
      return [];
    }
    this.#part = rest === "" ? null : { text: rest, tokens: 0, logprobs: [] };
    return whole.text === "" && whole.tokens === 0 ? [] : this.#filtered(whole);
  }

  /**
   * Returns the held text at the end of the answer. A half character is left out, and so is U+FFFD
   * unless the model ended the answer itself: otherwise the end may be inside a character.
   */
  end(reason: FinishReason): Segment[] {
    const part = this.#part;
    this.#part = null;
    const whole = part?.text.replace(/[\ud800-\udbff]$/, "") ?? "";
    const rest = part === null ? [] : this.#filtered({ ...part, text: reason === "stop" ? whole : "" });
    if (this.#stopped) return [];
    const decided = this.#thinking === null ? [] : this.#stop(this.#thinking.flush());
    return [...rest, ...decided, ...(this.#stopped || this.#stops === null ? [] : this.#stops.flush())];
  }

  #filtered(segment: Segment): Segment[] {
    if (this.#stopped) return [];
    return this.#stop(this.#thinking === null ? [segment] : this.#thinking.push(segment));
  }

  #stop(segments: Segment[]): Segment[] {
    if (this.#stops === null) return segments;
    const passed: Segment[] = [];
    for (const segment of segments) {
      const { segments: decided, stopped } = this.#stops.push(segment);
      // Pushed one by one: a call accepts a limited number of arguments.
      for (const each of decided) passed.push(each);
      if (stopped) {
        this.#stopped = true;
        break;
      }
    }
    return passed;
  }
}
