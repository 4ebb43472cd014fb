/**
 * What every request to the operator's listener and to the portal passes: the check of its host
 * and origin, authentication, the log, and the responses to errors and unknown paths.
 *
 * Checks the route that was found, not the spelling of the path. Unknown paths need authentication
 * too. A request whose body was still to come is authenticated again when it is there: a client
 * can hold a body back until it has other rights, or none.
 */
import { isIP } from "node:net";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { isForCaller, Refusal } from "../../errors.ts";
import { isUploading, sendError } from "../error-response.ts";
import type { ErrorResponse } from "../openai-format/error-body.ts";
import { type AllowedHosts, loggableHostIn } from "./allowed-hosts.ts";
import { methodsOf } from "./openapi.ts";

interface GuardOptions {
  /** For the log. */
  section: "operator" | "portal";
  /** The setting that allows further hosts. */
  hostSetting: string;
  /** Paths that need no authentication. */
  openPaths: ReadonlySet<string | null>;
  /** Those of them that respond to any host name. */
  hostlessPaths: ReadonlySet<string | null>;
  /** Methods and paths that need no authentication: `POST /api/session`. */
  signInRoutes: ReadonlySet<string>;
  /** Returns the page that a browser is sent to instead; null for all other requests. */
  pageInstead?(request: FastifyRequest): string | null;
  /** Paths of GET that are not in the OpenAPI document. */
  undocumentedPaths: ReadonlySet<string>;
  allowedHosts: AllowedHosts;
  logger: Logger;
  authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** The account, key and session of a request, for the log. */
  logged(request: FastifyRequest, status: number | null): Record<string, unknown>;
  responseTo(error: unknown, bodyBytesMax?: number): ErrorResponse;
  unknownPath(): Refusal;
}

export function guard(app: FastifyInstance, options: GuardOptions): void {
  const { section, openPaths, hostlessPaths, allowedHosts, logger } = options;

  /** Writes the line of a request: of a stream at its end, of others when they are answered. */
  function log(request: FastifyRequest, reply: FastifyReply, startedMs: number): void {
    const { id: requestId, method } = request;
    const route = request.routeOptions.url ?? null;
    // Null: the client left before its answer.
    const status = reply.raw.headersSent ? reply.raw.statusCode : null;
    const fields = {
      requestId,
      method,
      path: route,
      ...options.logged(request, status),
      status,
      durationMs: Math.round(performance.now() - startedMs),
    };
    logger.info(fields, `${method} ${route ?? "(unknown path)"} ${status ?? "client gone"}`);
  }

  /** Authenticated before their bodies had arrived. */
  const early = new WeakSet<FastifyRequest>();

  app.addHook("onRequest", async (request, reply) => {
    const route = request.routeOptions.url ?? null;
    reply.headers({ "x-request-id": request.id, "x-content-type-options": "nosniff" });
    const page = options.pageInstead?.(request) ?? null;
    const isOpen = openPaths.has(route) || page !== null;
    const startedMs = performance.now();
    // Not `onResponse`, which a stream that its client closes does not reach.
    if (!isOpen) reply.raw.once("close", () => log(request, reply, startedMs));
    if (!hostlessPaths.has(route)) allowedHosts.check(request.raw, request.originalUrl);
    if (page !== null) return reply.headers({ "cache-control": "no-store", vary: "accept" }).redirect(page);
    if (isOpen) return;
    // Browsers would keep answers that the next person at this machine can see.
    reply.header("cache-control", "no-store");
    if (options.signInRoutes.has(`${request.method} ${route}`)) return;
    await options.authenticate(request, reply);
    if (isUploading(request.raw)) early.add(request);
    return;
  });
  app.addHook("preHandler", async (request, reply) => {
    if (early.has(request)) await options.authenticate(request, reply);
  });
  app.addHook("onSend", async (request, reply) => {
    // If the connection stayed open, Node would wait for the rest of the body before the next
    // request.
    if (isUploading(request.raw)) reply.header("connection", "close");
  });
  app.setErrorHandler((error, request, reply) => {
    const response = options.responseTo(error, request.routeOptions.bodyLimit);
    const { status, code } = response;
    // The message of a refusal is for the sender, and may have an address.
    const err = error instanceof Refusal && !isForCaller(error) ? {} : { err: error };
    if (status >= 500) logger.error({ requestId: request.id, code, ...err }, `${section} request failed`);
    if (code === "host_not_allowed" || code === "origin_not_allowed") {
      const { host, origin } = request.headers;
      logger.warn(
        { requestId: request.id, code, host: loggableHostIn(host), origin: loggableHostIn(origin) },
        `${section} request refused: ${options.hostSetting} does not list its host or origin`,
      );
    }
    // Node has already asked for a body that the client held back (Expect: 100-continue).
    sendError(request, reply, response);
  });
  app.setNotFoundHandler(async (request, reply) => {
    const path = request.url.split("?", 1)[0] ?? "";
    const isPlain = openPaths.has(path) || options.undocumentedPaths.has(path);
    const methods = isPlain ? ["GET", "HEAD"] : methodsOf(app, path);
    if (methods.length === 0) throw options.unknownPath();
    reply.header("allow", methods.join(", "));
    throw new Refusal(
      "method_not_allowed",
      `${path.slice(0, 100)} does not accept ${request.method}, only ${methods.join(", ")}.`,
    );
  });
}

/**
 * Returns the address of the client. A trusted proxy names it in `X-Forwarded-For`; text that is
 * no address counts as none.
 */
export function addressOf({ ip, socket }: FastifyRequest): string {
  return isIP(ip) === 0 ? (socket.remoteAddress ?? "") : ip;
}
