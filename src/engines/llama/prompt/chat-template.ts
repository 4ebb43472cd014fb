/**
 * Renders a conversation with the model's own chat template, and separates the template's text
 * from the messages.
 *
 * The template is rendered with unguessable marks in place of the texts, and the result is cut at
 * the marks. Guarantees: text of a caller is always `content`, never `template`. If the template
 * trims its messages, they are trimmed here too. If it refuses or drops messages, they are
 * normalised (text/conversation-forms.ts), so every conversation can be rendered. Other filters
 * over the texts (`upper`, `tojson`) are not applied.
 */

import { randomBytes } from "node:crypto";
import { Template } from "@huggingface/jinja";
import type { Message } from "../../../chat/engine.ts";
import { messageOf } from "../../../errors.ts";
import { given } from "../../../objects.ts";
import { normalForms, type Turn } from "../../text/conversation-forms.ts";
import { withTimeLimit } from "./time-limit.ts";

export interface Part {
  from: "template" | "content";
  text: string;
}

interface RenderOptions {
  /** Passed to the template as `enable_thinking`. Default: the template's own. */
  thinking?: boolean | undefined;
}

/** ChatML, for files without a template. Most instruction-tuned models know it. */
export const fallbackTemplate =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/** 2,048 messages take 45 ms, normalised ones 270 ms. A template that takes this long loops. */
const defaultRenderMs = 5000;

/** Surrounds each mark. If the template trims, it is missing afterwards. */
const edge = "\u2003";

export class ChatTemplate {
  readonly #template: Template;
  readonly #source: string;
  readonly #bos: string;
  readonly #eos: string;
  readonly #renderMs: number;

  /** Throws if the template is invalid, refuses a single user message, or loops. */
  constructor(source: string, tokens: { bos: string; eos: string }, renderMs = defaultRenderMs) {
    this.#source = source;
    this.#bos = tokens.bos;
    this.#eos = tokens.eos;
    this.#renderMs = renderMs;
    this.#template = withTimeLimit(renderMs, () => new Template(source));
    const probe = withTimeLimit(renderMs, () => this.#render([{ role: "user", texts: ["probe"] }], {}));
    if (probe instanceof Error) throw probe;
  }

  /** The template itself switches thinking on and off. */
  get switchesThinking(): boolean {
    return this.#source.includes("enable_thinking");
  }

  mentions(text: string): boolean {
    return this.#source.includes(text);
  }

  /** Throws a `TimeLimitExceeded` if the template loops over this conversation. */
  render(messages: readonly Message[], options: RenderOptions): Part[] {
    return withTimeLimit(this.#renderMs, () => this.#renderNormalised(messages, options));
  }

  #renderNormalised(messages: readonly Message[], options: RenderOptions): Part[] {
    let failure: Error | undefined;
    for (const turns of normalForms(messages, this.mentions("developer"))) {
      const parts = this.#render(turns, options);
      if (!(parts instanceof Error)) return parts;
      failure ??= parts;
    }
    throw new Error(`the chat template refuses the messages in every form: ${failure?.message}`);
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
        ...given({ enable_thinking: options.thinking }),
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
    // In a turn of several messages, marks are two line ends apart without an edge between them.
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
