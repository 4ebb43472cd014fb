/**
 * A model's tokens as bytes, as its GGUF file lists them.
 *
 * Pure. llama.cpp's own detokenizer gives strings, in which half a character is already lost; the bytes are what
 * text can be put together from exactly. Knows byte-level BPE ("gpt2") and SentencePiece ("llama"); for the others it
 * asks `spell`, which may lose the halves of characters that such a model splits.
 */

export interface VocabularySource {
  /** `tokenizer.ggml.model` */
  kind: string;
  tokens: readonly string[];
  /** `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
  types: readonly number[];
  addSpacePrefix: boolean;
  /** The library's own text of one token. */
  spell: (token: number) => string;
}

const normalType = 1;
const unknownType = 2;
const controlType = 3;
const userDefinedType = 4;
const byteType = 6;

/** SentencePiece and others, which look for tokens in the whole text. */
const kindsWithoutWords: ReadonlySet<string> = new Set(["llama", "t5", "bert", "rwkv", "plamo2"]);

const noBytes = new Uint8Array(0);
const encoder = new TextEncoder();

export class Vocabulary {
  readonly #source: VocabularySource;
  readonly #bytes: (Uint8Array | undefined)[] = [];
  /** Tokens that stand for themselves in a template: their text, without blanks, and their number. */
  readonly markers: ReadonlyMap<string, number>;
  /** The most bytes of text that one token can stand for. */
  readonly bytesPerTokenMax: number;
  /** True where every text is made of tokens without loss, so that bytes bound the count of tokens from below. */
  readonly lossless: boolean;
  /** True where llama.cpp splits text into words by regular expressions before it looks for tokens. */
  readonly splitsWords: boolean;
  /** True where text begins with a space that the tokenizer has put there. */
  readonly dropFirstSpace: boolean;

  constructor(source: VocabularySource) {
    this.#source = source;
    const markers = new Map<string, number>();
    let bytesMax = 1;
    let hasBytes = source.kind === "gpt2";
    for (const [token, text] of source.tokens.entries()) {
      const type = source.types[token] ?? normalType;
      if (type === byteType) hasBytes = true;
      else if (type === controlType || type === userDefinedType) {
        if (text.trim() !== "") markers.set(text, token);
      }
      // In GPT-2's alphabet a character stands for one byte.
      const bytes = source.kind === "gpt2" && type === normalType ? text.length : Buffer.byteLength(text);
      if (type !== controlType) bytesMax = Math.max(bytesMax, bytes);
    }
    this.markers = markers;
    this.bytesPerTokenMax = bytesMax;
    this.lossless = hasBytes && (source.kind === "gpt2" || source.kind === "llama");
    this.splitsWords = !kindsWithoutWords.has(source.kind);
    this.dropFirstSpace = source.kind === "llama" && source.addSpacePrefix;
  }

  isControl(token: number): boolean {
    return this.#source.types[token] === controlType;
  }

  isUserDefined(token: number): boolean {
    return this.#source.types[token] === userDefinedType;
  }

  /** The text that a token stands for; nothing for a control token. */
  bytesOf(token: number): Uint8Array {
    const known = this.#bytes[token];
    if (known !== undefined) return known;
    const bytes = this.#spell(token);
    this.#bytes[token] = bytes;
    return bytes;
  }

  /** What to show for a token by itself: its text, or a control token's name. */
  nameBytesOf(token: number): Uint8Array {
    return this.isControl(token) ? encoder.encode(this.#source.tokens[token] ?? "") : this.bytesOf(token);
  }

  #spell(token: number): Uint8Array {
    const text = this.#source.tokens[token];
    const type = this.#source.types[token] ?? normalType;
    if (text === undefined || type === controlType || type === unknownType) return noBytes;
    if (type === byteType) {
      const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(text)?.[1];
      return byte === undefined ? noBytes : Uint8Array.of(Number.parseInt(byte, 16));
    }
    if (type === userDefinedType) return encoder.encode(text);
    if (this.#source.kind === "gpt2") return byteLevel(text);
    if (this.#source.kind === "llama") return encoder.encode(text.replaceAll("\u2581", " "));
    return encoder.encode(this.#source.spell(token));
  }
}

/** GPT-2's table: printable bytes stand for themselves, the other 68 for characters from U+0100 on. */
const byteOfCharacter: ReadonlyMap<string, number> = (() => {
  const table = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 0x100; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    table.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return table;
})();

function byteLevel(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = byteOfCharacter.get(character);
    if (byte === undefined) bytes.push(...encoder.encode(character));
    else bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
