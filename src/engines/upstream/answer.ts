/**
 * The part of an upstream's answer that has arrived: its text, its tokens and its end.
 *
 * No I/O. Guarantees: only text that is paid for is passed on. `usage` never reports fewer tokens
 * than were passed on. Nothing follows the end.
 */

import type { EngineEvent, FinishReason, GenerateOptions, NoticeKind, Usage } from "../../chat/engine.ts";
import { fieldOf, given } from "../../objects.ts";
import { visibleLine } from "../../visible-text.ts";
import type { Segment } from "../text/held-segments.ts";
import type { AnswerText } from "./answer-text.ts";
import { type Chunk, ChunkReader, type ChunkRules } from "./chunk-reader.ts";
import { doneData } from "./exchange.ts";
import { brokenAnswer } from "./failure.ts";
import { meaningOf } from "./finish-words.ts";
import { type ReportedCounts, saneUsage, type UsageBounds } from "./usage-report.ts";

export interface AnswerOptions {
  prompt: PromptMeasure;
  contextWindow: number;
  rules: ChunkRules;
  text: AnswerText;
  options: GenerateOptions;
}

/** Measures of the prompt, which its reported count is compared with. */
interface PromptMeasure {
  /** The count, or an estimate. Charged if the upstream reports none. */
  tokens: number;
  isCounted: boolean;
  bytes: number;
  /** A report of more is impossible. */
  possibleTokens: number;
}

/** Something odd about an answer. Those with `isOnReceipt` concern its charge. */
export interface AnswerNotice {
  kind: NoticeKind;
  message: string;
  /** Distinguishes notices of one kind. */
  subject?: string;
  isOnReceipt: boolean;
}

/**
 * "unpaid": the event waits for an extension of the budget. "done": the stream is complete.
 * "endedHere": the answer was ended here.
 */
type Taken = "taken" | "unpaid" | "done" | "endedHere";

export class UpstreamAnswer {
  readonly #given: AnswerOptions;
  readonly #text: AnswerText;
  readonly #chunks: ChunkReader;
  #count: TokenCount;
  #maxTokens: number;
  #paidTokens: number;
  #askedTokens: number;
  /** Most tokens that the upstream can generate: those asked for, if the request names them. */
  #possibleTokens: number;
  #finish: FinishReason | null = null;
  /** An event that waits for an extension of the budget. */
  #unpaid: Chunk | null = null;
  #final: Usage | null = null;
  readonly #notices: AnswerNotice[] = [];
  #hasPassedText = false;

  constructor(options: AnswerOptions) {
    const { prompt, rules, text } = options;
    const { maxTokens, paidTokens } = options.options;
    this.#given = options;
    this.#text = text;
    this.#chunks = new ChunkReader(rules);
    this.#count = new TokenCount(prompt);
    this.#maxTokens = maxTokens;
    this.#paidTokens = paidTokens;
    this.#askedTokens = maxTokens;
    this.#possibleTokens = maxTokens;
  }

  get usage(): Usage {
    return this.#final ?? this.#count.soFar(this.#text.thinkingTokens);
  }

  /** True once any text has arrived, thinking included. */
  get hasText(): boolean {
    return this.#count.events > 0;
  }

  /** Events with text or thinking so far. */
  get events(): number {
    return this.#count.events;
  }

  /** The tokens that were asked for. */
  get askedTokens(): number {
    return this.#askedTokens;
  }

  /** Complete at the end of the answer. */
  get notices(): readonly AnswerNotice[] {
    return this.#notices;
  }

  get isUnpaid(): boolean {
    return this.#unpaid !== null;
  }

  get paidTokens(): number {
    return this.#paidTokens;
  }

  /** The reason that the upstream gave for the end; null before. */
  get finish(): FinishReason | null {
    return this.#finish;
  }

