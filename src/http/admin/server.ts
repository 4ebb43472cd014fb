/**
 * The operator's listener: health, readiness and metrics of the service, and the operator API
 * below `/admin`. It has its own port, bound to loopback unless configured otherwise.
 *
 * `/healthz`, `/readyz`, `/metrics`, the pages at `/console` and the documents at `/docs` need no
 * token; they name no account. All other requests need the operator token or a session. A page of
 * another origin in the operator's browser cannot use this listener: it does not know the token,
 * it cannot send the header that sessions need, and no CORS header lets it read a response. Bodies
 * must be JSON, which browsers do not send to another origin without a pre-flight request.
 */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { isoTime } from "../../accounts/json-objects.ts";
import { requireRole } from "../../accounts/refusals.ts";
import type { Role } from "../../actors.ts";
import type { EngineState } from "../../chat/engine.ts";
import type { LastReload } from "../../config/changes.ts";
import type { ClockState } from "../../ledger/clock.ts";
import { limits } from "../../limits/limits.ts";
import { isRecord } from "../../objects.ts";
import { Peers } from "../../peers.ts";
import { inTime } from "../../retry.ts";
import type { Store } from "../../store/store.ts";
import { metricsText } from "../../telemetry/instruments.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import { refusedConnections } from "../../telemetry/refused-connections.ts";
import type { AllowedHosts } from "../api/allowed-hosts.ts";
import { createApiApp } from "../api/app.ts";
import { guard } from "../api/guard.ts";
import { signInRoutesOf } from "../api/session.ts";
import { Connections } from "../connections.ts";
import { ReadRate } from "../read-rate.ts";
import {
  documentPagePaths,
  documentPageRoutes,
  pagePaths,
  pageRoutes,
  type ReadDocuments,
  type ReadWebFiles,
} from "../web-files.ts";
import type { AdminDependencies, Health } from "./dependencies.ts";
import { type LiveSources, livePartOf, liveStateOf } from "./live-state.ts";
import { isLoaded, modelWarnings } from "./model-health.ts";
import { OperatorSignIn, type OperatorSignInDependencies, senderOf } from "./operator-sign-in.ts";
import { operatorResponseTo, unknownPath } from "./refusals.ts";
import { requestObject } from "./request-object.ts";
import { adminRoutes } from "./routes.ts";

interface OperatorDependencies
  extends Omit<AdminDependencies, "signIn" | "health" | "reads" | "liveState" | "requests" | "live">,
    LiveSources,
    Omit<OperatorSignInDependencies, "store"> {
  /** Default: there is no other process. */
  peers?: Peers;
  /** Version of the service, for the OpenAPI document. */
  version: string;
  /** Whether a proxy with this address names its client in `X-Forwarded-For`. */
  isTrusted(address: string): boolean;
  allowedHosts: AllowedHosts;
  metrics: Metrics;
  logger: Logger;
  draining(): boolean;
  /** The clock at the last look. */
  clock(): ClockState;
  /** Whether the database could be written lately. */
  isWritable(): boolean;
  /** Sentences for the operator about what is not as configured. */
  warnings(): string[];
  lastReload(): LastReload | null;
  readConsole: ReadWebFiles;
  readDocuments: ReadDocuments;
}

export interface Readiness extends Health {
  models: Record<string, EngineState>;
  /** The last reload that was tried; null if there was none. */
  last_reload: { at: string; successful: boolean } | null;
}

/**
 * Fewer than the files that app/open-files.ts reserves. One client address cannot take all
 * connections.
 */
export const operatorConnectionLimits = {
  connectionsMax: limits.operatorConnections.most,
  connectionsPerAddressMax: limits.operatorAddressConnections.most,
  trustedProxies: [],
};

const consolePath = "/console";
const documentsPath = "/docs";
const healthPath = "/healthz";
const openPaths: ReadonlySet<string | null> = new Set([
  healthPath,
  "/readyz",
  "/metrics",
  ...pagePaths(consolePath),
  ...documentPagePaths(documentsPath),
]);
/** Needs the token, but is not in the OpenAPI document. */
const documentPath = "/admin/openapi.json";

