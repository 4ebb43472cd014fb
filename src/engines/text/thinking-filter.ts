/**
 * Takes a model's thinking out of its text: everything from the opening tag to the closing one.
 *
 * Pure. Guarantees: no text between the tags, no tag and no blank after a closing tag is passed
 * on. The tokens of all of these count as reasoning; a token that holds both text and tag counts
 * as what comes first in it. Tags that a model writes later in its answer are taken out as well.
 */
import { HeldSegments, type Segment } from "./held-segments.ts";
import { SequenceMatcher } from "./sequence-matcher.ts";

/** The strings that open and close a model's thinking. */
export type ThinkTags = readonly [open: string, close: string];

export class ThinkingFilter {
  readonly #open: SequenceMatcher;
  readonly #close: SequenceMatcher;
  readonly #held = new HeldSegments();
  #inside: boolean;
  /** After a closing tag, until the answer's first character. */
  #blank = false;
  #tokens = 0;

  constructor(tags: ThinkTags, inside: boolean) {
    this.#open = new SequenceMatcher(tags[0]);
    this.#close = new SequenceMatcher(tags[1]);
    this.#inside = inside;
  }

  get inside(): boolean {
    return this.#inside;
  }

  /** Tokens of thinking so far, undecided ones included while the thinking is open. */
  get tokens(): number {
    return this.#tokens + (this.#inside ? this.#held.tokens : 0);
  }

  push(segment: Segment): Segment[] {
    this.#held.push(segment);
    const visible: Segment[] = [];
    const { text } = segment;
    let tag = this.#awaited;
    for (let at = 0; at < text.length; at++) {
      if (!tag.push(text.charCodeAt(at))) continue;
      const after = text.length - at - 1;
      this.#pass(this.#held.takeTo(this.#held.length - after - tag.length), visible);
      this.#hide(this.#held.takeTo(tag.length));
      this.#inside = !this.#inside;
      this.#blank = !this.#inside;
      tag = this.#awaited;
    }
    this.#pass(this.#held.takeWhole(this.#held.length - tag.matched), visible);
    return visible;
  }

  /** At the end of the text: what waits is no tag any more. */
  flush(): Segment[] {
    const visible: Segment[] = [];
    this.#pass(this.#held.takeAll(), visible);
    return visible;
  }

  /**
   * The closing tag has been put into the sequence by force; `tokens` waited in front of this
   * filter.
   */
  close(tokens: number): void {
    this.#hide(this.#held.takeAll());
    this.#close.reset();
    this.#tokens += tokens;
    this.#inside = false;
    this.#blank = true;
  }

  get #awaited(): SequenceMatcher {
    return this.#inside ? this.#close : this.#open;
  }

  #pass(segments: Segment[], visible: Segment[]): void {
    if (this.#inside) {
      this.#hide(segments);
      return;
    }
    for (const segment of segments) {
      if (!this.#blank) {
        visible.push(segment);
        continue;
      }
      const text = segment.text.trimStart();
      if (text === "") {
        this.#tokens += segment.tokens;
        continue;
      }
      this.#blank = false;
      visible.push({ ...segment, text });
    }
  }

  #hide(segments: Segment[]): void {
    for (const segment of segments) this.#tokens += segment.tokens;
  }
}
