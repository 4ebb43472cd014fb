/**
 * Bytes of a model's tokens, from the lists in its GGUF file.
 *
 * Pure. llama.cpp's own detokenizer returns strings and loses parts of split characters, so text
 * is joined from bytes here. Supports byte-level BPE ("gpt2") and SentencePiece ("llama"). Other
 * kinds use `spell`, which may lose parts of characters.
 */

interface VocabularySource {
  /** `tokenizer.ggml.model` */
  kind: string;
  tokens: readonly string[];
  /**
   * `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
   */
  types: readonly number[];
  addSpacePrefix: boolean;
  /** Returns the library's own text of one token. */
  spell: (token: number) => string;
}

const normalType = 1;
const unknownType = 2;
const controlType = 3;
const userDefinedType = 4;
const byteType = 6;

/** Tokenizers that search the whole text for tokens, such as SentencePiece. */
const kindsWithoutWords: ReadonlySet<string> = new Set(["llama", "t5", "bert", "rwkv", "plamo2"]);

const noBytes = new Uint8Array(0);
const encoder = new TextEncoder();

export class Vocabulary {
  readonly #source: VocabularySource;
  readonly #bytes: (Uint8Array | undefined)[] = [];
  /** Control and user-defined tokens by their text. Blank ones are left out. */
  readonly markers: ReadonlyMap<string, number>;
  /** Bytes of the longest token. */
  readonly bytesPerTokenMax: number;
  /** Every text can be tokenized without loss, so its bytes give a lower bound of its tokens. */
  readonly lossless: boolean;
  /** llama.cpp splits text into words by regular expressions before it searches for tokens. */
  readonly splitsWords: boolean;
  /** Text begins with a space that the tokenizer has added. */
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
      // Each character of GPT-2's alphabet is one byte.
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

  /** Returns the text of a token, which is empty for a control token. */
  bytesOf(token: number): Uint8Array {
    const known = this.#bytes[token];
    if (known !== undefined) return known;
    const bytes = this.#spell(token);
    this.#bytes[token] = bytes;
    return bytes;
  }

  /** Returns the text of a token, or the name of a control token. */
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

/** GPT-2's alphabet: printable bytes map to themselves, the other 68 to characters from U+0100. */
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