export function createOperatorServer(dependencies: OperatorDependencies): FastifyInstance {
  const { metrics, logger, version, peers = new Peers() } = dependencies;
  const signIn = new OperatorSignIn(dependencies);
  const app = createApiApp(dependencies.isTrusted);
  app.decorateRequest("session", null);
  app.decorateRequest("actor", null);
  const connections = new Connections(operatorConnectionLimits);
  connections.guard(app.server, refusedConnections("operator", { metrics, logger }));

  guard(app, {
    section: "operator",
    hostSetting: "operator.hosts",
    openPaths,
    // Health checks may send any host name; the response reveals nothing about the service.
    hostlessPaths: new Set([healthPath]),
    signInRoutes: signInRoutesOf("/admin"),
    pageInstead: (request) => (isBrowserAtRoot(request) ? consolePath : null),
    undocumentedPaths: new Set([documentPath]),
    allowedHosts: dependencies.allowedHosts,
    logger,
    authenticate: async (request, reply) => {
      await signIn.authenticate(request, reply);
      requireRole(senderOf(request).role, neededRole(request));
    },
    logged: ({ params, session, actor }, status) => ({
      ...(actor === null ? {} : { by: actor.by }),
      // The path of a refused request may contain anything, even a key by mistake.
      ...(status !== null && status < 400 && isRecord(params)
        ? { account: params.account, keyId: params.key }
        : {}),
      ...(session === null ? {} : { session: session.hash.slice(0, 8) }),
    }),
    responseTo: operatorResponseTo,
    unknownPath,
  });

  app.get(healthPath, async () => ({ status: "ok" }));
  // Without a token, a burst of requests causes only one read of the store.
  const askHealth = peers.all("health", (answers: boolean) => readinessOf(dependencies, answers));
  const health = async (answers: boolean) => readinessOfAll(await askHealth(answers));
  const readinessNow = shared(async () => await health(await isAnswering(dependencies.store)));
  // Longer than their time for the database.
  const othersMetrics = peers.others("metrics", () => metrics.values(), 4_000);
  const allMetrics = shared(async () => {
    if (peers.areNone) return await metrics.text();
    const own = await metrics.values();
    return await metricsText([own, ...(await othersMetrics(null, own)).filter((each) => each !== null)]);
  });
  app.get("/readyz", async (_request, reply) => {
    const readiness = await readinessNow();
    return reply.code(readiness.ready ? 200 : 503).send(readiness);
  });
  app.get("/metrics", async (_request, reply) => reply.type(metrics.contentType).send(await allMetrics()));
  pageRoutes(app, consolePath, dependencies.readConsole);
  documentPageRoutes(app, documentsPath, dependencies.readDocuments);
  const askLive = peers.all("live", () => livePartOf(dependencies));
  const liveState = shared(async () => liveStateOf(await askLive(null)));
  const askRequests = peers.all("requests", () => dependencies.requests.list().map(requestObject.of));
  const requests = async () => (await askRequests(null)).flatMap((each) => each ?? []);
  const asked = { signIn, health, liveState, requests, reads: new ReadRate("session") };
  adminRoutes(app, { ...dependencies, ...asked }, version);
  app.get(documentPath, async () => app.swagger());
  return app;
}

/** Unknown paths and the document of the API need somebody, and no more. */
function neededRole({ routeOptions: { url, schema } }: FastifyRequest): Role {
  return url === undefined || url === documentPath ? "viewer" : (schema?.role ?? "owner");
}

/** Only browsers ask for HTML. All other requests of `/` need the token, and get JSON. */
function isBrowserAtRoot({ method, originalUrl, headers }: FastifyRequest): boolean {
  const isRead = method === "GET" || method === "HEAD";
  return (
    isRead &&
    /^\/(?:\?|$)/.test(originalUrl) &&
    /(?:^|,)\s*text\/html\s*(?:[,;]|$)/i.test(headers.accept ?? "")
  );
}

function readinessOf(dependencies: OperatorDependencies, answers: boolean): Readiness {
  const { catalog, clock, draining, isWritable, lastReload, warnings } = dependencies;
  const store = !answers ? "unreachable" : isWritable() ? "ok" : "read_only";
  const last = lastReload();
  return {
    ready: store === "ok" && !draining() && catalog.all().some(isLoaded),
    store,
    clock: clock().place,
    draining: draining(),
    warnings: [...warnings(), ...modelWarnings(catalog.all())],
    models: Object.fromEntries(catalog.all().map(({ id, engine }) => [id, engine.state])),
    last_reload: last && { at: isoTime(last.atMs), successful: last.successful },
  };
}

/** The service is ready when all of its processes are. */
function readinessOfAll([own, ...others]: readonly [Readiness, ...(Readiness | null)[]]): Readiness {
  const all = [own, ...others.filter((each) => each !== null)];
  const missing = others.length + 1 - all.length;
  const silent = `${missing} of ${others.length + 1} workers do not answer.`;
  const warnings = [...all.flatMap((each) => each.warnings), ...(missing === 0 ? [] : [silent])];
  return {
    ...(all.find(({ ready }) => !ready) ?? own),
    ready: missing === 0 && all.every(({ ready }) => ready),
    warnings: [...new Set(warnings)],
  };
}

async function isAnswering(store: Store): Promise<boolean> {
  return await inTime(store.accounts({ limit: 1 })).then(
    () => true,
    () => false,
  );
}

/** Returns a function whose simultaneous callers share one call of `read`. */
function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let pending: Promise<T> | null = null;
  return () => {
    pending ??= read().finally(() => {
      pending = null;
    });
    return pending;
  };
}
