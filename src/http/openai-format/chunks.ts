/**
 * The chunks of a streamed answer, framed as server-sent events.
 *
 * All that is the same on every chunk of a stream is built once, so that a token costs one JSON string and one
 * concatenation. Every text is a whole event: `data: ...` and an empty line.
 */
import { randomBytes } from "node:crypto";
import type { FinishReason, TokenLogprob, Usage } from "../../chat/engine.ts";
import { type AnswerHead, logprobJson, logprobsJson, usageObject } from "./response.ts";

export const doneEvent = "data: [DONE]\n\n";

/** A comment, with no event behind it: an event without data breaks the parsers of some SDKs. */
export const keepAliveComment = ": keep-alive\n\n";

/** `body` is the JSON of an error body. */
export function errorEvent(body: string): string {
  return `data: ${oneLine(body)}\n\n`;
}

export interface ChunkOptions {
  includeUsage: boolean;
  includeObfuscation: boolean;
}

export class ChunkEncoder {
  readonly #prefix: string;
  /** Of a chunk with text and without log-probabilities, all but the text. */
  readonly #beforeText: string;
  readonly #behindText: string;
  /** Closes a chunk that has a choice: usage is null on these where it was asked for. */
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

  usage(usage: Usage): string {
    return `${this.#prefix}],"usage":${JSON.stringify(usageObject(usage))}${this.#padding(0)}}\n\n`;
  }

  #choice(delta: string, extra: string, finishReason: string, textLength: number): string {
    return `${this.#prefix}{"index":0,"delta":${delta},${extra}"finish_reason":${finishReason}}${this.#suffix}${this.#padding(textLength)}}\n\n`;
  }

  #padding(textLength: number): string {
    return this.#obfuscated ? `,"obfuscation":"${obfuscation(textLength)}"` : "";
  }
}

/** Text and obfuscation together reach the next multiple of this, so that a chunk's size says little about its token. */
const obfuscationStep = 32;

export function obfuscation(textLength: number): string {
  return randomText(obfuscationStep - (textLength % obfuscationStep));
}

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

/** Most tokens are printable ASCII, which is JSON as it is: looking is faster than `JSON.stringify`. */
function textJson(text: string): string {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x20 || unit > 0x7e || unit === 0x22 || unit === 0x5c) return oneLine(JSON.stringify(text));
  }
  return `"${text}"`;
}

/**
 * JSON leaves these three as they are, and line readers that follow Unicode (Python's `splitlines`, which some
 * clients use on event streams) would cut an event in two at each.
 */
function oneLine(json: string): string {
  return /[\u0085\u2028\u2029]/.test(json)
    ? json.replace(
        /[\u0085\u2028\u2029]/g,
        (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
      )
    : json;
}
