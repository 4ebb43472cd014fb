/**
 * Turns a rendered conversation into the tokens of a prompt.
 *
 * Guarantees: tokens that mark a role or a turn come only from the template. Control tokens are
 * never read from the text of a message. If a message spells another token of the template, or one
 * of its plain-text marks, that text is tokenized in two parts. Its characters stay the same, but
 * it never becomes the mark's tokens. Between two marker tokens, template and message are
 * tokenized together, as in the model's training.
 */
import { setImmediate } from "node:timers/promises";
import type { Part } from "./chat-template.ts";
import { chunkLengthMax, chunksOf } from "./chunker.ts";
import type { Vocabulary } from "./vocabulary.ts";

export interface PromptTokenizer {
  vocabulary: Vocabulary;
  /** Reads no special tokens. `continues`: the text continues a word, so no space is added. */
  tokenize: (text: string, continues?: boolean) => Uint32Array;
  /** Added to prompts that do not begin with it. Null: never. */
  bos: number | null;
}

/** Text of template and messages between two marker tokens. */
interface Run {
  text: string;
  /** Ranges of the messages in `text`. */
  contents: { start: number; end: number }[];
}

interface Segment {
  text: string;
  continues: boolean;
}

/**
 * Looks like a control token (`<|user|>`), and is separated even if the template never writes it.
 */
const controlLooking = /^<[|｜].+[|｜]>$/s;

export class PromptBuilder {
  /**
   * Plain-text marks that the vocabulary spells in single characters. They cannot be separated.
   */
  readonly inseparable: readonly string[];
  readonly #tokenizer: PromptTokenizer;
  readonly #markers: RegExp | null;
  readonly #forgeable: RegExp | null;
  readonly #plain: RegExp | null;
  /** Position inside each plain-text mark at which it is cut. */
  readonly #cuts = new Map<string, number>();

  /** `inTemplate` returns whether the model's template, or its thinking, uses a marker. */
  constructor(
    tokenizer: PromptTokenizer,
    plainMarks: readonly string[],
    inTemplate: (marker: string) => boolean,
  ) {
    this.#tokenizer = tokenizer;
    const { vocabulary } = tokenizer;
    const markers = [...vocabulary.markers];
    this.#markers = markersIn(vocabulary);
    // llama.cpp reads user-defined tokens from any text. Most are words or blanks; those of the
    // template are marks.
    this.#forgeable = anyOf(
      markers
        .filter(
          ([text, token]) =>
            vocabulary.isUserDefined(token) && (inTemplate(text) || controlLooking.test(text)),
        )
        .map(([text]) => text),
    );
    for (const mark of plainMarks) {
      const cut = cutOf(mark, tokenizer);
      if (cut !== null) this.#cuts.set(mark, cut);
    }
    this.#plain = anyOf([...this.#cuts.keys()]);
    this.inseparable = plainMarks.filter((mark) => !this.#cuts.has(mark));
  }

  /**
   * Yields to the event loop between the segments of a long text, so that other answers get their
   * tokens. Stops at `tokensMax` tokens, because a prompt of that length is refused anyway.
   */
  async build(parts: readonly Part[], tokensMax: number): Promise<Uint32Array> {
    const { bos, tokenize } = this.#tokenizer;
    const runs: Uint32Array[] = [];
    let length = 0;
    let unbroken = 0;
    for (const segment of this.#segments(parts)) {
      const isToken = typeof segment === "number";
      const run = isToken ? Uint32Array.of(segment) : tokenize(segment.text, segment.continues);
      runs.push(run);
      length += run.length;
      if (length >= tokensMax) break;
      unbroken += isToken ? 1 : segment.text.length;
      if (unbroken < chunkLengthMax) continue;
      unbroken = 0;
      await setImmediate();
    }
    if (bos !== null && runs[0]?.[0] !== bos) runs.unshift(Uint32Array.of(bos));
    return concat(runs);
  }

  /** Returns the tokens of a text that may itself be a marker, such as a closing tag. */
  markers(text: string): Uint32Array {
    const token = this.#tokenizer.vocabulary.markers.get(text);
    return token === undefined ? this.#tokenizer.tokenize(text) : Uint32Array.of(token);
  }

