/**
 * Traces by the GenAI conventions of OpenTelemetry: one span for each chat request, inside the caller's trace where the
 * request names one (`traceparent`), and below it one for each stage of a request that was charged. A request that was
 * refused is the one span.
 *
 * The spans are made when a request is over, from what the server and the ledger reported of it; nothing waits for
 * them. Those of the stages follow later where the charge does, because the store had stayed away. All are queued, up to
 * a bound, and sent in batches; what cannot be sent is lost and counted. In them is neither a key nor anything that people
 * or models wrote, stop sequences and unknown models' names included.
 *
 * Loaded only where a collector is configured; nothing else of Inkwell imports OpenTelemetry.
 */
import {
  type Attributes,
  type AttributeValue,
  type Context,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
} from "@opentelemetry/sdk-trace-base";
import type { Logger } from "pino";
import type { Receipt } from "../chat/generate.ts";
import type { ChatRequest } from "../chat/request.ts";
import type { TracingConfig } from "../config/tracing.ts";
import type { ErrorCode } from "../errors.ts";
import { chatPath } from "../http/paths.ts";
import type { FinishedRequest } from "../http/request-context.ts";
import type { Ending } from "../ledger/rows.ts";
import { microPerCredit } from "../units.ts";

export interface TracingDependencies {
  /** Of the service. */
  version: string;
  logger: Logger;
  /** Spans that were dropped, because the queue was full or the collector did not take them. */
  onLost(spans: number): void;
}

/** Finished spans that wait to be sent: some 800 requests. */
const queueSpansMax = 4096;
/** Written as JSON at a stretch, for some 5 ms; and the exporter sends at most 30 batches side by side. */
const batchSpansMax = 256;
const batchEveryMs = 1000;
/** One attempt to send, retries included; a stop waits for twice that at most. */
const exportTimeoutMs = 3000;

/** Requests that have ended without their charge, of which the oldest is forgotten first. */
const unchargedMax = 4096;

/** What is known of a request that is still being answered. */
interface Trail {
  askedMs: number;
  request: Attributes;
  charge: Charge | null;
}

interface Charge {
  receipt: Receipt;
  settledMs: number;
}

/** Of a request whose span has been made, what those of its stages take. */
interface Ended {
  /** The span of the request. */
  below: Context;
  /** What `performance.now()` is to be added to for the time of day. */
  clockMs: number;
  askedMs: number;
  code: ErrorCode | null;
}

export class Tracing {
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;
  readonly #trails = new Map<string, Trail>();
  readonly #uncharged = new Map<string, Ended>();

