/**
 * Sends error responses, to clients that are still sending a body too. Errors leave all listeners
 * through here.
 */
import type { OutgoingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../errors.ts";
import {
  type ErrorResponse,
  errorBody,
  errorHeaders,
  rawResponse,
  unparsableBody,
} from "./openai-format/error-body.ts";
import { dropBody, isUploading } from "./request-body.ts";

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
  socket.end(rawResponse(status, unparsableBody(message)));
}

export function notJson(): Refusal {
  return new Refusal(
    "unsupported_media_type",
    "Send the body as JSON, with the header content-type: application/json.",
  );
}