  /**
   * Starts over and returns the number of tokens to ask for, at most `tokensMax`. Null: the
   * request has no limit. Tokens that another server reported are forgotten.
   */
  restart(tokensMax: number | null = Number.POSITIVE_INFINITY): number {
    const { prompt, contextWindow } = this.#given;
    this.#askedTokens = Math.min(this.#maxTokens, tokensMax ?? Number.POSITIVE_INFINITY);
    this.#possibleTokens = tokensMax === null ? contextWindow : this.#askedTokens;
    this.#count = new TokenCount(prompt);
    return this.#askedTokens;
  }

  extendBudget(paidTokens: number, isLast: boolean): void {
    this.#paidTokens = Math.max(this.#paidTokens, paidTokens);
    if (isLast) this.#maxTokens = Math.min(this.#maxTokens, this.#paidTokens);
  }

  /**
   * Adds what the event has to `batch`. Throws an `UpstreamFailure` if the event is malformed or
   * contains an error.
   */
  accept(data: string, batch: EngineEvent[]): Taken {
    if (data === doneData) return "done";
    const chunk = this.#unpaid ?? this.#chunks.read(data);
    this.#unpaid = null;
    const { text, thinkingLength, usage, finishReason } = chunk;
    if (text !== "" || thinkingLength > 0) {
      const tokens = this.#count.after(chunk, this.#possibleTokens);
      if (tokens > this.#paidTokens || tokens > this.#maxTokens) {
        if (this.#paidTokens >= this.#maxTokens) return this.#endHere("length", batch);
        this.#unpaid = chunk;
        // Requests an extension that covers this event.
        this.#given.options.onTokens(tokens);
        return "unpaid";
      }
      const added = this.#count.add(chunk);
      if (text !== "") this.#addText(chunk, added, batch);
      if (this.#text.stopped) return this.#endHere("stop", batch);
    } else if (usage !== null) this.#count.report(usage);
    if (finishReason !== null && this.#finish === null) this.#finish = this.#readFinish(finishReason);
    return "taken";
  }

  #readFinish(finishReason: string): FinishReason {
    const word = visibleLine(finishReason.slice(0, wordCharactersMax));
    const meaning = meaningOf(finishReason);
    if (meaning === "failure") throw brokenAnswer(`it ended the answer with the reason ${word}`);
    if (meaning !== "unknown") return meaning;
    const message = `it ended an answer with the unknown reason "${word}", which callers get as "stop"`;
    this.#notices.push({ kind: "unknown_ending", message, subject: word, isOnReceipt: false });
    return "stop";
  }

  /** Reports the tokens made so far. */
  report(): void {
    this.#given.options.onTokens(this.#count.completionTokens);
  }

  /** Returns why an answer ended whose upstream gave no reason, which is odd. */
  implyFinish(): FinishReason {
    const reason = this.#count.completionTokens >= this.#askedTokens ? "length" : "stop";
    const message = `it ended an answer without a reason, which callers get as "${reason}"; it may have been cut`;
    this.#notices.push({ kind: "unknown_ending", message, isOnReceipt: false });
    return reason;
  }

  /**
   * Adds the held text and the end. Returns the upstream's count of prompt tokens, or null if it
   * is missing or impossible.
   */
  complete(reason: FinishReason, batch: EngineEvent[]): number | null {
    this.#add(this.#text.end(reason), batch);
    const { usage, promptTokens, oddTotal } = this.#whole();
    this.#noteOddities(reason, usage, { promptTokens, oddTotal });
    const note = this.#notices.filter(({ isOnReceipt }) => isOnReceipt).map(({ message }) => message);
    this.#final = { ...usage, ...given({ note: note.length === 0 ? null : note.join("; ") }) };
    // The usage may include tokens without text. They are charged too.
    this.#given.options.onTokens(usage.completionTokens);
    batch.push({ type: "end", finishReason: this.#text.stopped ? "stop" : reason });
    return promptTokens;
  }

  #noteOddities(
    reason: FinishReason,
    { completionTokens }: Usage,
    { promptTokens, oddTotal }: { promptTokens: number | null; oddTotal: number | null },
  ): void {
    const { tokens, isCounted, bytes } = this.#given.prompt;
    const note = (kind: NoticeKind, message: string) =>
      void this.#notices.push({ kind, message, isOnReceipt: true });
    if (oddTotal !== null)
      note(
        "odd_total",
        `the server reported a total of ${oddTotal} tokens, which its counts do not add up to`,
      );
    const isStopped = reason === "stop" && this.#given.options.sampling.stop.length > 0;
    if (completionTokens > 0 && !this.#hasPassedText && !isStopped)
      note("no_text", `the server reported ${completionTokens} tokens and sent no text`);
    if (promptTokens === null) return;
    if (promptTokens >= (isCounted ? tokens / 2 : bytes / 16)) return;
    const measure = isCounted ? `${tokens} tokens` : `${bytes} bytes`;
    note("prompt_cut", `the prompt has ${measure}, and the server reported ${promptTokens} tokens`);
  }

  /** Makes the usage final. The upstream's count may have arrived before its end. */
  freeze(): void {
    this.#final ??= this.#whole().usage;
  }

  /** The count of the whole answer. The budget may have been lowered meanwhile. */
  #whole() {
    const { usage, ...others } = this.#count.final(this.#possibleTokens, this.#text.thinkingTokens);
    const completionTokens = Math.min(usage.completionTokens, this.#given.options.maxTokens);
    const reasoningTokens = Math.min(usage.reasoningTokens, completionTokens);
    return { usage: { ...usage, completionTokens, reasoningTokens }, ...others };
  }

  /** Ends the answer here, although the upstream would continue. */
  #endHere(finishReason: FinishReason, batch: EngineEvent[]): "endedHere" {
    if (finishReason === "length") this.#add(this.#text.end(finishReason), batch);
    const usage = this.#count.soFar(this.#text.thinkingTokens);
    this.#final = finishReason === "stop" ? { ...usage, endedHere: true } : usage;
    // Text that was held may have completed a stop sequence.
    const reason = this.#text.stopped ? "stop" : finishReason;
    batch.push({ type: "end", finishReason: reason, isCut: reason === "length" });
    return "endedHere";
  }

  #addText({ text, thinkingLength, logprobs }: Chunk, tokens: number, batch: EngineEvent[]): void {
    if (logprobs === null && this.#text.passes(text)) {
      this.#hasPassedText = true;
      batch.push({ type: "text", text });
    } else this.#add(this.#text.push(text, tokens, thinkingLength > 0 ? [] : (logprobs ?? [])), batch);
  }

  #add(segments: readonly Segment[], batch: EngineEvent[]): void {
    const hasLogprobs = this.#given.rules.topLogprobs !== null;
    for (const { text, logprobs } of segments) {
      if (text === "") continue;
      this.#hasPassedText = true;
      batch.push(hasLogprobs ? { type: "text", text, logprobs } : { type: "text", text });
    }
  }
}

const wordCharactersMax = 40;
/** No tokenizer reaches this average over a whole answer. */
const charactersPerToken = 8;

/**
 * Counts the tokens of an answer.
 *
 * If the upstream reports a count with each event, that count is used. Otherwise each event with
 * text counts as one token, or as many as it has log-probabilities, and at least as one per eight
 * characters of the answer. Our count is too high only if a server splits tokens.
 */
class TokenCount {
  readonly #prompt: PromptMeasure;
  /** Events with text or thinking, or their log-probabilities if there are more. */
  #events = 0;
  /** Without thinking, which some servers report beside the completion tokens. */
  #characters = 0;
  #thinkingLength = 0;
  #completionTokens = 0;
  /** Completion tokens that arrived in a field for thinking. */
  #thoughtTokens = 0;
  #reported: unknown = null;
  /** The upstream's counts in the last event, if it reports them with each. */
  #running: ReportedCounts | null = null;
  /** The same with the event that `after` was called with. */
  #nextEvents = 0;
  #nextTokens = 0;
  #nextRunning: ReportedCounts | null = null;

