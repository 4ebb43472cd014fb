/**
 * Takes a model's thinking out of its text: everything from the opening tag to the closing one.
 *
 * Pure. Guarantees: no text between the tags, no tag and no blank after a closing tag is passed on. The tokens of
 * all of these count as reasoning; a token that holds both text and tag counts as what comes first in it.
 * Tags that a model writes later in its answer are taken out as well.
 */
import { HeldPieces, type Piece, partialEnd } from "./pieces.ts";

/** The strings that open and close a model's thinking. */
export type ThinkTags = readonly [open: string, close: string];

export class ThinkingFilter {
  readonly #open: readonly [string];
  readonly #close: readonly [string];
  readonly #held = new HeldPieces();
  #inside: boolean;
  /** After a closing tag, until the answer's first character. */
  #blank = false;
  #tokens = 0;

  constructor(tags: ThinkTags, inside: boolean) {
    this.#open = [tags[0]];
    this.#close = [tags[1]];
    this.#inside = inside;
  }

  get inside(): boolean {
    return this.#inside;
  }

  /** Tokens of thinking so far, undecided ones included while the thinking is open. */
  get tokens(): number {
    return this.#tokens + (this.#inside ? this.#held.tokens : 0);
  }

  push(piece: Piece): Piece[] {
    this.#held.push(piece);
    const visible: Piece[] = [];
    for (;;) {
      const tag = this.#inside ? this.#close : this.#open;
      const text = this.#held.text;
      const at = text.indexOf(tag[0]);
      if (at < 0) {
        this.#pass(this.#held.takeWhole(text.length - partialEnd(text, tag)), visible);
        return visible;
      }
      this.#pass(this.#held.takeTo(at), visible);
      this.#hide(this.#held.takeTo(tag[0].length));
      this.#inside = !this.#inside;
      this.#blank = !this.#inside;
    }
  }

  /** At the end of the text: what waits is no tag any more. */
  flush(): Piece[] {
    const visible: Piece[] = [];
    this.#pass(this.#held.takeAll(), visible);
    return visible;
  }

  /** The closing tag has been put into the sequence by force; `tokens` waited in front of this filter. */
  close(tokens: number): void {
    this.#hide(this.#held.takeAll());
    this.#tokens += tokens;
    this.#inside = false;
    this.#blank = true;
  }

  #pass(pieces: Piece[], visible: Piece[]): void {
    if (this.#inside) {
      this.#hide(pieces);
      return;
    }
    for (const piece of pieces) {
      if (!this.#blank) {
        visible.push(piece);
        continue;
      }
      const text = piece.text.trimStart();
      if (text === "") {
        this.#tokens += piece.tokens;
        continue;
      }
      this.#blank = false;
      visible.push({ ...piece, text });
    }
  }

  #hide(pieces: Piece[]): void {
    for (const piece of pieces) this.#tokens += piece.tokens;
  }
}
