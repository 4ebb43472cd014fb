/**
 * Turns any error of a public request into one refusal, its error response and its log line. The
 * `detail` of a refusal is for the operator: it goes to the log only.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type CallerRefusal, codeOf, isForCaller, Refusal, StoreUnavailableError } from "../../errors.ts";
import { notJson, sendError } from "../error-response.ts";
import { rateHeaders } from "../openai-format/response.ts";
import { contextOf } from "./request-context.ts";

/** Returns a refusal for callers as it is, and otherwise what the caller gets instead. */
export function publicRefusalOf(error: unknown): CallerRefusal {
  const refusal = error instanceof Refusal ? error : refusalOfFailure(error);
  if (isForCaller(refusal)) return refusal;
  return publicRefusalOf(new Error(`${refusal.code} is not a code for callers`, { cause: error }));
}

function refusalOfFailure(error: unknown): Refusal {
  if (codeOf(error) === "FST_ERR_CTP_INVALID_MEDIA_TYPE") return notJson();
  if (error instanceof StoreUnavailableError) {
    return new Refusal(
      "store_unavailable",
      "This service cannot reach or write its database just now. Nothing was charged; send the request again in a moment.",
      { cause: error, detail: error.message, retryAfterSeconds: 5 },
    );
  }
  return new Refusal("internal_error", "This service failed on the request. The request is not at fault.", {
    cause: error,
  });
}

export function logRefusal(logger: Logger, refusal: Refusal, requestId: string): void {
  const { status, code, detail, cause } = refusal;
  if (status < 500) {
    // The words of an engine that rejected the request.
    if (detail !== undefined) logger.info({ requestId, code, detail }, "a request was refused");
    return;
  }
  // A refusal with a detail is explained and needs no stack. A refusal without one is a defect.
  const fields = { requestId, code, ...(detail === undefined ? { err: cause } : { detail }) };
  if (status === 503) logger.warn(fields, "a request was refused");
  else logger.error(fields, "a request failed");
}

/** Returns Fastify's error handler. */
export function errorHandler(logger: Logger) {
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const refusal = publicRefusalOf(error);
    logRefusal(logger, refusal, request.id);
    const context = contextOf(request);
    context.finish(refusal.status, refusal.code);
    const { record } = context;
    if (record.isChat) reply.header("openai-processing-ms", Math.ceil(record.elapsedMs()));
    if (refusal.rates !== undefined) reply.headers(rateHeaders(refusal.rates));
    sendError(request, reply, refusal, context.holdsBody);
  };
}
