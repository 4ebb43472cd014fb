/**
 * Sends the error responses of all listeners, also to clients that are still sending a body:
 * whether one is still coming, and dropping the rest. Connections over a limit are refused in
 * connections.ts.
 */
import type { IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../errors.ts";
import { limits } from "../limits/limits.ts";
import { endSoon } from "./connections.ts";
import {
  type ErrorResponse,
  errorBody,
  errorHeaders,
  rawResponse,
  unparsableBody,
} from "./openai-format/error-body.ts";

const jsonType = "application/json; charset=utf-8";

/**
 * Sends an error. A client that is still sending its body can read the error, and the connection
 * closes within seconds. `holdsBody`: the client waits until it is asked for its body.
 */
export function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  error: ErrorResponse,
  holdsBody = false,
): void {
  const body = errorBody(error);
  reply.headers(errorHeaders(error));
  const send = () => void reply.code(error.status).type(jsonType).send(body);
  if (holdsBody || !isUploading(request.raw)) send();
  // A body in the same packet as its headers is complete in a moment; then the connection can be
  // kept.
  else
    setImmediate(() => (isUploading(request.raw) ? sendDuringUpload(request, reply, error, body) : send()));
}

/**
 * Sends the head of an answer that is written past Fastify. `headers` go over those that hooks
 * have set.
 */
export function writeHead(reply: FastifyReply, status: number, headers: OutgoingHttpHeaders): void {
  reply.hijack();
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) reply.raw.setHeader(name, value);
  }
  reply.raw.writeHead(status, headers);
}

/**
 * Sends the whole error at once but closes the connection only when the client has stopped
 * sending. A connection that is closed over unread data is reset, and the client loses the error.
 */
function sendDuringUpload(
  request: FastifyRequest,
  reply: FastifyReply,
  { status }: ErrorResponse,
  body: string,
): void {
  writeHead(reply, status, {
    "content-type": jsonType,
    "content-length": Buffer.byteLength(body),
    connection: "close",
  });
  reply.raw.write(body);
  dropBody(request.raw, () => reply.raw.end());
}

/** Answers bytes that Node could not parse as HTTP. */
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
  endSoon(socket, rawResponse(status, unparsableBody(message)));
}

export function notJson(): Refusal {
  return new Refusal(
    "unsupported_media_type",
    "Send the body as JSON, with the header content-type: application/json.",
  );
}

/** Limits of dropping a body: the sender has this time and these bytes to read its answer. */
const dropMs = limits.restTime.most;
const dropBytesMax = limits.restBytes.most;
/** Cost of reading a chunk, in addition to its bytes. */
const dropBytesPerChunk = 4096;
/**
 * Bytes between two pauses. Limits the rate to some MB a second, so that an attack cannot keep the
 * thread busy.
 */
const dropStepBytes = 64 * 1024;
const dropPauseMs = 10;

/** Smaller chunks are left to the garbage collector, because freeing one takes a microsecond. */
const chunkFreedBytes = 4096;

/** Returns whether the request has a body of which a part is still to come. */
export function isUploading({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/**
 * Frees a chunk of a body. Node gives each chunk its own memory, which only garbage collections
 * free otherwise: tens of megabytes wait for them, and the allocator returns little of that to the
 * system. Shared memory is left alone.
 */
export function freeChunk(chunk: Buffer): void {
  const { buffer } = chunk;
  if (chunk.length < chunkFreedBytes) return;
  if (buffer instanceof ArrayBuffer && buffer.byteLength === chunk.length && !buffer.detached)
    buffer.transfer(0);
}

/**
 * Reads and drops the rest of a body. Calls `close` at its end or at the first limit, and stops
 * reading.
 */
function dropBody(request: IncomingMessage, close: () => void): void {
  let left = dropBytesMax;
  let stepLeft = dropStepBytes;
  let pause: NodeJS.Timeout | undefined;
  const stop = () => {
    clearTimeout(timer);
    clearTimeout(pause);
    request.off("data", drop);
    // Node would go on reading and parsing until the connection is closed.
    request.socket.pause();
    close();
  };
  const drop = (chunk: Buffer) => {
    left -= chunk.length + dropBytesPerChunk;
    stepLeft -= chunk.length;
    freeChunk(chunk);
    if (left < 0) {
      stop();
    } else if (stepLeft <= 0) {
      stepLeft = dropStepBytes;
      request.pause();
      pause = setTimeout(() => request.resume(), dropPauseMs);
    }
  };
  const timer = setTimeout(stop, dropMs);
  request.on("data", drop);
  request.once("end", stop);
  request.once("close", stop);
  request.resume();
}
