/**
 * From a rendered conversation to the tokens of a prompt.
 *
 * Guarantees: a token that marks a role or a turn comes from the template only. Control tokens are never read out of
 * a message's text, and text that spells another token of the template's is broken up. Between two such tokens
 * template and message are tokenized together, as the model was trained.
 */
import { setImmediate } from "node:timers/promises";
import type { Part } from "./template.ts";
import { pieceLengthMax, piecesOf } from "./text-cuts.ts";
import type { Vocabulary } from "./vocabulary.ts";

export interface PromptTokenizer {
  vocabulary: Vocabulary;
  /** Without special tokens. */
  tokenize: (text: string) => Uint32Array;
  /** Put in front where the model wants it and the template does not write it; null: never. */
  bos: number | null;
}

export class PromptBuilder {
  readonly #tokenizer: PromptTokenizer;
  readonly #markers: RegExp | null;
  readonly #forgeable: RegExp | null;

  /** `inTemplate` tells whether the model's template (or its thinking) makes use of a marker. */
  constructor(tokenizer: PromptTokenizer, inTemplate: (marker: string) => boolean) {
    this.#tokenizer = tokenizer;
    const markers = [...tokenizer.vocabulary.markers];
    this.#markers = anyOf(markers.map(([text]) => text));
    // llama.cpp reads user-defined tokens out of any text; most are words or blanks, the template's are signs.
    this.#forgeable = anyOf(
      markers
        .filter(([text, token]) => tokenizer.vocabulary.isUserDefined(token) && inTemplate(text))
        .map(([text]) => text),
    );
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
    for (const piece of this.#pieces(parts)) {
      const run = typeof piece === "string" ? tokenize(piece) : Uint32Array.of(piece);
      runs.push(run);
      length += run.length;
      if (length >= tokensMax) break;
      unbroken += typeof piece === "string" ? piece.length : 1;
      if (unbroken < pieceLengthMax) continue;
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
  *#pieces(parts: readonly Part[]): Generator<string | number, void, undefined> {
    let text = "";
    for (const part of parts) {
      if (part.from === "content") {
        text += part.text;
        continue;
      }
      let last = 0;
      for (const match of this.#markers === null ? [] : part.text.matchAll(this.#markers)) {
        text += part.text.slice(last, match.index);
        last = match.index + match[0].length;
        yield* this.#plain(text);
        text = "";
        const token = this.#tokenizer.vocabulary.markers.get(match[0]);
        if (token !== undefined) yield token;
      }
      text += part.text.slice(last);
    }
    yield* this.#plain(text);
  }

  /** Breaks a marker after its first character, so that it is spelled and not meant. */
  *#plain(text: string): Generator<string, void, undefined> {
    let last = 0;
    for (const match of this.#forgeable === null ? [] : text.matchAll(this.#forgeable)) {
      const cut = match.index + (String.fromCodePoint(match[0].codePointAt(0) ?? 0).length || 1);
      yield* this.#short(text.slice(last, cut));
      last = cut;
    }
    yield* this.#short(text.slice(last));
  }

  *#short(text: string): Generator<string, void, undefined> {
    if (this.#tokenizer.vocabulary.splitsWords) yield* piecesOf(text);
    else if (text !== "") yield text;
  }
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
