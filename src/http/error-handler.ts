/**
 * How a refusal leaves the server: any error becomes one answer with the body of openai-format/error-body.ts. What only the
 * operator may know goes to the log here, and nowhere else.
 */
import type { IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { codeOf, Refusal } from "../errors.ts";
import { StoreUnavailableError } from "../ledger/retry.ts";
import { errorBody, errorHeaders, unparsableBody } from "./openai-format/error-body.ts";
import { rateHeaders } from "./openai-format/rate-headers.ts";
import { contextOf } from "./request-context.ts";
import { freeChunk } from "./uploads.ts";

const jsonType = "application/json; charset=utf-8";

/** After a refusal, the rest of an upload is read and dropped up to these limits, so that its sender can read why. */
const lingerMs = 5_000;
const lingerBytesMax = 16 * 1024 * 1024;
/** What reading a chunk costs beside its bytes. */
const lingerBytesPerChunk = 4096;
/** The rest is dropped no faster than this many bytes per pause: some MB a second, or an attack would keep the thread busy. */
const lingerStepBytes = 64 * 1024;
const lingerPauseMs = 10;

/** Returns `error` itself if it is a refusal, otherwise the refusal that the caller gets instead. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (codeOf(error) === "FST_ERR_CTP_INVALID_MEDIA_TYPE") return notJson();
  if (error instanceof StoreUnavailableError) {
    return new Refusal(
      "store_unavailable",
      "This service cannot reach or write its database just now. Nothing was charged; send the request again in a moment.",
      { cause: error, detail: error.message, retryAfterSeconds: 5 },
    );
  }
  return new Refusal(
    "internal_error",
    "Something went wrong here, not in the request. Nothing more is known to tell.",
    {
      cause: error,
    },
  );
}

export function notJson(): Refusal {
  return new Refusal(
    "unsupported_media_type",
    "Send the body as JSON, with the header content-type: application/json.",
  );
}

export function logRefusal(logger: Logger, refusal: Refusal, requestId: string): void {
  if (refusal.status < 500) return;
  const { code, detail, cause } = refusal;
  // A refusal with a detail is explained and needs no stack. A refusal without one is a defect.
  const fields = { requestId, code, ...(detail === undefined ? { err: cause } : { detail }) };
  if (refusal.status === 503) logger.warn(fields, "a request was refused");
  else logger.error(fields, "a request failed");
}

export function refuse(request: FastifyRequest, reply: FastifyReply, refusal: Refusal): void {
  const context = contextOf(request);
  context.finish(refusal.status, refusal.code);
  const { record } = context;
  if (record.isChat) reply.header("openai-processing-ms", Math.ceil(record.elapsedMs()));
  if (refusal.rates !== undefined) reply.headers(rateHeaders(refusal.rates));
  reply.headers(errorHeaders(refusal));
  sendRefusal(request, reply, {
    status: refusal.status,
    body: errorBody(refusal),
    holdsBody: context.holdsBody,
  });
}

/**
 * Sends a refusal, whose body is JSON. A client that still sends its own body gets to read it, and the connection closes
 * within seconds. `holdsBody`: the client waits to be asked for its body.
 */
export function sendRefusal(
  { raw: request }: FastifyRequest,
  reply: FastifyReply,
  { status, body, holdsBody }: { status: number; body: string; holdsBody: boolean },
): void {
  const send = () => void reply.code(status).type(jsonType).send(body);
  if (holdsBody || !isUploading(request)) send();
  // A body in the same packet as its headers is complete in a moment; then the connection can be kept.
  else setImmediate(() => (isUploading(request) ? answerAnUpload(request, reply, status, body) : send()));
}

/** Sends the head of an answer that is written past Fastify. `headers` go over those that hooks have set. */
export function writeHead(reply: FastifyReply, status: number, headers: OutgoingHttpHeaders): void {
  reply.hijack();
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) reply.raw.setHeader(name, value);
  }
  reply.raw.writeHead(status, headers);
}

/** Returns whether the request has a body of which a part is still to come. */
export function isUploading({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/**
 * Sends the whole answer at once but closes only when the client has stopped sending: a connection closed over
 * unread data is reset, and takes the answer down with it.
 */
function answerAnUpload(request: IncomingMessage, reply: FastifyReply, status: number, body: string): void {
  const { raw: response } = reply;
  writeHead(reply, status, {
    "content-type": jsonType,
    "content-length": Buffer.byteLength(body),
    connection: "close",
  });
  response.write(body);
  let left = lingerBytesMax;
  let stepLeft = lingerStepBytes;
  let pause: NodeJS.Timeout | undefined;
  const close = () => {
    clearTimeout(timer);
    clearTimeout(pause);
    request.off("data", count);
    // Node would go on reading and parsing until the connection is closed.
    request.socket.pause();
    response.end();
  };
  const count = (chunk: Buffer) => {
    left -= chunk.length + lingerBytesPerChunk;
    stepLeft -= chunk.length;
    freeChunk(chunk);
    if (left < 0) {
      close();
    } else if (stepLeft <= 0) {
      stepLeft = lingerStepBytes;
      request.pause();
      pause = setTimeout(() => request.resume(), lingerPauseMs);
    }
  };
  const timer = setTimeout(close, lingerMs);
  request.on("data", count);
  request.once("end", close);
  request.once("close", close);
  request.resume();
}

/** For bytes that Node could not read as HTTP. */
export function refuseUnparsable(error: Error & { code?: string }, socket: Socket, busy: boolean): void {
  // In the middle of an answer there is no place for another one.
  if (error.code === "ECONNRESET" || !socket.writable || busy) {
    socket.destroy();
    return;
  }
  const [status, message] =
    error.code === "HPE_HEADER_OVERFLOW"
      ? ["431 Request Header Fields Too Large", "The headers are larger than this service accepts."]
      : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? ["408 Request Timeout", "The request was not sent in time."]
        : ["400 Bad Request", "These bytes are not a valid HTTP request."];
  const body = unparsableBody(message);
  socket.end(
    `HTTP/1.1 ${status}\r\ncontent-type: ${jsonType}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
