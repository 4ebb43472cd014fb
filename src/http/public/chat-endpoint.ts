/**
 * `POST /v1/chat/completions`, once key, size and media type have been checked. Parses the body,
 * runs the pipeline of chat/generate.ts, and sends the answer as a stream or in one piece. A
 * failure before the first byte of a stream is an HTTP status, a later failure is an error event.
 */

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type AnswerEvent, type GenerateDependencies, generate } from "../../chat/generate.ts";
import { invariant, Refusal } from "../../errors.ts";
import type { Rates } from "../../ledger/rate-limits.ts";
import { limits } from "../../limits/limits.ts";
import { Turns } from "../../limits/turns.ts";
import { dropIfIdle } from "../connections.ts";
import { writeHead } from "../error-response.ts";
import { ChunkEncoder } from "../openai-format/chunk-encoder.ts";
import { errorBody } from "../openai-format/error-body.ts";
import { type ParsedRequest, parseRequest, type RequestLimits } from "../openai-format/request.ts";
import {
  type AnswerHead,
  completionJson,
  doneEvent,
  errorEvent,
  logprobJson,
  paidComment,
  paidHeaders,
  rateHeaders,
  type WholeAnswer,
} from "../openai-format/response.ts";
import { AnswerStream, type StreamTimes } from "./answer-stream.ts";
import { logRefusal, publicRefusalOf } from "./error-handler.ts";
import { callerOf, contextOf, type RequestContext } from "./request-context.ts";
import type { RunningRequest } from "./running-request.ts";
import type { RunningRequests } from "./running-requests.ts";
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
    const body = uploadOf(context).takeArrived(raw);
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
    // Node has parsed the headers, and parses a body that came with them in this turn.
    let isLate = false;
    const nextTurn = setImmediate(() => {
      isLate = true;
    });
    const body = await uploadOf(context).read(request.raw);
    clearImmediate(nextTurn);
    // A client can hold its body back until it has other rights, or none.
    if (isLate && context.callerNow !== null) context.record.caller = await context.callerNow();
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
    const stream = new AnswerStream(reply.raw, sendHeaders, this.#options, run.signal);
    // The first chunk is sent with the first text or the end.
    let prelude = chunks.first();
    let hasEnded = false;
    const cost = () => (style === "stream with cost" ? costFieldsOf(context) : "");
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
            const { charge } = context.record;
            const isShown = parsed.includeUsage && style === "as asked";
            const paid = isShown && charge !== null ? paidComment(charge) : "";
            last = chunks.last(event.finishReason) + usage + paid + doneEvent;
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
    const { charge } = context.record;
    // Absent if the store is away, and records the charge later.
    if (charge !== null) reply.headers(paidHeaders(charge));
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
function costFieldsOf({ record: { charge } }: RequestContext): string {
  return `"cost_micro":${charge?.costMicro ?? null},"shortfall_micro":${charge?.shortfallMicro ?? null}`;
}

function answerHeaders(context: RequestContext, rates: Rates): Record<string, string> {
  return { "openai-processing-ms": String(Math.ceil(context.record.elapsedMs())), ...rateHeaders(rates) };
}
