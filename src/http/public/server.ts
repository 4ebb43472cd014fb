/**
 * The public listener: three endpoints, and the same order of refusal on each of them.
 *
 *   path and method -> key -> allowances for refusals and uploads -> body size and media type -> JSON -> schema -> model
 *   -> prompt length -> rates and concurrency -> credits -> capacity
 *
 * The first four are here, in `onRequest`, before a byte of the body is read; JSON and schema in openai-format/request.ts;
 * the rest in the pipeline. While the service drains, `shutting_down` comes before the key: a database that is away is
 * asked for nothing any more.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import type { Logger } from "pino";
import { authenticate } from "../../accounts/authentication.ts";
import { allows, type Catalog } from "../../chat/catalog.ts";
import { Refusal } from "../../errors.ts";
import { balanceOf } from "../../ledger/balance.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { Store } from "../../store/store.ts";
import { RefusedConnectionLog, RequestLog } from "../../telemetry/log.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import type { RequestObserver } from "../../telemetry/request-record.ts";
import { type ConnectionLimits, Connections } from "../connections.ts";
import { isUploading, logRefusal, notJson, refusalOf, refuse, refuseUnparsable } from "../error-handler.ts";
import { listenOn } from "../listening.ts";
import { balanceObject, modelList } from "../openai-format/response.ts";
import {
  balancePath,
  chatPath,
  endpointOf,
  methodNotAllowed,
  methodsOf,
  modelsPath,
  unknownPath,
} from "../paths.ts";
import { limitPipelining } from "../pipelining.ts";
import { RefusalAllowance, type RefusalLimits } from "../refusal-allowance.ts";
import { callerOf, contextDecorator, contextOf, RequestContext } from "../request-context.ts";
import { newRequestId } from "../request-id.ts";
import { tooLarge, type UploadLimits, Uploads, type UploadTimes } from "../uploads.ts";
import { chatHandler } from "./chat.ts";
import { Cors } from "./cors.ts";
import { type Abandoned, RunningRequests } from "./running-requests.ts";

export interface PublicDependencies {
  store: Store;
  ledger: Ledger;
  plans: Plans;
  catalog: Catalog;
  metrics: Metrics;
  logger: Logger;
  /** Get the record of each request, after the metrics and the request log. */
  observers?: readonly RequestObserver[];
}

export interface PublicOptions {
  /** Time without a heartbeat after which a hold is ended by its last checkpoint. */
  holdTtlMs: number;
  connections: ConnectionLimits;
  limits: UploadLimits &
    RefusalLimits & {
      messagesMax: number;
      /** Most keys in the JSON of one body. */
      keysMax: number;
      /** A client that takes nothing of a stream for so long is dropped. */
      streamIdleMs: number;
      /** A stream is never silent for longer. */
      keepAliveMs: number;
    };
  /** Origins of browser pages that may call; `*` for any; none by default. */
  corsOrigins: readonly string[];
  /** For tests, which do not wait as long. */
  uploadTimes?: UploadTimes;
}

/** Longest time until the headers of a request are complete, counted from the connection or from their first byte. */
const headersTimeoutMs = 15_000;

/** Longest time that a connection without a request stays open; longer than balancers keep theirs. */
const keepAliveTimeoutMs = 72_000;

/** How often Node looks for connections that have exceeded these times. */
const connectionsCheckMs = 2_000;

export interface PublicServer {
  /** Port 0: a free one. Answers with the base address, `http://127.0.0.1:8080`. */
  listen(address: { host: string; port: number }): Promise<string>;
  /** Requests that are being answered. */
  readonly running: number;
  readonly connections: { readonly count: number; readonly max: number };
  /** Request bodies that are being received or checked. */
  readonly uploads: { readonly count: number; readonly bytes: number };
  readonly draining: boolean;
  /** From now on each answer tells its client to come back over another connection: a balancer sends it elsewhere. */
  retire(): void;
  /** From now on new requests are refused with 503; resolves when the running ones have ended or are abandoned. */
  drain(): Promise<void>;
  /** Ends the running requests as they stand; each client is told that the service stops. */
  stop(): void;
  /** After `drain` and `stop`: closes the connections of what still runs, and waits for it no longer. */
  abandon(): Abandoned;
  /** Drains, then closes the listener and every connection. Idempotent. */
  close(): Promise<void>;
}

