/**
 * Encodes the chunks of a streamed answer as server-sent events. Every returned string consists of
 * complete events: `data: ...` and an empty line.
 *
 * The parts that are the same in every chunk are built once, so a token costs one JSON string and
 * one concatenation.
 */
import { randomBytes } from "node:crypto";
import type { FinishReason, TokenLogprob, Usage } from "../../chat/engine.ts";
import { type AnswerHead, logprobJson, logprobsJson, oneLine, textJson, usageObject } from "./response.ts";

interface ChunkOptions {
  includeUsage: boolean;
  includeObfuscation: boolean;
}

export class ChunkEncoder {
  readonly #prefix: string;
  /** Parts of a chunk with text and without log-probabilities, before and after the text. */
  readonly #beforeText: string;
  readonly #behindText: string;
  /** End of a chunk with a choice. It has `usage: null` if the request asks for usage. */
  readonly #suffix: string;
  readonly #obfuscated: boolean;

  constructor(head: AnswerHead, options: ChunkOptions) {
    const { id, created, model } = head;
    const fields = JSON.stringify({ id, object: "chat.completion.chunk", created, model });
    this.#prefix = `data: ${oneLine(fields.slice(0, -1))},"choices":[`;
    this.#suffix = options.includeUsage ? `],"usage":null` : "]";
    this.#obfuscated = options.includeObfuscation;
    this.#beforeText = `${this.#prefix}{"index":0,"delta":{"content":`;
    this.#behindText = `},"finish_reason":null}${this.#suffix}`;
  }

  first(): string {
    return this.#choice(`{"role":"assistant","content":""}`, "", "null", 0);
  }

  text(text: string, logprobs: readonly TokenLogprob[] | undefined): string {
    if (logprobs === undefined) {
      return `${this.#beforeText}${textJson(text)}${this.#behindText}${this.#padding(text.length)}}\n\n`;
    }
    const extra = `"logprobs":${oneLine(logprobsJson(logprobs.map(logprobJson)))},`;
    return this.#choice(`{"content":${textJson(text)}}`, extra, "null", text.length);
  }

  last(finishReason: FinishReason): string {
    return this.#choice("{}", "", `"${finishReason}"`, 0);
  }

  /** `fields` are further JSON fields of the chunk. */
  usage(usage: Usage, fields = ""): string {
    const more = fields === "" ? "" : `,${fields}`;
    return `${this.#prefix}],"usage":${JSON.stringify(usageObject(usage))}${more}${this.#padding(0)}}\n\n`;
  }

  #choice(delta: string, extra: string, finishReason: string, textLength: number): string {
    return `${this.#prefix}{"index":0,"delta":${delta},${extra}"finish_reason":${finishReason}}${this.#suffix}${this.#padding(textLength)}}\n\n`;
  }

  #padding(textLength: number): string {
    const length = obfuscationStep - (textLength % obfuscationStep);
    return this.#obfuscated ? `,"obfuscation":"${randomText(length)}"` : "";
  }
}

/**
 * Text and obfuscation are padded to a multiple of this, so that the size of a chunk does not
 * reveal its token.
 */
const obfuscationStep = 32;

let pool = "";
let poolUsed = 0;

function randomText(length: number): string {
  if (poolUsed + length > pool.length) {
    pool = randomBytes(6144).toString("base64url");
    poolUsed = 0;
  }
  const text = pool.slice(poolUsed, poolUsed + length);
  poolUsed += length;
  return text;
}