  /** Yields the template's marker tokens, and the texts between them. */
  *#segments(parts: readonly Part[]): Generator<Segment | number, void, undefined> {
    let run: Run = { text: "", contents: [] };
    for (const part of parts) {
      if (part.from === "content") {
        const start = run.text.length;
        run.text += part.text;
        run.contents.push({ start, end: run.text.length });
        continue;
      }
      let last = 0;
      for (const match of this.#markers === null ? [] : part.text.matchAll(this.#markers)) {
        run.text += part.text.slice(last, match.index);
        last = match.index + match[0].length;
        yield* this.#separated(run);
        run = { text: "", contents: [] };
        const token = this.#tokenizer.vocabulary.markers.get(match[0]);
        if (token !== undefined) yield token;
      }
      run.text += part.text.slice(last);
    }
    yield* this.#separated(run);
  }

  /** Cuts the marks that a message spells, so that the model does not read them as marks. */
  *#separated(run: Run): Generator<Segment, void, undefined> {
    let last = 0;
    for (const cut of this.#cutsIn(run)) {
      yield* this.#chunked(run.text.slice(last, cut), last > 0);
      last = cut;
    }
    yield* this.#chunked(run.text.slice(last), last > 0);
  }

  /** Returns positions in ascending order. */
  #cutsIn({ text, contents }: Run): number[] {
    const cuts = new Set<number>();
    // The template's own markers are tokens already, so any remaining one comes at least partly
    // from a message.
    for (const { index, mark } of overlapping(this.#forgeable, text))
      cuts.add(index + (String.fromCodePoint(mark.codePointAt(0) ?? 0).length || 1));
    let next = 0;
    for (const { index } of overlapping(this.#plain, text)) {
      while (next < contents.length && (contents[next]?.end ?? 0) <= index) next++;
      const content = contents[next];
      if (content === undefined) break;
      // Several marks may begin here, each with its own cut.
      for (const [mark, cut] of this.#cuts) {
        if (content.start < index + mark.length && text.startsWith(mark, index)) cuts.add(index + cut);
      }
    }
    return [...cuts].sort((left, right) => left - right);
  }

  *#chunked(text: string, continues: boolean): Generator<Segment, void, undefined> {
    if (text === "") return;
    if (!this.#tokenizer.vocabulary.splitsWords) yield { text, continues };
    else for (const chunk of chunksOf(text)) yield { text: chunk, continues: false };
  }
}

/**
 * Returns an expression that matches the vocabulary's markers, or null if there are no markers.
 */
export function markersIn(vocabulary: Vocabulary): RegExp | null {
  return anyOf([...vocabulary.markers.keys()]);
}

/** Yields all matches, also overlapping ones: the rest of a cut mark must not be a mark. */
function* overlapping(
  expression: RegExp | null,
  text: string,
): Generator<{ index: number; mark: string }, void, undefined> {
  if (expression === null) return;
  expression.lastIndex = 0;
  for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
    yield { index: match.index, mark: match[0] };
    expression.lastIndex = match.index + 1;
  }
}

/** Returns the middle of the mark's longest token, or null if all are single characters. */
function cutOf(mark: string, { vocabulary, tokenize }: PromptTokenizer): number | null {
  const bytes = Buffer.from(mark);
  const lengths = [...tokenize(mark)].map((token) => vocabulary.bytesOf(token).length);
  // A space that the tokenizer has added is not part of the mark.
  let at = bytes.length - lengths.reduce((sum, length) => sum + length, 0);
  let best = { start: 0, end: 0 };
  for (const length of lengths) {
    const start = Math.max(0, at);
    at += length;
    if (at - start > best.end - best.start) best = { start, end: at };
  }
  const first = bytes.toString("utf8", 0, best.start).length;
  const inside = bytes.toString("utf8", best.start, best.end);
  const half = Math.ceil(inside.length / 2);
  return inside.length < 2 || half === inside.length ? null : first + half;
}

function anyOf(texts: readonly string[]): RegExp | null {
  if (texts.length === 0) return null;
  const longestFirst = texts.toSorted((left, right) => right.length - left.length);
  return new RegExp(longestFirst.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|"), "g");
}

function concat(runs: readonly Uint32Array[]): Uint32Array {
  const all = new Uint32Array(runs.reduce((length, run) => length + run.length, 0));
  let at = 0;
  for (const run of runs) {
    all.set(run, at);
    at += run.length;
  }
  return all;
}
