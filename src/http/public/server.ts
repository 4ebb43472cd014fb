/**
 * The public listener: three endpoints, and the same order of refusal on each of them.
 *
 *   path and method -> key -> allowances for reads, refusals and uploads
 *   -> body size and media type -> JSON -> schema -> model
 *   -> prompt length -> rates and concurrency -> credits -> capacity
 *
 * The first four are checked in `#receive` and chat-service.ts, before a byte of the body is read,
 * JSON and schema in openai-format/request.ts, the others in chat/generate.ts. While the service
 * drains, `shutting_down` comes before the key, so that no request waits for a database that is
 * away.
 */

import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import type { Logger } from "pino";
import { balanceObject } from "../../accounts/balance-object.ts";
import { FrontEnds } from "../../accounts/front-ends.ts";
import { authenticate, type Caller } from "../../accounts/keys.ts";
import type { Catalog } from "../../chat/catalog.ts";
import { Refusal } from "../../errors.ts";
import { balanceOf } from "../../ledger/balance.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import { limits as fixedLimits } from "../../limits/limits.ts";
import type { Store } from "../../store/store.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import { refusedConnections } from "../../telemetry/refused-connections.ts";
import { RequestLog } from "../../telemetry/request-log.ts";
import { newRequestId, type RequestObserver } from "../../telemetry/request-record.ts";
import { type ConnectionLimits, Connections } from "../connections.ts";
import { isUploading, refuseUnparsable } from "../error-response.ts";
import { type Address, listenOn } from "../listening.ts";
import { safeHeaders } from "../openai-format/error-body.ts";
import { modelList } from "../openai-format/response.ts";
import { ReadRate } from "../read-rate.ts";
import { schemaController } from "../schema-compilers.ts";
import { type ChatLimits, ChatService, readBodiesInHandlers } from "./chat-service.ts";
import { Cors } from "./cors.ts";
import { errorHandler } from "./error-handler.ts";
import { callerOf, contextOf } from "./request-context.ts";
import type { RunningRequests } from "./running-requests.ts";
import type { Uploads, UploadTimes } from "./uploads.ts";

export interface PublicDependencies {
  store: Store;
  ledger: Ledger;
  catalog: Catalog;
  metrics: Metrics;
  logger: Logger;
  /** Get the record of each request, after the metrics and the request log. */
  observers?: readonly RequestObserver[];
}

/** Settings that can change while the server listens. */
export interface PublicSettings {
  connections: ConnectionLimits;
  limits: ChatLimits;
  /** Origins of browser pages that may call; `*` for any; none by default. */
  corsOrigins: readonly string[];
}

interface PublicOptions extends PublicSettings {
  /** Time without a heartbeat after which a hold is ended by its last checkpoint. */
  holdTtlMs: number;
  /** For tests: shorter times. */
  uploadTimes?: UploadTimes;
}

/**
 * Longest time until the headers of a request are complete, counted from the connection or from
 * their first byte.
 */
const headersTimeoutMs = fixedLimits.headers.most;

/**
 * Longest time that a connection without a request stays open; longer than balancers keep theirs.
 */
const keepAliveTimeoutMs = fixedLimits.keepAlive.most;

/** How often Node looks for connections that have exceeded these times. */
const connectionsCheckMs = 2_000;

/** Longer than the limits of uploads.ts, which answer with a code. */
function requestTimeoutMsOf(uploadMs: number): number {
  return headersTimeoutMs + uploadMs + 2 * connectionsCheckMs;
}

const chatPath = "/v1/chat/completions";
const balancePath = "/v1/balance";
const modelsPath = "/v1/models";

/**
 * Methods of each endpoint, as the headers `allow` and `access-control-allow-methods` list them.
 */
const methods: ReadonlyMap<string, string> = new Map([
  [chatPath, "POST"],
  [balancePath, "GET, HEAD"],
  [modelsPath, "GET, HEAD"],
]);

export class PublicServer {
  /** The chat requests of all listeners. */
  readonly chat: ChatService;
  readonly connections: Connections;
  readonly #dependencies: PublicDependencies;
  readonly #frontEnds: FrontEnds;
  readonly #reads = new ReadRate("key");
  #cors: Cors;
  readonly #app: FastifyInstance;
  #closing: Promise<void> | null = null;

