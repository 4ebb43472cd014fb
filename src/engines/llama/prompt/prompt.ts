/**
 * From a rendered conversation to the tokens of a prompt.
 *
 * Guarantees: a token that marks a role or a turn comes from the template only. Control tokens are never read out of
 * a message's text. Text of a message that spells another token of the template's, or one of its plain-text marks, is tokenized
 * in two parts, so that the tokens of the mark never come from a message; its characters stay as they are. Between two
 * such tokens template and message are tokenized together, as the model was trained.
 */
import { setImmediate } from "node:timers/promises";
import { chunkLengthMax, chunksOf } from "./chunker.ts";
import type { Part } from "./template.ts";
import type { Vocabulary } from "./vocabulary.ts";

export interface PromptTokenizer {
  vocabulary: Vocabulary;
  /** Without special tokens. `continues`: the text goes on in the middle of a word, so no space is put in front of it. */
  tokenize: (text: string, continues?: boolean) => Uint32Array;
  /** Put in front where the model wants it and the template does not write it; null: never. */
  bos: number | null;
}

/** Template and messages between two markers. */
interface Run {
  text: string;
  /** Where the messages are in it. */
  contents: { start: number; end: number }[];
}

interface Segment {
  text: string;
  continues: boolean;
}

/** A token of another look: `<|user|>`, also if the template is never seen to write it. */
const controlLooking = /^<[|｜].+[|｜]>$/s;

export class PromptBuilder {
  /** Plain-text marks that the vocabulary spells in single characters, so that no cut tells them apart. */
  readonly inseparable: readonly string[];
  readonly #tokenizer: PromptTokenizer;
  readonly #markers: RegExp | null;
  readonly #forgeable: RegExp | null;
  readonly #plain: RegExp | null;
  /** Where a plain-text mark is cut. */
  readonly #cuts = new Map<string, number>();

  /** `inTemplate`: whether the model's template (or its thinking) uses a marker. */
  constructor(
    tokenizer: PromptTokenizer,
    plainMarks: readonly string[],
    inTemplate: (marker: string) => boolean,
  ) {
    this.#tokenizer = tokenizer;
    const { vocabulary } = tokenizer;
    const markers = [...vocabulary.markers];
    this.#markers = markersIn(vocabulary);
    // llama.cpp reads user-defined tokens out of any text; most are words or blanks, the template's are signs.
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
   * Others' tokens are decoded between the pieces of a long text. Ends early where there are `tokensMax` tokens or
   * more: such a prompt is refused, whatever follows.
   */
  async build(parts: readonly Part[], tokensMax: number): Promise<Uint32Array> {
    const { bos, tokenize } = this.#tokenizer;
    const runs: Uint32Array[] = [];
    let length = 0;
    let unbroken = 0;
    for (const piece of this.#segments(parts)) {
      const run = typeof piece === "number" ? Uint32Array.of(piece) : tokenize(piece.text, piece.continues);
      runs.push(run);
      length += run.length;
      if (length >= tokensMax) break;
      unbroken += typeof piece === "number" ? 1 : piece.text.length;
      if (unbroken < chunkLengthMax) continue;
      unbroken = 0;
      await setImmediate();
    }
    if (bos !== null && runs[0]?.[0] !== bos) runs.unshift(Uint32Array.of(bos));
    return concat(runs);
  }

  /** Tokens of a text that may hold markers of the template's own, such as a closing tag. */
  markers(text: string): Uint32Array {
    const token = this.#tokenizer.vocabulary.markers.get(text);
    return token === undefined ? this.#tokenizer.tokenize(text) : Uint32Array.of(token);
  }

  /** Tokens of the template's markers, and the texts between them. */
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

  /** Breaks marks that a message spells, so that they are spelled and not meant. */
  *#separated(run: Run): Generator<Segment, void, undefined> {
    let last = 0;
    for (const cut of this.#cutsIn(run)) {
      yield* this.#chunked(run.text.slice(last, cut), last > 0);
      last = cut;
    }
    yield* this.#chunked(run.text.slice(last), last > 0);
  }

  /** In ascending order. */
  #cutsIn({ text, contents }: Run): number[] {
    const cuts = new Set<number>();
    // The template's own markers are tokens by now: what still spells one comes from a message, at least in part.
    for (const { index, mark } of overlapping(this.#forgeable, text))
      cuts.add(index + (String.fromCodePoint(mark.codePointAt(0) ?? 0).length || 1));
    let next = 0;
    for (const { index } of overlapping(this.#plain, text)) {
      while (next < contents.length && (contents[next]?.end ?? 0) <= index) next++;
      const content = contents[next];
      if (content === undefined) break;
      // Several marks may begin here, each with a cut of its own.
      for (const [mark, cut] of this.#cuts) {
        if (content.start < index + mark.length && text.startsWith(mark, index)) cuts.add(index + cut);
      }
    }
    return [...cuts].sort((left, right) => left - right);
  }

  *#chunked(text: string, continues: boolean): Generator<Segment, void, undefined> {
    if (text === "") return;
    if (!this.#tokenizer.vocabulary.splitsWords) yield { text, continues };
    else for (const piece of chunksOf(text)) yield { text: piece, continues: false };
  }
}

/** Matches every token of the vocabulary that stands for itself; null if there is none. */
export function markersIn(vocabulary: Vocabulary): RegExp | null {
  return anyOf([...vocabulary.markers.keys()]);
}

/** All matches, also those that begin inside another one: what is left of a broken mark must not be a mark. */
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

/** In the middle of the mark's longest token, which then cannot come about. Null if each character is a token. */
function cutOf(mark: string, { vocabulary, tokenize }: PromptTokenizer): number | null {
  const bytes = Buffer.from(mark);
  const lengths = [...tokenize(mark)].map((token) => vocabulary.bytesOf(token).length);
  // A space that the tokenizer has put in front is no part of the mark.
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
