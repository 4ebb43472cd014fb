/**
 * The operator's listener, apart from the public one and bound to loopback unless configured otherwise: whether the
 * service is alive and whether it can answer, its metrics, and the operator API below `/admin`.
 *
 * Without the operator's token there are `/healthz`, `/readyz` and `/metrics`, which name no account, and nothing
 * else. A page in the operator's browser can do no harm here: it does not know the token, is told of no permission
 * to read answers, and a body must be JSON, which browsers of their own accord do not send to another origin.
 */
import { hash, timingSafeEqual } from "node:crypto";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { EngineState } from "../../chat/engine.ts";
import { Refusal } from "../../errors.ts";
import { StoreUnavailableError } from "../../ledger/retry.ts";
import { ListTooSlowError, type Store } from "../../store/store.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import { Connections } from "../connections.ts";
import { isUploading, sendRefusal } from "../error-handler.ts";
import { type ErrorResponse, errorBody, errorHeaders } from "../openai-format/error-body.ts";
import { limitPipelining } from "../pipelining.ts";
import { AllowedHosts, loggable } from "./allowed-hosts.ts";
import { type AdminDependencies, adminBodyBytesMax, createApp } from "./app.ts";
import { OperatorRefusal, unknownPath } from "./refusals.ts";
import { adminRoutes } from "./routes.ts";

export interface OperatorDependencies extends AdminDependencies {
  /** Of the service; in the OpenAPI document. */
  version: string;
  /** What `Authorization: Bearer` must be followed by. */
  token: string;
  /** Names of this listener beside IP addresses and `localhost`. */
  hosts: readonly string[];
  metrics: Metrics;
  logger: Logger;
  draining(): boolean;
}

export interface Readiness {
  ready: boolean;
  store: "ok" | "unreachable";
  /** The service is being stopped. */
  draining: boolean;
  models: Record<string, EngineState>;
}

/** Less than the files that app/open-files.ts reserves. One address leaves connections to others. */
export const connectionLimits = { connectionsMax: 128, connectionsPerAddressMax: 96, trustedProxies: [] };

const healthPath = "/healthz";
const openPaths: ReadonlySet<string | null> = new Set([healthPath, "/readyz", "/metrics"]);
/** Beside those, what the OpenAPI document does not describe. */
const documentPath = "/admin/openapi.json";

export function createOperatorServer(dependencies: OperatorDependencies): FastifyInstance {
  const { token, metrics, logger, version } = dependencies;
  const isToken = tokenCheck(token);
  const allowedHosts = new AllowedHosts(dependencies.hosts);
  const app = createApp();
  new Connections(connectionLimits).guard(app.server);
  limitPipelining(app.server);

  // By the route that was found, never by how its address was spelled. What is no route needs the token too.
  app.addHook("onRequest", async (request, reply) => {
    const route = request.routeOptions.url ?? null;
    reply.header("x-request-id", request.id);
    // Health checks send any host name, and the answer says nothing about the service.
    if (route !== healthPath) allowedHosts.check(request.raw, request.originalUrl);
    if (!openPaths.has(route)) requireToken(request, isToken);
  });
  app.addHook("onSend", async (request, reply) => {
    // Otherwise Node would wait for the rest of the body before it takes the next request.
    if (isUploading(request.raw)) reply.header("connection", "close");
  });
  app.addHook("onResponse", async (request, reply) => {
    const route = request.routeOptions.url ?? null;
    if (openPaths.has(route)) return;
    logger.info(
      {
        requestId: request.id,
        method: request.method,
        path: route,
        // What is refused may name anything, a key by mistake among it.
        ...(reply.statusCode < 400 ? namedIn(request.params) : {}),
        status: reply.statusCode,
        durationMs: Math.round(reply.elapsedTime),
      },
      `${request.method} ${route ?? "(unknown path)"} ${reply.statusCode}`,
    );
  });
  app.setErrorHandler((error, request, reply) => {
    const told = toldFor(error);
    if (told.status >= 500)
      logger.error({ requestId: request.id, code: told.code, err: error }, "operator request failed");
    if (told.status === 403) {
      const { host, origin } = request.headers;
      logger.warn(
        { requestId: request.id, code: told.code, host: loggable(host), origin: loggable(origin) },
        "operator request refused; operator.hosts does not list its host or origin",
      );
    }
    reply.headers(errorHeaders(told));
    // Node has asked for a body that its client holds back, before the request came here.
    sendRefusal(request, reply, { status: told.status, body: errorBody(told), holdsBody: false });
  });

  app.get(healthPath, async () => ({ status: "ok" }));
  // A burst of requests that need no token costs one look at the store.
  const storeAnswers = shared(() => isAnswering(dependencies.store));
  const metricsText = shared(() => metrics.text());
  app.get("/readyz", async (_request, reply) => {
    const readiness = readinessOf(dependencies, await storeAnswers());
    return reply.code(readiness.ready ? 200 : 503).send(readiness);
  });
  app.get("/metrics", async (_request, reply) => reply.type(metrics.contentType).send(await metricsText()));
  const openApi = adminRoutes(app, dependencies, version);
  app.get(documentPath, async () => openApi.document());

  app.setNotFoundHandler(async (request, reply) => {
    const path = request.url.split("?", 1)[0] ?? "";
    const methods = openPaths.has(path) || path === documentPath ? ["GET", "HEAD"] : openApi.methodsOf(path);
    if (methods.length === 0) throw unknownPath();
    reply.header("allow", methods.join(", "));
    throw new Refusal(
      "method_not_allowed",
      `${path.slice(0, 100)} does not take ${request.method}, only ${methods.join(", ")}.`,
    );
  });
  return app;
}

