/**
 * Traces by the GenAI conventions of OpenTelemetry. Each chat request is a span, in the caller's
 * trace if the request names one (`traceparent`). A request that was charged has a child span for
 * each stage.
 *
 * The spans are made from the record of a request when it has ended, so no request waits for them.
 * A charge that is recorded later adds the stages then. Spans are queued up to a bound and sent in
 * batches; spans that cannot be sent are lost and counted. No span contains a key or text of
 * people or models, not even stop sequences or unknown model names.
 *
 * This file is loaded only if a collector is configured. No other file imports OpenTelemetry.
 */
import {
  type Attributes,
  type AttributeValue,
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
import type { CallerCode } from "../errors.ts";
import type { Ending } from "../ledger/rows.ts";
import { microPerCredit } from "../units.ts";
import { isFailure, type RequestObserver, type RequestRecord } from "./request-record.ts";

interface TracingDependencies {
  /** Version of the service. */
  version: string;
  logger: Logger;
  /** Reports spans that were dropped, because the queue was full or the collector failed. */
  onLost(spans: number): void;
}

/** Most finished spans in the queue: those of about 800 requests. */
const queueSpansMax = 4096;
/**
 * A batch is encoded in one step of about 5 ms. The exporter sends at most 30 batches at the same
 * time.
 */
const batchSpansMax = 256;
const batchEveryMs = 1000;
/**
 * Longest time to send a batch, retries included. A stop of the service waits for at most twice
 * this time.
 */
const exportTimeoutMs = 3000;

/** Data that stage spans need once the request span exists. */
interface RequestSpan {
  /** Contains the request span, the parent of the stage spans. */
  context: Context;
  /** Time of day at which `performance.now()` was 0. */
  clockMs: number;
  parsedMs: number;
  code: CallerCode | null;
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
    // The limit of the exporter begins when it is connected.
    const httpAgentOptions = { keepAlive: true, timeout: exportTimeoutMs };
    const exporter = new OTLPTraceExporter({ url, timeoutMillis: exportTimeoutMs, httpAgentOptions });
    this.#provider = new BasicTracerProvider({
      resource,
      spanProcessors: [new Batches(exporter, dependencies)],
    });
    this.#tracer = this.#provider.getTracer("inkwell");
  }

  finished(record: RequestRecord): void {
    if (!record.isChat) return;
    // The wall clock is read once, so that all times of a request fit together.
    const clockMs = Date.now() - performance.now();
    const startTime = clockMs + record.startedMs;
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
      const context = trace.setSpanContext(ROOT_CONTEXT, root.spanContext());
      const span = { context, clockMs, parsedMs, code };
      if (charge !== null) this.#writeStages(span, charge);
      // A request that a model has accepted will be charged.
      else if (record.isAccepted) this.#uncharged.set(record, span);
    }
    root.end(startTime + record.durationMs);
  }

  chargedLate(record: RequestRecord, charge: Charge): void {
    const span = this.#uncharged.get(record);
    this.#uncharged.delete(record);
    // The request span has been sent without the charge, so the settlement span has it.
    if (span !== undefined) this.#writeStages(span, charge, chargeAttributes(record.requestId, charge));
  }

  /** Sends the queued spans, if the collector takes them in time. Never rejects. */
  async close(): Promise<void> {
    // Spans that could not be sent have been counted and logged by then.
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
      ...attributesOf({ "gen_ai.request.model": model, "error.type": code }),
    };
    stage(spanName(model), heldMs, generatedMs, generation, SpanKind.CLIENT);
    stage("settle", generatedMs, settledMs, settlement);
  }
}

/** Sends spans in batches. Drops spans if the queue is full, and counts every lost span. */
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
          // Logs one line when a failure begins and one when it ends.
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
  return attributesOf({
    "gen_ai.request.model": model,
    "gen_ai.request.max_tokens": parameters.maxTokens,
    "gen_ai.request.temperature": parameters.temperature,
    "gen_ai.request.top_p": parameters.topP,
    "gen_ai.request.top_k": parameters.topK,
    "gen_ai.request.seed": parameters.seed,
    "gen_ai.request.presence_penalty": parameters.presencePenalty,
    "gen_ai.request.frequency_penalty": parameters.frequencyPenalty,
  });
}

function answerAttributes(record: RequestRecord): Attributes {
  const { requestId, method, path, status, code, caller, streamed, firstTokenMs } = record;
  return attributesOf({
    "http.request.method": method,
    "http.route": path ?? "",
    "http.response.status_code": status,
    "error.type": code,
    "gen_ai.request.stream": streamed,
    "gen_ai.response.time_to_first_chunk": firstTokenMs === null ? null : firstTokenMs / 1000,
    "inkwell.request_id": requestId,
    "inkwell.account": caller?.accountId,
  });
}

function chargeAttributes(
  requestId: string,
  { model, ending, usage, costMicro, shortfallMicro }: Charge,
): Attributes {
  const finishReason = finishReasons[ending];
  return attributesOf({
    "gen_ai.response.id": `chatcmpl-${requestId}`,
    "gen_ai.response.model": model,
    "gen_ai.response.finish_reasons": finishReason && [finishReason],
    "gen_ai.usage.input_tokens": usage.promptTokens,
    "gen_ai.usage.output_tokens": usage.completionTokens,
    "gen_ai.usage.cache_read.input_tokens": usage.cachedTokens,
    "gen_ai.usage.reasoning.output_tokens": usage.reasoningTokens,
    "inkwell.ending": ending,
    "inkwell.credits": costMicro / microPerCredit,
    "inkwell.shortfall_credits": shortfallMicro / microPerCredit,
    "inkwell.usage_estimated": usage.estimated,
  });
}

/** Finish reasons that clients see. The other endings have none. */
const finishReasons: Partial<Record<Ending, string>> = {
  stop: "stop",
  length: "length",
  credits: "length",
  cap: "length",
};

/**
 * Returns the attributes that have a value. Whole numbers are sent with 64 bits. A larger number
 * would make the collector refuse the whole batch, so it is left out.
 */
function attributesOf(values: Record<string, AttributeValue | null | undefined>): Attributes {
  const attributes: Attributes = {};
  for (const [name, value] of Object.entries(values)) {
    const isTooLarge = Number.isInteger(value) && !Number.isSafeInteger(value);
    if (value !== null && value !== undefined && !isTooLarge) attributes[name] = value;
  }
  return attributes;
}

/** Returns a context with the span of the caller, if its `traceparent` header is valid. */
function callerContext(traceparent: string | null) {
  const span = parseTraceParent(traceparent ?? "");
  return span === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...span, isRemote: true });
}
