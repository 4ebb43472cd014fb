/**
 * `POST /v1/chat/completions`, once key, size and media type have been checked. Parses the body,
 * runs the pipeline of chat/generate.ts, and sends the answer as a stream or in one piece. A
 * failure before the first byte of a stream is an HTTP status, a later failure is an error event.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type AnswerEvent, type GenerateDependencies, generate } from "../../chat/generate.ts";
import { invariant } from "../../errors.ts";
import type { Rates } from "../../ledger/operations.ts";
import { writeHead } from "../error-response.ts";
import { errorBody } from "../openai-format/error-body.ts";
import { type ParsedRequest, parseRequest, type RequestLimits } from "../openai-format/request.ts";
import {
  type AnswerHead,
  ChunkEncoder,
  completionJson,
  doneEvent,
  errorEvent,
  logprobJson,
  rateHeaders,
  type WholeAnswer,
} from "../openai-format/response.ts";
import { BodyTurns } from "../request-body.ts";
import { logRefusal, publicRefusalOf } from "./error-handler.ts";
import { dropIfIdle, EventStream, type StreamTimes } from "./event-stream.ts";
import { callerOf, contextOf, type RequestContext } from "./request-context.ts";
import type { RunningRequest, RunningRequests } from "./running-requests.ts";

export interface ChatOptions extends StreamTimes, RequestLimits {}

/** One request being answered. */
interface Exchange {
  reply: FastifyReply;
  context: RequestContext;
  head: AnswerHead;
  batches: AsyncGenerator<readonly AnswerEvent[], void, undefined>;
  run: RunningRequest;
}

export function chatHandler(
  service: GenerateDependencies,
  running: RunningRequests,
  logger: Logger,
  options: ChatOptions,
) {
  const turns = new BodyTurns();

  /** Returns null if the client left before its turn. */
  async function receive(request: FastifyRequest, context: RequestContext): Promise<ParsedRequest | null> {
    const { upload } = context;
    invariant(upload !== null, "a body is admitted before it is read");
    const body = await upload.read(request.raw);
    const parse = () => context.measure(() => parseRequest(body, options));
    if (turns.isFree) return turns.run(parse);
    const { accountId } = callerOf(request);
    return await turns.wait(accountId, () => (request.raw.socket.destroyed ? null : parse()));
  }

  return async function answer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const context = contextOf(request);
    const created = Math.floor(Date.now() / 1000);
    const parsed = await running.need(request.raw, reply.raw, () => receive(request, context));
    if (parsed === null) return context.finishUnanswered(reply);
    const run = running.start(request.raw, reply.raw);
    const head = { id: `chatcmpl-${request.id}`, created, model: parsed.chat.model };
    try {
      context.record.parsed(parsed.chat);
      const batches = generate(service, callerOf(request), parsed.chat, context.record, run.signal);
      const exchange: Exchange = { reply, context, head, batches, run };
      if (parsed.chat.stream) await sendStream(exchange, parsed, running, logger, options);
      else await sendWhole(exchange, parsed, options);
      if (run.gone) context.finishUnanswered(reply);
    } finally {
      run.written();
    }
  };
}

async function sendStream(
  { reply, context, head, batches, run }: Exchange,
  parsed: ParsedRequest,
  running: RunningRequests,
  logger: Logger,
  options: ChatOptions,
): Promise<void> {
  const chunks = new ChunkEncoder(head, parsed);
  let rates: Rates = {};
  const sendHeaders = () => {
    writeHead(reply, 200, {
      ...answerHeaders(context, rates),
      ...running.connectionHeaders(),
      "content-type": "text/event-stream",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    });
  };
  const stream = new EventStream(reply.raw, sendHeaders, options, run.signal);
  let prelude = chunks.first();
  let ended = false;
  try {
    for await (const batch of batches) {
      let text = "";
      let last = "";
      for (const event of batch) {
        if (event.type === "text") text += chunks.text(event.text, event.logprobs);
        else if (event.type === "accepted") {
          context.accept();
          rates = event.rates;
        } else {
          const usage = parsed.includeUsage ? chunks.usage(event.usage) : "";
          last = chunks.last(event.finishReason) + usage + doneEvent;
        }
      }
      // After the client has left, the loop only reads on until the request is settled.
      if (run.gone) continue;
      if (text !== "") {
        stream.send(prelude + text);
        prelude = "";
        context.record.firstTokenMs ??= context.record.elapsedMs();
        const room = stream.room();
        if (room !== null) await room;
      } else if (last !== "") {
        stream.end(prelude + last);
        ended = true;
        context.finish(200, null);
      } else stream.open();
    }
    invariant(ended || run.gone, "every answer has an end, unless its client left");
  } catch (error) {
    if (!stream.begun) throw error;
    const refusal = publicRefusalOf(error);
    logRefusal(logger, refusal, context.record.requestId);
    context.finish(200, refusal.code);
    // Without [DONE], so that clients know that the answer is incomplete.
    if (!run.gone) stream.end(errorEvent(errorBody(refusal)));
  } finally {
    stream.close();
  }
}

async function sendWhole(
  { reply, context, head, batches, run }: Exchange,
  { chat }: ParsedRequest,
  options: ChatOptions,
): Promise<void> {
  const logprobsWanted = chat.sampling.topLogprobs !== undefined;
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
        whole = { text, finishReason, usage, ...(logprobsWanted ? { logprobs } : {}) };
      }
    }
  }
  if (run.gone) return;
  invariant(whole !== null, "every answer has an end, unless its client left");
  context.finish(200, null);
  reply.headers(answerHeaders(context, rates)).type("application/json; charset=utf-8");
  reply.send(completionJson(head, whole));
  dropIfIdle(reply.raw, options.streamIdleMs);
}

function answerHeaders(context: RequestContext, rates: Rates): Record<string, string> {
  return { "openai-processing-ms": String(Math.ceil(context.record.elapsedMs())), ...rateHeaders(rates) };
}
