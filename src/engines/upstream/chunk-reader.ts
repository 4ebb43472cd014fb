/**
 * Reads the events of one upstream's stream. Only the fields of `Chunk` are read, and each is
 * checked.
 *
 * Pure. Throws an `UpstreamFailure` if an event is not a JSON object, has too many values or
 * contains an error.
 */
import type { TokenLogprob } from "../../chat/engine.ts";
import { exceededSize, foreignKeysMax } from "../../json-size.ts";
import { fieldOf, isRecord } from "../../objects.ts";
import { brokenAnswer, failureOfErrorEvent, UpstreamFailure } from "./failure.ts";
import { usageIn } from "./usage-report.ts";

export interface Chunk {
  text: string;
  /** Characters of the model's thinking, which is never passed on; 0 without thinking. */
  thinkingLength: number;
  logprobs: TokenLogprob[] | null;
  finishReason: string | null;
  /** The upstream's own object, or null if the event has none. */
  usage: unknown;
}

export interface ChunkRules {
  /** Fields that may contain thinking. */
  reasoningFields: readonly string[];
  /** Number of alternatives in the request, or null for no log-probabilities. */
  topLogprobs: number | null;
}

/**
 * Most attempts in a row to learn a pattern. Some servers change more than the text from event to
 * event.
 */
const lessonsMax = 4;
/** Text that a new pattern is checked with. No JSON escape starts with its first letter. */
const probe = "inkwell";
const quote = 0x22;
const backslash = 0x5c;
const blank = 0x20;

/**
 * Reads the events of one stream. Most events differ only in their text. The reader therefore
 * parses the first events as JSON, and compares the bytes around the text of later ones, which
 * takes a tenth of the time.
 */
export class ChunkReader {
  readonly #rules: ChunkRules;
  #before = "";
  #behind = "";
  #lessons = 0;

  constructor(rules: ChunkRules) {
    this.#rules = rules;
    // Log-probabilities differ in each event.
    if (rules.topLogprobs !== null) this.#lessons = lessonsMax;
  }

