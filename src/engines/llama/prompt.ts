/**
 * From a rendered conversation to the tokens of a prompt.
 *
 * Guarantees: a token that marks a role or a turn comes from the template only. Control tokens are never read out of
 * a message's text, and text that spells another token of the template's is broken up. Between two such tokens
 * template and message are tokenized together, as the model was trained.
 */
import type { Part } from "./template.ts";
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

  build(parts: readonly Part[]): Uint32Array {
    const runs: Uint32Array[] = [];
    let text = "";
    const flush = (): void => {
      if (text !== "") runs.push(...this.#plain(text));
      text = "";
    };
    for (const part of parts) {
      if (part.from === "content") {
        text += part.text;
        continue;
      }
      let last = 0;
      for (const match of this.#markers === null ? [] : part.text.matchAll(this.#markers)) {
        text += part.text.slice(last, match.index);
        last = match.index + match[0].length;
        flush();
        const token = this.#tokenizer.vocabulary.markers.get(match[0]);
        if (token !== undefined) runs.push(Uint32Array.of(token));
      }
      text += part.text.slice(last);
    }
    flush();
    const { bos } = this.#tokenizer;
    if (bos !== null && runs[0]?.[0] !== bos) runs.unshift(Uint32Array.of(bos));
    return concat(runs);
  }

  /** Tokens of a text that may hold markers of the template's own, such as a closing tag. */
  markers(text: string): Uint32Array {
    const token = this.#tokenizer.vocabulary.markers.get(text);
    return token === undefined ? this.#tokenizer.tokenize(text) : Uint32Array.of(token);
  }

  /** Breaks a marker after its first character, so that it is spelled and not meant. */
  #plain(text: string): Uint32Array[] {
    if (this.#forgeable === null) return [this.#tokenizer.tokenize(text)];
    const runs: Uint32Array[] = [];
    let last = 0;
    for (const match of text.matchAll(this.#forgeable)) {
      const cut = match.index + (String.fromCodePoint(match[0].codePointAt(0) ?? 0).length || 1);
      runs.push(this.#tokenizer.tokenize(text.slice(last, cut)));
      last = cut;
    }
    runs.push(this.#tokenizer.tokenize(text.slice(last)));
    return runs;
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