  constructor(prompt: PromptMeasure) {
    this.#prompt = prompt;
  }

  get events(): number {
    return this.#events;
  }

  get completionTokens(): number {
    return this.#completionTokens;
  }

  /** Returns how many tokens there are with this event; `add` it or leave it. */
  after(chunk: Chunk, completionTokensMax: number): number {
    const events = this.#events + Math.max(1, chunk.logprobs?.length ?? 0);
    const characters = this.#characters + chunk.text.length;
    this.#nextEvents = events;
    const running =
      chunk.usage === null ? null : this.#runningOf(chunk.usage, { completionTokensMax, events, characters });
    this.#nextRunning = running ?? this.#running;
    const all = characters + this.#thinkingLength + chunk.thinkingLength;
    const least = Math.min(completionTokensMax, Math.floor(all / charactersPerToken));
    this.#nextTokens = running?.completionTokens ?? Math.max(this.#completionTokens, events, least);
    return this.#nextTokens;
  }

  /**
   * Counts the event that `after` was called with last. Returns how many tokens that makes more.
   */
  add(chunk: Chunk): number {
    const added = this.#nextTokens - this.#completionTokens;
    this.#events = this.#nextEvents;
    this.#characters += chunk.text.length;
    this.#thinkingLength += chunk.thinkingLength;
    this.#completionTokens = this.#nextTokens;
    this.#running = this.#nextRunning;
    // A count before more text is not the count of the whole answer.
    this.#reported = chunk.usage;
    if (chunk.thinkingLength > 0 && chunk.text === "") this.#thoughtTokens += added;
    return added;
  }

