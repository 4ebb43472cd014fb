/**
 * `POST /v1/chat/completions`, once key, size and media type have been checked. Parses the body,
 * runs the pipeline of chat/generate.ts, and sends the answer as a stream or in one piece. A
 * failure before the first byte of a stream is an HTTP status, a later failure is an error event.
 */

import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type AnswerEvent, type GenerateDependencies, generate } from "../../chat/generate.ts";
import { invariant, Refusal } from "../../errors.ts";
import type { Rates } from "../../ledger/operations.ts";
import { limits } from "../../limits/limits.ts";
import { Turns } from "../../limits/turns.ts";
import { writeHead } from "../error-response.ts";
import { errorBody } from "../openai-format/error-body.ts";
import { type ParsedRequest, parseRequest, type RequestLimits } from "../openai-format/request.ts";
import {
  type AnswerHead,
  ChunkEncoder,
  completionJson,
  doneEvent,
  errorEvent,
  keepAliveComment,
  logprobJson,
  rateHeaders,
  type WholeAnswer,
} from "../openai-format/response.ts";
import { logRefusal, publicRefusalOf } from "./error-handler.ts";
import {
  callerOf,
  contextOf,
  type RequestContext,
  type RunningRequest,
  type RunningRequests,
} from "./running-requests.ts";
import type { Upload } from "./uploads.ts";

export interface ChatOptions extends StreamTimes, RequestLimits {}

/**
 * `as asked`: the format of OpenAI. `stream with cost`: always a stream, whose last chunk has the
 * usage and what the ledger charged.
 */
export type AnswerStyle = "as asked" | "stream with cost";

/** An answer and the request that it is for. */
interface AnswerToSend {
  parsed: ParsedRequest;
  style: AnswerStyle;
  reply: FastifyReply;
  context: RequestContext;
  head: AnswerHead;
  batches: AsyncGenerator<readonly AnswerEvent[], void, undefined>;
  run: RunningRequest;
}

export class ChatEndpoint {
  readonly #dependencies: GenerateDependencies;
  readonly #running: RunningRequests;
  readonly #logger: Logger;
  #options: ChatOptions;
  /**
   * An ordinary body takes 0.01 to 0.1 ms, so hundreds of them never wait. A body of 4 MiB takes 5
   * to 30 ms.
   */
  readonly #turns = new Turns(limits.bodyTurn, { waiting: limits.waitingBodies });

  constructor(
    dependencies: GenerateDependencies,
    running: RunningRequests,
    logger: Logger,
    options: ChatOptions,
  ) {
    this.#dependencies = dependencies;
    this.#running = running;
    this.#logger = logger;
    this.#options = options;
  }

  /** Changes the limits of requests that arrive from now on. */
  configure(options: ChatOptions): void {
    this.#options = options;
  }

  /** Reads and parses the request, generates the answer, and sends it. */
  async handle(request: FastifyRequest, reply: FastifyReply, style: AnswerStyle): Promise<void> {
    const context = contextOf(request);
    const created = Math.floor(Date.now() / 1000);
    const parsed =
      this.#parseArrived(request, context, style) ??
      (await this.#running.waitUnlessGone(request.raw, reply.raw, () =>
        this.#readAndParse(request, context, style),
      ));
    if (parsed === null) return context.finishUnanswered(reply);
    const { chat } = parsed;
    const run = this.#running.start(request.raw, reply.raw, context.record);
    const head = { id: `chatcmpl-${request.id}`, created, model: chat.model };
    try {
      context.record.parsed(chat);
      const batches = generate(this.#dependencies, callerOf(request), chat, context.record, run.signal);
      const answer = { parsed, style, reply, context, head, batches, run };
      if (chat.stream) await this.#sendStream(answer);
      else await this.#sendWhole(answer);
      if (run.gone) context.finishUnanswered(reply);
    } finally {
      run.written();
    }
  }

  /** Parses a body that has arrived with its headers. Returns null if it must be awaited. */
  #parseArrived({ raw }: FastifyRequest, context: RequestContext, style: AnswerStyle): ParsedRequest | null {
    if (!this.#turns.isFree || this.#running.draining || raw.socket.destroyed) return null;
    const body = uploadOf(context).arrived(raw);
    return body === null ? null : this.#turns.run(() => this.#parse(body, context, style));
  }

