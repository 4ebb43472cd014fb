/**
 * Renders a conversation with the model's own chat template, keeping the template's text and the messages' apart.
 *
 * Guarantees: what a caller wrote comes back as `content`, never as `template`, whatever it says: the template is
 * rendered with unguessable marks in place of the texts, and cut at the marks afterwards. A template that trims its
 * messages trims them here too. What a template refuses or drops is folded (text/message-normalisation.ts), so every conversation can be
 * rendered. Other filters over the texts (`upper`, `tojson`) are not followed.
 */
import { randomBytes } from "node:crypto";
import { Template } from "@huggingface/jinja";
import type { Message } from "../../../chat/engine.ts";
import { messageOf } from "../../../errors.ts";
import { foldings, type Turn } from "../../text/message-normalisation.ts";
import { withTimeLimit } from "./time-limit.ts";

export interface Part {
  from: "template" | "content";
  text: string;
}

export interface RenderOptions {
  /** Given to the template as `enable_thinking`; absent: the template's own default. */
  thinking?: boolean | undefined;
}

/** For models whose file names no template: ChatML, which most instruction-tuned models have seen. */
export const fallbackTemplate =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/** 2,048 messages take 45 ms, and six times that if they have to be folded. A template that takes this long loops. */
const renderMs = 5000;

/** Stands on both sides of a mark: where it is gone, the template has trimmed. No known template writes one itself. */
const edge = "\u2003";

export class ChatTemplate {
  readonly #template: Template;
  readonly #source: string;
  readonly #bos: string;
  readonly #eos: string;

  /** Throws if the source is not a template or cannot render a single user message; a `TimeLimitExceeded` if it loops. */
  constructor(source: string, tokens: { bos: string; eos: string }) {
    this.#source = source;
    this.#bos = tokens.bos;
    this.#eos = tokens.eos;
    this.#template = withTimeLimit(renderMs, () => new Template(source));
    const probe = withTimeLimit(renderMs, () => this.#render([{ role: "user", texts: ["probe"] }], {}));
    if (probe instanceof Error) throw probe;
  }

  /** Whether the template itself decides about thinking. */
  get switchesThinking(): boolean {
    return this.#source.includes("enable_thinking");
  }

  mentions(text: string): boolean {
    return this.#source.includes(text);
  }

  /** Throws a `TimeLimitExceeded` if the template loops over this conversation. */
  render(messages: readonly Message[], options: RenderOptions): Part[] {
    return withTimeLimit(renderMs, () => this.#renderFolded(messages, options));
  }

  #renderFolded(messages: readonly Message[], options: RenderOptions): Part[] {
    let failure: Error | undefined;
    for (const turns of foldings(messages, this.mentions("developer"))) {
      const parts = this.#render(turns, options);
      if (!(parts instanceof Error)) return parts;
      failure ??= parts;
    }
    throw new Error(`the chat template takes no folding of the messages: ${failure?.message}`);
  }

  #render(turns: readonly Turn[], options: RenderOptions): Part[] | Error {
    const nonce = `ink${randomBytes(12).toString("hex")}n`;
    const texts: string[] = [];
    const mark = (text: string): string => {
      if (text === "") return "";
      texts.push(text);
      return `${nonce}${texts.length - 1}z`;
    };
    const messages = turns.map((turn) => {
      const content = turn.texts
        .filter((text, _, all) => text !== "" || all.length === 1)
        .map(mark)
        .join("\n\n");
      return { role: turn.role, content: content === "" ? "" : `${edge}${content}${edge}` };
    });
    let rendered: string;
    try {
      rendered = this.#template.render({
        messages,
        add_generation_prompt: true,
        bos_token: this.#bos,
        eos_token: this.#eos,
        ...(options.thinking === undefined ? {} : { enable_thinking: options.thinking }),
      });
    } catch (cause) {
      return new Error(messageOf(cause), { cause });
    }
    return cut(rendered, nonce, texts);
  }
}

function cut(rendered: string, nonce: string, texts: readonly string[]): Part[] | Error {
  const parts: Part[] = [];
  const seen = new Set<number>();
  const marks = new RegExp(`(${edge}?)${nonce}(\\d+)z(${edge}?)`, "g");
  let last = 0;
  let afterMark = false;
  for (const match of rendered.matchAll(marks)) {
    const between = rendered.slice(last, match.index);
    if (between !== "") parts.push({ from: "template", text: between });
    const index = Number(match[2]);
    // Inside a folded turn marks stand two line ends apart, without an edge between them.
    const innerLeft = afterMark && between === "\n\n";
    last = match.index + match[0].length;
    const innerRight = rendered.startsWith(`\n\n${nonce}`, last);
    let text = texts[index] ?? "";
    if (match[1] === "" && !innerLeft) text = text.trimStart();
    if (match[3] === "" && !innerRight) text = text.trimEnd();
    seen.add(index);
    if (text !== "") parts.push({ from: "content", text });
    afterMark = true;
  }
  const rest = rendered.slice(last);
  if (rest !== "") parts.push({ from: "template", text: rest });
  return seen.size === texts.length ? parts : new Error("the chat template leaves out a message");
}