function readinessOf({ catalog, draining }: OperatorDependencies, answers: boolean): Readiness {
  const models = Object.fromEntries(catalog.all().map(({ id, engine }) => [id, engine.state]));
  const ready = answers && !draining() && Object.values(models).includes("ready");
  return { ready, store: answers ? "ok" : "unreachable", draining: draining(), models };
}

async function isAnswering(store: Store): Promise<boolean> {
  return await store.accounts({ limit: 1 }).then(
    () => true,
    () => false,
  );
}

/** `read`, with one result for all callers that arrive before it is there. */
function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<T> | null = null;
  return () => {
    underWay ??= read().finally(() => {
      underWay = null;
    });
    return underWay;
  };
}

/** Compares digests, so that neither length nor content of the token shows in the time that it takes. */
function tokenCheck(token: string): (given: string) => boolean {
  const digest = (text: string) => hash("sha256", text, "buffer");
  const right = digest(token);
  return (given) => timingSafeEqual(digest(given), right);
}

function requireToken({ headers }: FastifyRequest, isToken: (given: string) => boolean): void {
  const { authorization } = headers;
  const [, given] = /^bearer +(\S+) *$/i.exec(authorization ?? "") ?? [];
  if (given === undefined) {
    throw new OperatorRefusal(
      "missing_operator_token",
      "This needs the operator token, in a header: Authorization: Bearer ... It is INKWELL_OPERATOR_TOKEN, or in the file operator-token of the data folder.",
    );
  }
  if (!isToken(given)) {
    throw new OperatorRefusal("invalid_operator_token", "This is not the operator token of this service.");
  }
}

/** Which account or key an operator's request was about; for the log. */
function namedIn(params: unknown): object {
  if (typeof params !== "object" || params === null) return {};
  return {
    ...("account" in params ? { account: params.account } : {}),
    ...("key" in params ? { keyId: params.key } : {}),
  };
}

function toldFor(error: unknown): ErrorResponse {
  if (error instanceof OperatorRefusal) return error;
  if (error instanceof Refusal) {
    // Here the one who asks is the one whom the detail is for.
    if (error.detail === undefined) return error;
    return { ...shapeOf(error), message: `${error.message} (${error.detail})` };
  }
  if (error instanceof ListTooSlowError) return new OperatorRefusal("list_too_slow", error.message);
  if (error instanceof StoreUnavailableError) {
    return new Refusal(
      "store_unavailable",
      "The database cannot be reached or written just now. Sending the same request again is safe.",
    );
  }
  return refusalOfFastify(error);
}

function shapeOf({ status, type, code, message, param, retryAfterSeconds }: Refusal): ErrorResponse {
  return { status, type, code, message, param, retryAfterSeconds };
}

function refusalOfFastify(error: unknown): Refusal {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  const status = error instanceof Error && "statusCode" in error ? error.statusCode : undefined;
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new Refusal(
      "unsupported_media_type",
      "Send the body as JSON, with the header content-type: application/json.",
    );
  }
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return new Refusal("request_too_large", `The body is larger than ${adminBodyBytesMax} bytes.`);
  }
  if (status === 400)
    return new Refusal("invalid_json", "The body ended before its content-length was reached.");
  return new Refusal("internal_error", "Something went wrong here, not in the request; the log says more.", {
    cause: error,
  });
}
