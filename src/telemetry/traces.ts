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
  type Context,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { parseTraceParent } from "@opentelemetry/core";
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
import type { Charge } from "../chat/generate.ts";
import type { TracingConfig } from "../config/tracing.ts";
import type { ErrorCode } from "../errors.ts";
import type { Ending } from "../ledger/rows.ts";
import { microPerCredit } from "../units.ts";
import { isFailure, type RequestObserver, type RequestRecord } from "./request-record.ts";

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

/** Data that stage spans need once the request span exists. */
interface RequestSpan {
  /** Contains the request span, the parent of the stage spans. */
  context: Context;
  /** Time of day at which `performance.now()` was 0. */
  clockMs: number;
  parsedMs: number;
  code: ErrorCode | null;
}

export class Tracing implements RequestObserver {
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;
  /** Request spans without stages, because the charge is still to come. */
  readonly #uncharged = new WeakMap<RequestRecord, RequestSpan>();

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

  finished(record: RequestRecord): void {
    if (!record.isChat) return;
    // One look at the wall clock for all times of a request, so that they fit together.
    const endMs = Date.now();
    const clockMs = endMs - performance.now();
    const startTime = endMs - record.durationMs;
    const { code, firstTokenMs, charge, parsedMs } = record;
    const attributes = {
      ...conventional,
      ...requestAttributes(record),
      ...answerAttributes(record),
      ...(charge === null ? {} : chargeAttributes(record.requestId, charge)),
    };
    const root = this.#tracer.startSpan(
      spanName(record.model),
      { kind: SpanKind.SERVER, startTime, attributes },
      callerContext(record.traceparent),
    );
    if (firstTokenMs !== null) root.addEvent("first_token", startTime + firstTokenMs);
    if (isFailure(record)) root.setStatus({ code: SpanStatusCode.ERROR });
    if (parsedMs !== null) {
      const span = {
        context: trace.setSpanContext(ROOT_CONTEXT, root.spanContext()),
        clockMs,
        parsedMs,
        code,
      };
      if (charge !== null) this.#writeStages(span, charge);
      // A request that a model has taken will be charged.
      else if (record.isAccepted) this.#uncharged.set(record, span);
    }
    root.end(endMs);
  }

  chargedLate(record: RequestRecord, charge: Charge): void {
    const span = this.#uncharged.get(record);
    this.#uncharged.delete(record);
    // The request span has been sent without the charge, so the settlement span has it.
    if (span !== undefined) this.#writeStages(span, charge, chargeAttributes(record.requestId, charge));
  }

  /** Sends what is queued, if the collector takes it in time. Never rejects. */
  async close(): Promise<void> {
    // What could not be sent has been counted and told by then.
    await this.#provider.shutdown().catch(() => {});
  }

  /** `settlement`: attributes that the request span does not have. */
  #writeStages(
    { context, clockMs, parsedMs, code }: RequestSpan,
    { model, times }: Charge,
    settlement: Attributes = {},
  ): void {
    const { preparedMs, heldMs, generatedMs, settledMs } = times;
    const stage = (name: string, fromMs: number, toMs: number, attributes = {}, kind = SpanKind.INTERNAL) => {
      const startTime = clockMs + fromMs;
      const span = this.#tracer.startSpan(name, { kind, startTime, attributes }, context);
      if ("error.type" in attributes) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end(clockMs + toMs);
    };
    stage("prepare", parsedMs, preparedMs);
    stage("hold", preparedMs, heldMs);
    // Tokens are on one span only, so that a sum over spans counts them once.
    const generation = {
      ...conventional,
      "gen_ai.request.model": model,
      ...given("error.type", code),
    };
    stage(spanName(model), heldMs, generatedMs, generation, SpanKind.CLIENT);
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

/** Returns the operation and the model, if known, as the conventions require. */
function spanName(model: string | null): string {
  const { "gen_ai.operation.name": operation } = conventional;
  return model === null ? operation : `${operation} ${model}`;
}

function requestAttributes({ model, parameters }: RequestRecord): Attributes {
  if (parameters === null) return {};
  return {
    ...given("gen_ai.request.model", model),
    ...given("gen_ai.request.max_tokens", parameters.maxTokens),
    ...given("gen_ai.request.temperature", parameters.temperature),
    ...given("gen_ai.request.top_p", parameters.topP),
    ...given("gen_ai.request.top_k", parameters.topK),
    ...given("gen_ai.request.seed", parameters.seed),
    ...given("gen_ai.request.presence_penalty", parameters.presencePenalty),
    ...given("gen_ai.request.frequency_penalty", parameters.frequencyPenalty),
  };
}

function answerAttributes(record: RequestRecord): Attributes {
  const { requestId, method, path, status, code, caller, streamed, firstTokenMs } = record;
  return {
    "http.request.method": method,
    "http.route": path ?? "",
    ...given("http.response.status_code", status),
    ...given("error.type", code),
    "gen_ai.request.stream": streamed,
    ...given("gen_ai.response.time_to_first_chunk", firstTokenMs === null ? null : firstTokenMs / 1000),
    "inkwell.request_id": requestId,
    ...given("inkwell.account", caller?.accountId),
  };
}

function chargeAttributes(requestId: string, { model, ending, usage, cost, shortfall }: Charge): Attributes {
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

/** The caller's span, if its `traceparent` header is valid. */
function callerContext(traceparent: string | null) {
  const span = parseTraceParent(traceparent ?? "");
  return span === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...span, isRemote: true });
}
