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
 * `destroy` does not stop Node from parsing the rest of what it has read, which may be thousands of requests. Each would
 * get an answer, and an error when the connection closes. Without its undocumented listener the parser makes neither,
 * and takes a fraction of the time. Node sets it anew for each connection.
 */
function close(socket: Socket): void {
  const parser: unknown = Reflect.get(socket, "parser");
  if (typeof parser === "object" && parser !== null) Reflect.set(parser, "onIncoming", () => 0);
  socket.destroy();
}
