/**
 * The visible text of one upstream's answer. Characters are whole, thinking between tags is
 * removed, and a stop sequence ends the text.
 *
 * Pure. Guarantees: half characters, text between the tags and stop sequences are never passed on.
 */
import type { TokenLogprob } from "../../chat/engine.ts";
import type { Segment } from "../text/segments.ts";
import { StopFinder } from "../text/stops.ts";
import { ThinkingFilter, type ThinkTags } from "../text/thinking.ts";

export interface AnswerTextOptions {
  stop: readonly string[];
  /** Null if thinking has a field of its own, or the model does not think. */
  tags: ThinkTags | null;
  /** The prompt opens the thinking, so the answer starts inside it. */
  opened: boolean;
}

export class AnswerText {
  readonly #thinking: ThinkingFilter | null;
  readonly #stops: StopFinder | null;
  /** First half of a character. Servers that write `\u` escapes may cut characters. */
  #half = "";
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
    return this.#thinking === null && this.#stops === null && this.#half === "" && text.isWellFormed();
  }

  push(text: string, tokens: number, logprobs: readonly TokenLogprob[]): Segment[] {
    const whole = this.#whole(text);
    if (whole === "" && tokens === 0) return [];
    return this.#filtered({ text: whole, tokens, logprobs: [...logprobs] });
  }

  /** Returns the held text at the end of the answer. */
  end(): Segment[] {
    const rest = this.#half === "" ? [] : this.#filtered({ text: "\ufffd", tokens: 0, logprobs: [] });
    this.#half = "";
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

  #whole(text: string): string {
    if (this.#half === "" && text.isWellFormed()) return text;
    const joined = this.#half + text;
    const last = joined.charCodeAt(joined.length - 1);
    const isCut = last >= 0xd800 && last <= 0xdbff;
    this.#half = isCut ? joined.slice(-1) : "";
    return (isCut ? joined.slice(0, -1) : joined).toWellFormed();
  }
}