  read(data: string): Chunk {
    const text = this.#textOf(data);
    if (text !== null) {
      this.#lessons = 0;
      return { text, thinkingLength: 0, logprobs: null, finishReason: null, usage: null };
    }
    const chunk = readChunk(data, this.#rules);
    if (this.#lessons < lessonsMax && isPlain(chunk)) this.#learn(data, chunk.text);
    return chunk;
  }

  /**
   * Returns the text of an event that matches the pattern, or null. JSON does not escape a text
   * without quotes, backslashes and control characters, so a parser would return the same text.
   */
  #textOf(data: string): string | null {
    const from = this.#before.length;
    const to = data.length - this.#behind.length;
    // Two slices are compared faster than by `startsWith` and `endsWith`.
    if (from === 0 || to <= from || data.slice(0, from) !== this.#before) return null;
    return data.slice(to) === this.#behind && isPlainText(data, from, to) ? data.slice(from, to) : null;
  }

  #learn(data: string, text: string): void {
    this.#lessons += 1;
    const at = /"content":\s*"/.exec(data);
    if (at === null || text === probe) return;
    const from = at.index + at[0].length;
    if (!data.startsWith(`${text}"`, from) || !isPlainText(text, 0, text.length)) return;
    const before = data.slice(0, from);
    const behind = data.slice(from + text.length);
    if (!isPlaceOfText(before, behind, this.#rules)) return;
    this.#before = before;
    this.#behind = behind;
  }
}

/** Whether this part of an event has no quote, backslash or control character. */
function isPlainText(data: string, from: number, to: number): boolean {
  for (let at = from; at < to; at += 1) {
    const unit = data.charCodeAt(at);
    if (unit < blank || unit === quote || unit === backslash) return false;
  }
  return true;
}

function isPlaceOfText(before: string, behind: string, rules: ChunkRules): boolean {
  try {
    const chunk = readChunk(before + probe + behind, rules);
    return chunk.text === probe && isPlain(chunk);
  } catch (error) {
    if (error instanceof UpstreamFailure) return false;
    throw error;
  }
}

/** Text and nothing else. */
function isPlain({ text, thinkingLength, logprobs, finishReason, usage }: Chunk): boolean {
  return text !== "" && thinkingLength === 0 && logprobs === null && finishReason === null && usage === null;
}

function readChunk(data: string, rules: ChunkRules): Chunk {
  const event = parsed(data);
  const isError = (fieldOf(event, "error") ?? null) !== null || fieldOf(event, "object") === "error";
  if (isError) throw failureOfErrorEvent(event);
  const choices = fieldOf(event, "choices");
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  const delta = deltaOf(choice);
  const { text, thinkingLength } = readContent(fieldOf(delta, "content"));
  const refusal = fieldOf(delta, "refusal");
  const finishReason = fieldOf(choice, "finish_reason");
  return {
    // OpenAI's models refuse in a field of its own.
    text: isText(refusal) ? text + refusal : text,
    // Some servers send the same in two fields.
    thinkingLength: Math.max(
      thinkingLength,
      ...rules.reasoningFields.map((name) => lengthOf(fieldOf(delta, name))),
    ),
    logprobs: rules.topLogprobs === null ? null : readLogprobs(choice, rules.topLogprobs),
    // Some servers have an empty one in every event but the last.
    finishReason: isText(finishReason) ? finishReason : null,
    usage: usageIn(event, choice),
  };
}

/** Some servers send whole messages, or texts as for a completion, in place of a difference. */
function deltaOf(choice: unknown): unknown {
  const delta = fieldOf(choice, "delta");
  if (isRecord(delta)) return delta;
  return fieldOf(choice, "message") ?? { content: fieldOf(choice, "text") };
}

function parsed(data: string): unknown {
  const exceeded = data.length > foreignKeysMax ? exceededSize(Buffer.from(data), foreignKeysMax) : null;
  if (exceeded !== null) throw brokenAnswer(`an event of ${data.length} characters has too many ${exceeded}`);
  try {
    const event: unknown = JSON.parse(data);
    if (typeof event === "object" && event !== null && !Array.isArray(event)) return event;
  } catch {
    // The parser's message quotes the answer, so it is not logged.
  }
  throw brokenAnswer(`an event of ${data.length} characters is not a JSON object`);
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/**
 * Reads a string, or a list of parts as Mistral sends them. Other parts than text and thinking are
 * ignored.
 */
function readContent(content: unknown): { text: string; thinkingLength: number } {
  if (!Array.isArray(content)) return { text: isText(content) ? content : "", thinkingLength: 0 };
  const partsOf = (type: string) => content.filter((part: unknown) => fieldOf(part, "type") === type);
  const texts = partsOf("text").map((part: unknown) => fieldOf(part, "text"));
  const thoughts = partsOf("thinking").map((part: unknown) => thoughtIn(fieldOf(part, "thinking")));
  return {
    text: texts.filter(isText).join(""),
    thinkingLength: thoughts.reduce((sum, length) => sum + length, 0),
  };
}

/** An empty part only marks the end of the thinking. */
function thoughtIn(thinking: unknown): number {
  if (!Array.isArray(thinking)) return lengthOf(thinking);
  return thinking.reduce(
    (sum: number, part: unknown) => sum + Math.max(1, lengthOf(fieldOf(part, "text"))),
    0,
  );
}

function lengthOf(text: unknown): number {
  return isText(text) ? text.length : 0;
}

/** Log-probability that some servers report for an impossible token. */
const impossible = -9999;

function readLogprobs(choice: unknown, alternatives: number): TokenLogprob[] {
  const content = fieldOf(fieldOf(choice, "logprobs"), "content");
  if (!Array.isArray(content)) return [];
  return content.map((entry: unknown) => {
    const top = fieldOf(entry, "top_logprobs");
    const others: unknown[] = Array.isArray(top) ? top.slice(0, alternatives) : [];
    return { ...readLogprob(entry), topLogprobs: others.map(readLogprob) };
  });
}

function readLogprob(entry: unknown): { token: string; logprob: number; bytes: number[] } {
  const given = fieldOf(entry, "token");
  const token = isText(given) ? given.toWellFormed() : "";
  const logprob = fieldOf(entry, "logprob");
  const bytes = fieldOf(entry, "bytes");
  return {
    token,
    logprob: typeof logprob === "number" && Number.isFinite(logprob) ? logprob : impossible,
    bytes: isBytes(bytes) ? bytes : [...Buffer.from(token)],
  };
}

function isBytes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((byte) => Number.isInteger(byte) && byte >= 0 && byte <= 255);
}