  constructor({ url, serviceName }: TracingConfig, dependencies: TracingDependencies) {
    const resource = defaultResource()
      .merge(detectResources({ detectors: [envDetector] }))
      .merge(
        resourceFromAttributes({ "service.name": serviceName, "service.version": dependencies.version }),
      );
    const exporter = new OTLPTraceExporter({ url, timeoutMillis: exportTimeoutMs });
    this.#provider = new BasicTracerProvider({
      resource,
      spanProcessors: [new Batches(exporter, dependencies)],
    });
    this.#tracer = this.#provider.getTracer("inkwell");
  }

  /** `model` is null where there is none of the name that was asked for. */
  asked(requestId: string, model: string | null, request: ChatRequest): void {
    const { maxTokens, sampling } = request;
    this.#trails.set(requestId, {
      askedMs: performance.now(),
      request: {
        ...(model === null ? {} : { "gen_ai.request.model": model }),
        ...given("gen_ai.request.max_tokens", maxTokens),
        ...given("gen_ai.request.temperature", sampling.temperature),
        ...given("gen_ai.request.top_p", sampling.topP),
        ...given("gen_ai.request.top_k", sampling.topK),
        ...given("gen_ai.request.seed", sampling.seed),
        ...given("gen_ai.request.presence_penalty", sampling.presencePenalty),
        ...given("gen_ai.request.frequency_penalty", sampling.frequencyPenalty),
      },
      charge: null,
    });
  }

  settled(receipt: Receipt): void {
    const { requestId } = receipt;
    const charge = { receipt, settledMs: performance.now() };
    const trail = this.#trails.get(requestId);
    if (trail !== undefined) trail.charge = charge;
    const ended = this.#uncharged.get(requestId);
    // The span of the request has been sent without them: its settlement tells the tokens.
    if (ended !== undefined) this.#writeStages(ended, charge, charged(receipt));
    this.#uncharged.delete(requestId);
  }

  finished(finished: FinishedRequest): void {
    const trail = this.#trails.get(finished.requestId);
    this.#trails.delete(finished.requestId);
    if (finished.path === chatPath) this.#write(finished, trail);
  }

  /** Sends what is queued, if the collector takes it in time. Never rejects. */
  async close(): Promise<void> {
    // What could not be sent has been counted and told by then.
    await this.#provider.shutdown().catch(() => {});
  }

  #write(finished: FinishedRequest, trail: Trail | undefined): void {
    // One look at the wall clock for all of a request's times, so that they fit together.
    const endMs = Date.now();
    const clockMs = endMs - performance.now();
    const startTime = endMs - finished.durationMs;
    const { requestId, model, code, firstTokenMs } = finished;
    const attributes = {
      ...conventional,
      ...trail?.request,
      ...answered(finished),
      ...charged(trail?.charge?.receipt),
    };
    const root = this.#tracer.startSpan(
      spanName(trail?.request["gen_ai.request.model"]),
      { kind: SpanKind.SERVER, startTime, attributes },
      callersContext(finished.traceparent),
    );
    if (firstTokenMs !== null) root.addEvent("first_token", startTime + firstTokenMs);
    if (isFailure(finished)) root.setStatus({ code: SpanStatusCode.ERROR });
    if (trail !== undefined) {
      const below = trace.setSpanContext(ROOT_CONTEXT, root.spanContext());
      const ended = { below, clockMs, askedMs: trail.askedMs, code };
      if (trail.charge !== null) this.#writeStages(ended, trail.charge);
      // A model has taken it, so it will be charged.
      else if (model !== null) this.#remember(requestId, ended);
    }
    root.end(endMs);
  }

  #remember(requestId: string, ended: Ended): void {
    const [oldest] = this.#uncharged.keys();
    if (oldest !== undefined && this.#uncharged.size >= unchargedMax) this.#uncharged.delete(oldest);
    this.#uncharged.set(requestId, ended);
  }

  /** `settlement`: what the span of the request does not tell. */
  #writeStages(
    { below, clockMs, askedMs, code }: Ended,
    { receipt, settledMs }: Charge,
    settlement: Attributes = {},
  ): void {
    const { preparedMs, heldMs, generatedMs } = receipt.times;
    const stage = (name: string, fromMs: number, toMs: number, attributes = {}, kind = SpanKind.INTERNAL) => {
      const startTime = clockMs + fromMs;
      const span = this.#tracer.startSpan(name, { kind, startTime, attributes }, below);
      if ("error.type" in attributes) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end(clockMs + toMs);
    };
    stage("prepare", askedMs, preparedMs);
    stage("hold", preparedMs, heldMs);
    // Tokens are told once: who adds them up over spans shall count them once.
    const generation = {
      ...conventional,
      "gen_ai.request.model": receipt.model,
      ...given("error.type", code),
    };
    stage(spanName(receipt.model), heldMs, generatedMs, generation, SpanKind.CLIENT);
    stage("settle", generatedMs, settledMs, settlement);
  }
}

/** Sends spans in batches, drops those that find the queue full, and counts whatever is lost. */
class Batches extends BatchSpanProcessor {
  readonly #onLost: TracingDependencies["onLost"];
  #waiting = 0;