  /** An object without counts does not replace one that has them. */
  report(usage: unknown): void {
    if (this.#reported === null || fieldOf(usage, "completion_tokens") !== undefined) this.#reported = usage;
  }

  /** `taggedTokens`: tokens of thinking between tags. */
  soFar(taggedTokens: number): Usage {
    const { promptTokens, cachedTokens } = this.#running ?? {
      promptTokens: this.#prompt.tokens,
      cachedTokens: 0,
    };
    const completionTokens = this.#completionTokens;
    const reasoningTokens = Math.min(completionTokens, this.#thoughtTokens + taggedTokens);
    const estimated = this.#running === null;
    return { promptTokens, cachedTokens, completionTokens, reasoningTokens, estimated };
  }

  /**
   * Returns the usage of a complete answer. `promptTokens` is null if the upstream's counts were
   * not used.
   */
  final(
    possibleTokens: number,
    taggedTokens: number,
  ): { usage: Usage; promptTokens: number | null; oddTotal: number | null } {
    const own = this.soFar(taggedTokens);
    if (this.#reported === null) return { usage: own, promptTokens: null, oddTotal: null };
    const sane = saneUsage(this.#reported, {
      promptTokensMax: this.#prompt.possibleTokens,
      completionTokensMax: possibleTokens,
      events: this.#events,
      characters: this.#characters,
    });
    if (sane === null) {
      const usage = { ...own, estimated: true, absurd: true };
      return { usage, promptTokens: null, oddTotal: null };
    }
    const { oddTotal, ...counts } = sane;
    const reasoningTokens = Math.min(counts.completionTokens, counts.reasoningTokens || own.reasoningTokens);
    const usage = { ...counts, reasoningTokens, estimated: false };
    return { usage, promptTokens: counts.promptTokens, oddTotal };
  }

  /**
   * Returns the upstream's counts in an event, or null if they are missing, impossible or lower
   * than before.
   */
  #runningOf(usage: unknown, bounds: Omit<UsageBounds, "promptTokensMax">): ReportedCounts | null {
    const counts = saneUsage(usage, { ...bounds, promptTokensMax: this.#prompt.possibleTokens });
    return counts !== null && counts.completionTokens >= this.#completionTokens ? counts : null;
  }
}