  #parse(body: Uint8Array, context: RequestContext, style: AnswerStyle): ParsedRequest {
    return context.measure(() => inStyle(style, parseRequest(body, this.#options)));
  }

  /** Returns null if the client left before its turn. */
  async #readAndParse(
    request: FastifyRequest,
    context: RequestContext,
    style: AnswerStyle,
  ): Promise<ParsedRequest | null> {
    const body = await uploadOf(context).read(request.raw);
    const parse = () => this.#parse(body, context, style);
    if (this.#turns.isFree) return this.#turns.run(parse);
    const { accountId } = callerOf(request);
    const parsed = this.#turns.wait(accountId, () => (request.raw.socket.destroyed ? null : parse()));
    if (parsed !== null) return await parsed;
    throw new Refusal(
      "overloaded",
      "Too many large requests have arrived at once. Send the request again in a moment.",
      { retryAfterSeconds: 1 },
    );
  }

  async #sendStream({ parsed, style, reply, context, head, batches, run }: AnswerToSend): Promise<void> {
    const chunks = new ChunkEncoder(head, parsed);
    let rates: Rates = {};
    const sendHeaders = () => {
      writeHead(reply, 200, {
        ...answerHeaders(context, rates),
        ...this.#running.connectionHeaders(),
        "content-type": "text/event-stream",
        "cache-control": style === "as asked" ? "no-cache" : "no-store",
        "x-accel-buffering": "no",
      });
    };
    const stream = new EventStream(reply.raw, sendHeaders, this.#options, run.signal);
    // The first chunk is sent with the first text or the end.
    let prelude = chunks.first();
    let hasEnded = false;
    const cost = () => (style === "stream with cost" ? costOf(context) : "");
    try {
      for await (const batch of batches) {
        let text = "";
        let last = "";
        for (const event of batch) {
          if (event.type === "text") text += chunks.text(event.text, event.logprobs);
          else if (event.type === "accepted") {
            context.accept();
            rates = event.rates;
            if (!run.gone) stream.open();
          } else {
            const usage = parsed.includeUsage ? chunks.usage(event.usage, cost()) : "";
            last = chunks.last(event.finishReason) + usage + doneEvent;
          }
        }
        // After the client has left, the loop only reads on until the request is settled.
        if (run.gone) continue;
        if (text !== "") context.record.firstTokenMs ??= context.record.elapsedMs();
        if (last !== "") {
          stream.end(prelude + text + last);
          hasEnded = true;
          context.finish(200, null);
        } else if (text !== "") {
          stream.send(prelude + text);
          prelude = "";
          const room = stream.room();
          if (room !== null) await room;
        }
      }
      invariant(hasEnded || run.gone, "every answer has an end, unless its client left");
    } catch (error) {
      if (!stream.begun) throw error;
      const refusal = publicRefusalOf(error);
      logRefusal(this.#logger, refusal, context.record.requestId);
      context.finish(200, refusal.code);
      // Without [DONE], so that clients know that the answer is incomplete.
      if (!run.gone) stream.end(errorEvent(errorBody(refusal), cost()));
    } finally {
      stream.close();
    }
  }

  async #sendWhole({ parsed, reply, context, head, batches, run }: AnswerToSend): Promise<void> {
    const hasLogprobs = parsed.chat.sampling.logprobs === true;
    let rates: Rates = {};
    let text = "";
    const logprobs: string[] = [];
    let whole: WholeAnswer | null = null;
    for await (const batch of batches) {
      for (const event of batch) {
        if (event.type === "accepted") {
          context.accept();
          rates = event.rates;
        } else if (event.type === "text") {
          text += event.text;
          for (const logprob of event.logprobs ?? []) logprobs.push(logprobJson(logprob));
        } else {
          const { finishReason, usage } = event;
          whole = { text, finishReason, usage, ...(hasLogprobs ? { logprobs } : {}) };
        }
      }
    }
    if (run.gone) return;
    invariant(whole !== null, "every answer has an end, unless its client left");
    context.finish(200, null);
    reply.headers(answerHeaders(context, rates)).type("application/json; charset=utf-8");
    reply.send(completionJson(head, whole));
    dropIfIdle(reply.raw, this.#options.streamIdleMs);
  }
}

function uploadOf({ upload }: RequestContext): Upload {
  invariant(upload !== null, "a body is admitted before it is read");
  return upload;
}

function inStyle(style: AnswerStyle, parsed: ParsedRequest): ParsedRequest {
  if (style === "as asked") return parsed;
  if (!parsed.chat.stream) {
    throw new Refusal("invalid_value", "stream must be true: answers of the portal are streams.", {
      param: "stream",
    });
  }
  return { ...parsed, includeUsage: true };
}

/**
 * Returns JSON fields: the charge in micro-credits, and the part of it that the account could not
 * pay. Null if the store is away, and records the charge later.
 */
function costOf({ record: { charge } }: RequestContext): string {
  return `"cost_micro":${charge?.cost ?? null},"shortfall_micro":${charge?.shortfall ?? null}`;
}

function answerHeaders(context: RequestContext, rates: Rates): Record<string, string> {
  return { "openai-processing-ms": String(Math.ceil(context.record.elapsedMs())), ...rateHeaders(rates) };
}

/**
 * Longer pending text is written at once, so that a burst of events is not buffered before the
 * client's speed is known.
 */
const pendingCharactersMax = 16_384;

export interface StreamTimes {
  /** Time without a byte after which a comment is sent. */
  keepAliveMs: number;
  /** Time after which a client that reads nothing is dropped. */
  streamIdleMs: number;
}

/**
 * Writes the events of one streamed answer to its connection, no faster than the client reads.
 * Sends a comment after each keep-alive time without an event, and drops a client that reads
 * nothing for the idle time.
 *
 * Nothing is sent before `open` is called. The headers are sent with the first event or comment.
 * All events of one turn of the event loop go out in one write, because a write costs more than
 * all other work for a token. Events share one timer.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #sendHeaders: () => void;
  readonly #times: StreamTimes;
  readonly #signal: AbortSignal;
  #begun = false;
  /** Events that have not been written yet. */
  #pending = "";
  #quiet: NodeJS.Timeout | null = null;

  /** `sendHeaders` is called once, before the first byte of the body. */
  constructor(response: ServerResponse, sendHeaders: () => void, times: StreamTimes, signal: AbortSignal) {
    this.#response = response;
    this.#sendHeaders = sendHeaders;
    this.#times = times;
    this.#signal = signal;
  }

  /** True once the headers have been sent. From then on a failure must be an error event. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Starts the keep-alive clock. */
  open(): void {
    this.#quiet = setTimeout(() => this.#breakSilence(), this.#times.keepAliveMs);
  }

  /** Sends complete events. Await `room` before sending more. */
  send(events: string): void {
    this.#begin();
    if (this.#pending === "") process.nextTick(this.#write);
    this.#pending += events;
    if (this.#pending.length >= pendingCharactersMax) this.#write();
    this.#quiet?.refresh();
  }

  readonly #write = (): void => {
    const events = this.#pending;
    this.#pending = "";
    if (events !== "" && !this.#response.destroyed) this.#response.write(events);
  };

  /**
   * Returns null if the client keeps up, otherwise a promise that resolves when it has caught up
   * or left.
   */
  room(): Promise<void> | null {
    // The response is checked each time, because it may fill after a call and drain before the
    // next one.
    if (!this.#response.writableNeedDrain || this.#signal.aborted) return null;
    return new Promise((resolve) => {
      const { socket } = this.#response;
      const done = () => {
        this.#response.off("drain", done);
        this.#signal.removeEventListener("abort", done);
        socket?.setTimeout(0);
        resolve();
      };
      this.#response.once("drain", done);
      this.#signal.addEventListener("abort", done, { once: true });
      // Node destroys the socket only if no part of the pending write has been sent in this time.
      socket?.setTimeout(this.#times.streamIdleMs);
    });
  }

  /** Sends the last events and ends the answer. */
  end(events: string): void {
    this.#begin();
    this.close();
    this.#response.end(this.#pending + events);
    this.#pending = "";
    dropIfIdle(this.#response, this.#times.streamIdleMs);
  }

  /** Stops the clock. Idempotent. */
  close(): void {
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    this.#quiet = null;
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#sendHeaders();
  }

  #breakSilence(): void {
    // With a full buffer the stream is not silent: the client still has data to read.
    if (this.#response.writableNeedDrain) this.#quiet?.refresh();
    else if (!this.#signal.aborted) this.send(keepAliveComment);
  }
}

/**
 * Sets the idle time for an answer that has ended but may not have been read. Once it is flushed,
 * Node sets its own.
 */
function dropIfIdle(response: ServerResponse, streamIdleMs: number): void {
  if (!response.writableFinished) response.socket?.setTimeout(streamIdleMs);
}
