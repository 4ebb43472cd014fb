/**
 * A tokenizer from its files: renders conversations with the chat template and counts their
 * tokens. Runs in a thread of its own (tokenizer-thread.ts), because a prompt takes up to seconds.
 *
 * Guarantees: a file that cannot count is refused when it is loaded.
 */
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";
import type { Message } from "../../chat/engine.ts";
import { messageOf, OperatorError } from "../../errors.ts";
import { exceededSize } from "../../json-size.ts";
import type { TokenizerFiles } from "../../model-files/tokenizer-files.ts";
import { fieldOf } from "../../objects.ts";
import { ConversationForms } from "../text/conversation-forms.ts";

/** The largest known tokenizers have a fourth of this. Takes the thread some 300 MB to parse. */
const keysMax = 1_048_576;

export interface TokenizedPrompt {
  tokens: number;
  /** Tokens that the prompt may have more, if the server reads special tokens as text. */
  specialTokens: number;
  /** Number of times that the conversation was normalised further for the template. */
  steps: number;
  /** False without a template: the tokens are those of the texts alone. */
  isRendered: boolean;
}

/** Fields of the chat request that change the template's output. */
export type TemplateFields = Readonly<Record<string, unknown>>;

export class LoadedTokenizer {
  readonly #tokenizer: Tokenizer;
  readonly #template: Template | null;
  readonly #marks: { bos_token: string; eos_token: string };
  /** Matches special tokens in texts of callers. */
  readonly #special: RegExp | null;

  /** Throws an `OperatorError` that names the file. */
  constructor(files: TokenizerFiles) {
    const config = files.config === null ? {} : jsonOf(files.config);
    this.#tokenizer = named(files.tokenizer, () => new Tokenizer(jsonOf(files.tokenizer), config));
    this.#marks = { bos_token: textOf(config, "bos_token"), eos_token: textOf(config, "eos_token") };
    const source = templateOf(files, config);
    this.#template =
      source === null ? null : named(files.template ?? files.config ?? "", () => new Template(source));
    this.#special = named(files.tokenizer, () => specialIn(this.#tokenizer));
    this.#probe(files.tokenizer);
  }

  /** Returns null if the template refuses every form of the messages. */
  count(messages: readonly Message[], fields: TemplateFields): TokenizedPrompt | null {
    const specialTokens = this.#specialBytes(messages);
    if (this.#template === null) {
      const tokens = messages.reduce((sum, { content }) => sum + this.#tokensOf(content), 0);
      return { tokens, specialTokens, steps: 0, isRendered: false };
    }
    const forms = new ConversationForms(messages);
    let steps = 0;
    do {
      const prompt = this.#render(this.#template, forms.current, fields);
      if (prompt !== null) return { tokens: this.#tokensOf(prompt), specialTokens, steps, isRendered: true };
      steps += 1;
    } while (forms.normaliseFurther());
    return null;
  }

  #render(template: Template, messages: readonly Message[], fields: TemplateFields): string | null {
    const { chat_template_kwargs: variables, ...others } = fields;
    const given = typeof variables === "object" ? variables : {};
    try {
      return template.render({
        ...this.#marks,
        ...others,
        ...given,
        messages: messages.map(({ role, content }) => ({ role, content })),
        add_generation_prompt: true,
      });
    } catch {
      // Templates refuse a conversation with an error.
      return null;
    }
  }

  #tokensOf(text: string): number {
    return this.#tokenizer.encode(text, { add_special_tokens: false }).ids.length;
  }

  #specialBytes(messages: readonly Message[]): number {
    if (this.#special === null) return 0;
    let bytes = 0;
    for (const { content } of messages) {
      for (const [text] of content.matchAll(this.#special)) bytes += Buffer.byteLength(text);
    }
    return bytes;
  }

  /** The library accepts files without a vocabulary, and drops the text that they do not know. */
  #probe(path: string): void {
    const text = "Hello there, 2 + 2 = 4.";
    const tokens = named(path, () => this.#tokensOf(text));
    if (tokens >= 1 && tokens <= text.length) return;
    throw new OperatorError(`tokenizer ${path} makes ${tokens} tokens of "${text}": it is incomplete`);
  }
}

function specialIn(tokenizer: Tokenizer): RegExp | null {
  const texts: unknown[] = [...tokenizer.get_added_tokens_decoder().values()].map(({ content }) => content);
  const known = texts.filter((text): text is string => typeof text === "string" && text !== "");
  const patterns = known.map((text) => text.replace(/[^\w\s]/g, "\\$&"));
  return patterns.length === 0 ? null : new RegExp(patterns.join("|"), "g");
}

function templateOf(files: TokenizerFiles, config: object): string | null {
  if (files.template !== null) return named(files.template, () => readFileSync(files.template ?? "", "utf8"));
  const template = fieldOf(config, "chat_template");
  if (typeof template === "string") return template;
  // Several templates, such as one for tools.
  if (!Array.isArray(template)) return null;
  const usual = template.find((each) => fieldOf(each, "name") === "default");
  const source = fieldOf(usual, "template");
  return typeof source === "string" ? source : null;
}

/** A token is a text, or an object with its `content`. */
function textOf(config: object, name: string): string {
  const value = fieldOf(config, name);
  const text = typeof value === "string" ? value : fieldOf(value, "content");
  return typeof text === "string" ? text : "";
}

function jsonOf(path: string): object {
  const value: unknown = named(path, () => {
    const bytes = readFileSync(path);
    const exceeded = exceededSize(bytes, keysMax);
    if (exceeded !== null) throw new OperatorError(`tokenizer ${path} has too many ${exceeded}`);
    return JSON.parse(bytes.toString("utf8"));
  });
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new OperatorError(
    `tokenizer ${path}: found no JSON object, expected a tokenizer.json of Hugging Face`,
  );
}

function named<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`tokenizer ${path}: ${messageOf(error)}`, error);
  }
}