  constructor(dependencies: PublicDependencies, options: PublicOptions) {
    const { catalog, ledger, metrics, logger, observers = [] } = dependencies;
    const { limits, holdTtlMs, uploadTimes } = options;
    this.#dependencies = dependencies;
    this.#frontEnds = new FrontEnds(dependencies.store);
    this.#cors = new Cors(options.corsOrigins);
    this.chat = new ChatService({
      catalog,
      ledger,
      logger,
      limits,
      holdTtlMs,
      uploadTimes,
      observers: [metrics, new RequestLog(logger), ...observers],
    });
    this.#app = this.#createApp(limits.uploadMs);
    this.#app.post(chatPath, (request, reply) => this.chat.handle(request, reply, "as asked"));
    this.#app.get(balancePath, (request, reply) => this.#sendBalance(request, reply));
    this.#app.get(modelsPath, async (request, reply) => this.#sendModels(request, reply));
    this.connections = new Connections(options.connections);
    this.connections.guard(this.#app.server, refusedConnections("public", { metrics, logger }));
  }

  get requests(): RunningRequests {
    return this.chat.requests;
  }

  get uploads(): Uploads {
    return this.chat.uploads;
  }

  /** Changes the settings. Requests that have been admitted keep the limits of their bodies. */
  configure({ connections, limits, corsOrigins }: PublicSettings): void {
    this.#cors = new Cors(corsOrigins);
    this.connections.configure(connections);
    this.chat.configure(limits);
    this.#app.server.requestTimeout = requestTimeoutMsOf(limits.uploadMs);
  }

  /**
   * Resolves with the URL of the listener, for example `http://127.0.0.1:8080`. Port 0: any free
   * port.
   */
  listen(address: Address): Promise<string> {
    return listenOn(this.#app, address);
  }

  /** Drains, then closes the listener and every connection. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.requests.drain().then(() => this.#app.close());
    return this.#closing;
  }

  #createApp(uploadMs: number): FastifyInstance {
    const app = fastify({
      logger: false,
      genReqId: newRequestId,
      // The router decodes escapes and knows few methods, so the endpoint is found before.
      rewriteUrl: (request) => endpointOf(request.url ?? "") ?? "/",
      requestTimeout: requestTimeoutMsOf(uploadMs),
      keepAliveTimeout: keepAliveTimeoutMs,
      return503OnClosing: false,
      schemaController,
      // No answer is running any more when the listener closes. Idle connections would keep the
      // process for minutes.
      forceCloseConnections: true,
      http: {
        requireHostHeader: false,
        headersTimeout: headersTimeoutMs,
        connectionsCheckingInterval: connectionsCheckMs,
      },
      clientErrorHandler: (error, socket) => refuseUnparsable(error, socket, this.requests.busy(socket)),
    });
    // A client that sends `expect: 100-continue` is asked for its body only if the body is wanted.
    for (const event of ["checkContinue", "checkExpectation"]) {
      app.server.on(event, (request, response) => app.server.emit("request", request, response));
    }
    readBodiesInHandlers(app);
    app.addHook("onRequest", (request, reply) => this.#receive(request, reply));
    app.addHook("onSend", (request, reply, _payload, done) => {
      reply.headers(this.requests.connectionHeaders());
      // Otherwise Node would wait for the rest of the body before it takes the next request.
      if (isUploading(request.raw)) reply.header("connection", "close");
      done();
    });
    app.setErrorHandler(errorHandler(this.#dependencies.logger));
    return app;
  }

  /** Checks everything about a request that is known before its body is read. */
  async #receive(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
    const { headers } = request;
    const path = endpointOf(request.originalUrl);
    const isChat = path === chatPath;
    const holdsBody = headers.expect?.toLowerCase() === "100-continue";
    const context = this.chat.begin(request, { path, isChat, holdsBody });
    reply.header("x-request-id", request.id).headers(safeHeaders);
    reply.headers(this.#cors.headers(headers));
    if (path === null) throw unknownPath(request.originalUrl);
    if (request.is404) return this.#refuseMethod(request, reply, path);
    context.callerNow = () => this.#findCaller(request, isChat);
    const caller = await this.requests.waitUnlessGone(request.raw, reply.raw, context.callerNow);
    if (caller === null) {
      context.finishUnanswered(reply);
      return;
    }
    context.record.caller = caller;
    if (isChat) this.chat.admit(request, reply);
    // Many people use the key of a front end, each with an account.
    else this.#reads.count(caller.key.account === caller.accountId ? caller.key.id : caller.accountId);
    return;
  }

  async #findCaller({ raw, headers }: FastifyRequest, isChat: boolean): Promise<Caller> {
    const { store } = this.#dependencies;
    const found = await authenticate(store, headers.authorization, store.times().atMs);
    return await this.#frontEnds.findCaller(found, { rawHeaders: raw.rawHeaders, needsPerson: isChat });
  }

  /** Throws `method_not_allowed`, except for the preflight request of a browser. */
  #refuseMethod(request: FastifyRequest, reply: FastifyReply, path: string): FastifyReply {
    const { method, headers } = request;
    const allowed = methods.get(path) ?? "";
    const cors = this.#cors;
    if (cors.isPreflight(method, headers)) {
      contextOf(request).finish(204, null);
      return reply.code(204).headers(cors.preflightHeaders(headers, allowed)).send();
    }
    reply.header("allow", cors.enabled ? `${allowed}, OPTIONS` : allowed);
    throw new Refusal("method_not_allowed", `${path} does not take ${method}, only ${allowed}.`);
  }

  async #sendBalance(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { store } = this.#dependencies;
    const { accountId } = callerOf(request);
    const balance = await this.requests.waitUnlessGone(request.raw, reply.raw, async () =>
      balanceOf(await store.accountSnapshot(accountId)),
    );
    if (balance === null) contextOf(request).finishUnanswered(reply);
    else sendJson(request, reply, balanceObject(balance));
  }

  #sendModels(request: FastifyRequest, reply: FastifyReply): void {
    const caller = callerOf(request);
    sendJson(request, reply, modelList(this.#dependencies.catalog.usable(caller.key, caller.plan)));
  }
}

function sendJson(request: FastifyRequest, reply: FastifyReply, body: object): void {
  contextOf(request).finish(200, null);
  reply.type("application/json; charset=utf-8").send(JSON.stringify(body));
}

/**
 * Returns the endpoint that a request target names, or null. Paths are compared byte for byte: no
 * trailing slash, no escapes, no other case. A query is ignored. HTTP/1.1 allows the absolute form
 * too (`GET http://host/v1/models`).
 */
function endpointOf(target: string): string | null {
  const query = target.indexOf("?");
  let path = query === -1 ? target : target.slice(0, query);
  if (!path.startsWith("/")) path = /^https?:\/\/[^/]*(\/.*)$/i.exec(path)?.[1] ?? path;
  return methods.has(path) ? path : null;
}

/** Longest part of a target that a message repeats. */
const shownCharactersMax = 100;

function unknownPath(target: string): Refusal {
  return new Refusal(
    "unknown_path",
    `Unknown path ${target.slice(0, shownCharactersMax)}. The paths are POST ${chatPath}, GET ${balancePath} and GET ${modelsPath}.`,
  );
}