export function createPublicServer(dependencies: PublicDependencies, options: PublicOptions): PublicServer {
  const { store, ledger, plans, catalog, metrics, logger } = dependencies;
  const { limits, holdTtlMs } = options;
  const running = new RunningRequests();
  const uploads = new Uploads(limits, options.uploadTimes);
  const app = createApp(dependencies, options, running, uploads);
  const refusedConnections = new RefusedConnectionLog(logger);
  const connections = new Connections(options.connections, (reason, address) => {
    metrics.connectionRefused(reason);
    refusedConnections.refused(reason, address);
  });
  connections.guard(app.server);
  limitPipelining(app.server);

  let closing: Promise<void> | null = null;

  app.route({
    method: "POST",
    url: chatPath,
    handler: chatHandler({ catalog, ledger, holdTtlMs }, running, logger, limits),
  });
  app.get(balancePath, async (request, reply) => {
    const { accountId } = callerOf(request);
    const balance = await running.need(request.raw, reply.raw, async () =>
      balanceOf(await store.snapshot(accountId), plans),
    );
    if (balance === null) contextOf(request).leaveUnanswered(reply);
    else sendJson(request, reply, balanceObject(balance));
  });
  app.get(modelsPath, async (request, reply) => {
    const caller = callerOf(request);
    const usable = catalog
      .all()
      .filter(({ id }) => allows(caller.models, id) && allows(caller.plan.models, id));
    sendJson(request, reply, modelList(usable));
  });

  return {
    listen: (address) => listenOn(app, address),
    get running() {
      return running.count;
    },
    connections,
    uploads,
    get draining() {
      return running.draining;
    },
    retire: () => running.retire(),
    drain: () => running.drain(),
    stop: () => running.stop(),
    abandon: () => running.abandon(),
    close() {
      closing ??= running.drain().then(() => app.close());
      return closing;
    },
  };

  function sendJson(request: FastifyRequest, reply: FastifyReply, body: object): void {
    contextOf(request).finish(200, null);
    reply.type("application/json; charset=utf-8").send(JSON.stringify(body));
  }
}

function createApp(
  dependencies: PublicDependencies,
  { limits, corsOrigins }: PublicOptions,
  running: RunningRequests,
  uploads: Uploads,
): FastifyInstance {
  const { logger, metrics } = dependencies;
  const allowance = new RefusalAllowance(limits);
  const observers = [metrics, new RequestLog(logger), ...(dependencies.observers ?? [])];
  const cors = new Cors(corsOrigins);

  const app = fastify({
    logger: false,
    genReqId: newRequestId,
    // The router decodes escapes and knows few methods; what it is given has been decided already.
    rewriteUrl: (request) => endpointOf(request.url ?? "") ?? "/",
    // Behind the limits of uploads.ts, which answer with a code.
    requestTimeout: headersTimeoutMs + limits.uploadMs + 2 * connectionsCheckMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    return503OnClosing: false,
    // By then no answer is under way; connections that are open but silent would keep the process for minutes.
    forceCloseConnections: true,
    http: {
      requireHostHeader: false,
      headersTimeout: headersTimeoutMs,
      connectionsCheckingInterval: connectionsCheckMs,
    },
    clientErrorHandler: (error, socket) => refuseUnparsable(error, socket, running.busy(socket)),
  });
  // A client that asks first is told to go on only when its body is wanted.
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    app.server.emit("request", request, response);
  };
  app.server.on("checkContinue", answer);
  app.server.on("checkExpectation", answer);

  app.decorateRequest(contextDecorator);
  app.removeAllContentTypeParsers();
  // The handler reads the body itself.
  app.addContentTypeParser("*", (_request, _body, done) => done(null));

  app.addHook("onRequest", async (request, reply) => {
    const { method, headers } = request;
    const endpoint = endpointOf(request.originalUrl);
    const context = new RequestContext(request, endpoint, { allowance, observers });
    request.setDecorator(contextDecorator, context);
    reply.header("x-request-id", request.id);
    reply.headers(cors.headers(headers));
    if (endpoint === null) throw unknownPath(request.originalUrl);
    if (request.is404) {
      const allowed = methodsOf(endpoint);
      if (cors.isPreflight(method, headers)) {
        context.finish(204, null);
        return reply.code(204).headers(cors.preflightHeaders(headers, allowed)).send();
      }
      reply.header("allow", cors.enabled ? `${allowed}, OPTIONS` : allowed);
      throw methodNotAllowed(endpoint, method);
    }
    const caller = await running.need(request.raw, reply.raw, () =>
      authenticate(dependencies, headers.authorization, Date.now()),
    );
    if (caller === null) return context.leaveUnanswered(reply);
    context.record.caller = caller;
    if (!context.record.isChat) return;
    allowance.require(caller);
    context.upload = uploads.admit(caller, headers);
    checkBody(request, limits.bodyBytesMax);
    if (context.holdsBody) reply.raw.writeContinue();
    context.holdsBody = false;
  });
  app.addHook("onSend", async (request, reply) => {
    reply.headers(running.connectionHeaders());
    // Otherwise Node would wait for the rest of the body before it takes the next request.
    if (isUploading(request.raw)) reply.header("connection", "close");
  });
  app.setErrorHandler((error, request, reply) => {
    const refusal = refusalOf(error);
    logRefusal(logger, refusal, request.id);
    refuse(request, reply, refusal);
  });
  return app;
}

/** What the headers say about a body, before it is read. */
function checkBody({ headers }: FastifyRequest, bodyBytesMax: number): void {
  if (Number(headers["content-length"] ?? 0) > bodyBytesMax) throw tooLarge(bodyBytesMax);
  const type = headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json") throw notJson();
  const encoding = headers["content-encoding"]?.trim().toLowerCase();
  if (encoding !== undefined && encoding !== "" && encoding !== "identity") {
    throw new Refusal("unsupported_media_type", "Send the body as it is, without content-encoding.");
  }
}