  constructor(exporter: SpanExporter, { logger, onLost }: TracingDependencies) {
    let failing = false;
    const counting: SpanExporter = {
      export: (spans, done) => {
        this.#waiting -= spans.length;
        exporter.export(spans, (result) => {
          const failed = result.code !== 0;
          if (failed) onLost(spans.length);
          // One line when it begins and one when it is over, however long it lasts.
          if (failed && !failing) {
            const reason = result.error?.message || result.error?.name;
            logger.warn({ reason }, "the collector does not take traces; they are lost");
          }
          if (!failed && failing) logger.info("the collector takes traces again");
          failing = failed;
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
    };
    super(counting, {
      maxQueueSize: queueSpansMax,
      maxExportBatchSize: batchSpansMax,
      scheduledDelayMillis: batchEveryMs,
      exportTimeoutMillis: exportTimeoutMs,
    });
    this.#onLost = onLost;
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#waiting >= queueSpansMax) {
      this.#onLost(1);
      return;
    }
    this.#waiting += 1;
    super.onEnd(span);
  }
}

const conventional = { "gen_ai.operation.name": "chat", "gen_ai.provider.name": "inkwell" };

/** By the conventions: what is done, and by which model where there is one. */
function spanName(model: AttributeValue | undefined): string {
  const { "gen_ai.operation.name": operation } = conventional;
  return model === undefined ? operation : `${operation} ${model}`;
}

function answered(finished: FinishedRequest): Attributes {
  const { requestId, method, path, status, code, accountId, streamed, firstTokenMs } = finished;
  return {
    "http.request.method": method,
    "http.route": path ?? "",
    ...given("http.response.status_code", status),
    ...given("error.type", code),
    "gen_ai.request.stream": streamed,
    ...given("gen_ai.response.time_to_first_chunk", firstTokenMs === null ? null : firstTokenMs / 1000),
    "inkwell.request_id": requestId,
    ...given("inkwell.account", accountId),
  };
}

function charged(receipt: Receipt | undefined): Attributes {
  if (receipt === undefined) return {};
  const { requestId, model, ending, usage, cost, shortfall } = receipt;
  const finishReason = finishReasons[ending];
  return {
    "gen_ai.response.id": `chatcmpl-${requestId}`,
    "gen_ai.response.model": model,
    ...(finishReason === undefined ? {} : { "gen_ai.response.finish_reasons": [finishReason] }),
    "gen_ai.usage.input_tokens": usage.promptTokens,
    "gen_ai.usage.output_tokens": usage.completionTokens,
    "gen_ai.usage.cache_read.input_tokens": usage.cachedTokens,
    "gen_ai.usage.reasoning.output_tokens": usage.reasoningTokens,
    "inkwell.ending": ending,
    "inkwell.credits": cost / microPerCredit,
    "inkwell.shortfall_credits": shortfall / microPerCredit,
    "inkwell.usage_estimated": usage.estimated,
  };
}

/** What the client was told; nothing where it was told of no end. */
const finishReasons: Partial<Record<Ending, string>> = { stop: "stop", length: "length", credits: "length" };

/** Whole numbers are sent as 64 bits: one that has more would have the collector refuse all that is sent with it. */
function given(name: string, value: string | number | null | undefined): Attributes {
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return {};
  return value === null || value === undefined ? {} : { [name]: value };
}

/** A stream that broke off had its 200 already. */
function isFailure({ status, code }: FinishedRequest): boolean {
  return (status !== null && status >= 500) || (status === 200 && code !== null);
}

/**
 * Of the W3C's header; what is no such header is as if there were none. Version 00 ends with the flags, a later one may
 * go on.
 */
function callersContext(traceparent: string | null) {
  const [, traceId = "", spanId = "", flags = ""] =
    /^(?!ff|00-.{53})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/.exec(
      traceparent ?? "",
    ) ?? [];
  const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
  return isSpanContextValid(context) ? trace.setSpanContext(ROOT_CONTEXT, context) : ROOT_CONTEXT;
}
