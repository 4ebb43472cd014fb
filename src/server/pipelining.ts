/**
 * Limits the requests that one connection sends ahead of its answers.
 *
 * Node reads 64 KiB of a connection at once, which is room for 2,000 requests of 30 bytes; if each of them is worked on, one
 * connection blocks the event loop for 0.1 s at a time. A connection that sends more requests ahead is closed.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { invariant } from "../errors.ts";

/** Clients that reuse connections wait for each answer; those that pipeline send a few requests ahead. */
export const requestsAheadMax = 16;

export function limitPipelining(server: Server): void {
  const listeners = server.listeners("request");
  invariant(listeners.length > 0, "an HTTP server listens to its requests");
  server.removeAllListeners("request");
  const unanswered = new WeakMap<Socket, number>();
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const count = (unanswered.get(socket) ?? 0) + 1;
    if (count > requestsAheadMax) {
      if (!socket.destroyed) close(socket);
      return;
    }
    unanswered.set(socket, count);
    response.once("close", () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1));
    for (const listener of listeners) Reflect.apply(listener, server, [request, response]);
  });
}

/**
 * Node makes an error for each request of a closed connection that has no answer. With a stack each, those of one read take
 * 20 ms and those of many connections block the event loop for long; nobody reads these stacks.
 */
function close(socket: Socket): void {
  let limit = 0;
  socket.prependOnceListener("close", () => {
    limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
  });
  socket.once("close", () => {
    Error.stackTraceLimit = limit;
  });
  socket.destroy();
}
