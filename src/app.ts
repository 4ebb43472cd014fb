/**
 * The composition root: with src/main/ the only place that names concrete stores and engines. Puts the parts together,
 * starts them in an order in which nothing is half done when one of them fails, and stops them in the opposite one.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { access, constants } from "node:fs/promises";
import { hostname } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { type FirstAccount, openFirstAccount } from "./accounts/first-account.ts";
import { createChatService } from "./app/chat-service.ts";
import { fingerprintOf } from "./app/config-fingerprint.ts";
import { openStore } from "./app/database.ts";
import { dialled, listening, requirePort, urlOf } from "./app/listening.ts";
import { catalogued, startModels } from "./app/models.ts";
import { connectionLimits } from "./app/open-files.ts";
import type { StartupBanner } from "./app/startup-banner.ts";
import { Catalog } from "./chat/catalog.ts";
import { EngineSlot } from "./chat/engine-slot.ts";
import { type Config, operatorToken } from "./config/load.ts";
import { operatorNames } from "./config/operator.ts";
import { messageOf, OperatorError } from "./errors.ts";
import { createOperatorServer } from "./http/admin/server.ts";
import { listenOn } from "./http/listening.ts";
import type { Abandoned } from "./http/public/running-requests.ts";
import type { PublicServer } from "./http/public/server.ts";
import type { Committed } from "./ledger/ledger.ts";
import { makeFolder } from "./make-folder.ts";
import { heartbeatEveryMs, type NodeView, startNodeWatch } from "./store/nodes.ts";
import { startSweeper } from "./store/sweeper.ts";
import { watchEventLoop } from "./telemetry/event-loop.ts";
import { createLogger } from "./telemetry/logger.ts";
import { Metrics } from "./telemetry/metrics.ts";
import type { Tracing } from "./telemetry/traces.ts";

export { audit, backup, type OpenStore, openStore } from "./app/database.ts";
export { pullModel } from "./app/models.ts";

export interface Streams {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
}

export interface RunningService {
  /** To be told now that it is up. A first key is nowhere else. */
  readonly banner: StartupBanner;
  /** Refuses new requests, lets the running ones finish within the drain time, and closes everything. Idempotent. */
  stop(): Promise<void>;
  /** Resolves when the service has stopped. */
  readonly stopped: Promise<void>;
}

/** The times that no operator needs to choose; tests do, so as not to wait for them. */
export interface ServiceTimes {
  /** A stream that is silent for longer gets a comment line, so that nothing on the way takes it for dead. */
  keepAliveMs: number;
  /** Without a heartbeat for so long, a hold is ended by its last checkpoint. */
  holdTtlMs: number;
  /** Between two looks for such holds. */
  sweepEveryMs: number;
  /** Between two words of this process to the other nodes. */
  heartbeatEveryMs: number;
  /** What ended with the drain time has this long to be settled and told. */
  settleMs: number;
}

export const serviceTimes: ServiceTimes = {
  keepAliveMs: 15_000,
  holdTtlMs: 30_000,
  sweepEveryMs: 10_000,
  heartbeatEveryMs,
  settleMs: 10_000,
};

/** Of the package: its manifest lies one folder up, from src as from dist. */
export const version = versionIn(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

/**
 * Resolves when the service answers. Throws an `OperatorError` where it cannot, and the signal's reason when that
 * aborts the start; either way with nothing left running.
 */
export async function serve(
  config: Config,
  io: Streams,
  signal: AbortSignal,
  times = serviceTimes,
): Promise<RunningService> {
  const logger = createLogger(config.log.level, io.stderr);
  if (config.ignoredVariables.length > 0) {
    logger.info(
      { variables: config.ignoredVariables },
      "variables that Kubernetes sets for Services are ignored; enableServiceLinks: false in the pod removes them",
    );
  }
  // In the order in which they are to be undone, last first; each is told how long it may take.
  const undo: ((untilMs: number) => Promise<void>)[] = [];
  const undoAll = async (untilMs: number) => {
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) await step(untilMs);
  };
  let answering: PublicServer | null = null;
  try {
    // Asked before anything is made: the commonest slip leaves no trace.
    await requirePort("listen", config.listen);
    await requirePort("operator", config.operator);
    const connections = connectionLimits(config.limits);
    await makeDataFolder(config.dataDir);
    const token = await operatorToken(config);

    const metrics = new Metrics();
    const loop = watchEventLoop((delayMs) => metrics.eventLoopDelayed(delayMs));
    undo.push(async () => loop.stop());
    // The longest wait of a start, so it begins first.
    const offered = config.models.map((model) => ({ model, slot: new EngineSlot(model.contextWindow) }));
    const loading = new AbortController();
    const either = AbortSignal.any([signal, loading.signal]);
    const models = startModels(config, offered, io.stderr, { logger, metrics }, either);
    undo.push(async () => {
      loading.abort(new Error("the service could not be started"));
      await Promise.allSettled([models]);
      await Promise.all(offered.map(({ slot }) => slot.close()));
    });
    // Whether they could be loaded is asked below; what goes wrong until then is told instead.
    models.catch(() => {});

    // Closed after the ledger, which records charges up to its end.
    const tracing = await startTracing(config, logger, metrics);
    undo.push(async () => tracing?.close());

    const { store, ledger, nodes } = await openStore(config, {
      onHoldLeft: (requestId, reason) =>
        logger.warn(
          { requestId, err: reason },
          "a hold may have been taken and could not be given back; if it was, it expires",
        ),
      onCommit: (commit) => {
        metrics.committed(commit);
        if (commit.expired.length > 0) tellExpired(commit, logger);
      },
    });
    undo.push(async (untilMs) => {
      await ledger.close(Math.max(0, untilMs - performance.now()));
      await store.close();
    });

    const watch = await startNodeWatch(
      nodes,
      { id: nodeId(), version, fingerprint: fingerprintOf(config) },
      {
        everyMs: times.heartbeatEveryMs,
        onDiffers: (differing) => tellDiffering(differing, logger),
        onError: (error) =>
          logger.warn({ err: error }, "the other nodes could not be looked at; trying again"),
      },
    );
    undo.push(() => watch.stop());

    const catalog = new Catalog(offered.map(({ model, slot }) => catalogued(model, slot)));
    const server = createChatService(
      {
        store,
        ledger,
        catalog,
        plans: config.plans,
        metrics,
        logger,
        watchers: tracing === null ? [] : [tracing],
      },
      {
        holdTtlMs: times.holdTtlMs,
        limits: {
          bodyBytesMax: config.limits.bodyBytesMax,
          uploadBytesMax: config.limits.uploadBytesMax,
          uploadMs: config.limits.uploadMs,
          refusedBytesPerMinute: config.limits.refusedBytesPerMinute,
          refusedMsPerMinute: config.limits.refusedMsPerMinute,
          messagesMax: config.limits.messagesMax,
          keysMax: config.limits.keysMax,
          streamIdleMs: config.limits.streamIdleMs,
          keepAliveMs: times.keepAliveMs,
        },
        corsOrigins: config.cors.origins,
        connections,
      },
    );
    answering = server;
    undo.push(() => server.close());
    const publicUrl = await listening("listen", config.listen, () => server.listen(config.listen));

    // Aborts when the service is going to stop, some time before it refuses anything.
    const leave = new AbortController();
    const leaving = leave.signal;
    const operator = createOperatorServer({
      version,
      token: token.token,
      hosts: operatorNames(config.operator),
      store,
      ledger,
      plans: config.plans,
      catalog,
      metrics,
      nodes: () => watch.nodes(),
      logger,
      draining: () => leaving.aborted || server.draining,
    });
    metrics.observe({
      version,
      catalog,
      running: () => server.running,
      connections: server.connections,
      uploads: server.uploads,
      holdTotals: () => store.holdTotals(),
      nodes: () => watch.nodes(),
      lateCharges: () => ledger.late,
    });
    undo.push(() => operator.close());
    const operatorUrl = await listening("operator", config.operator, () =>
      listenOn(operator, config.operator),
    );

    const sweeper = startSweeper(store, ledger, {
      everyMs: times.sweepEveryMs,
      onError: (error) => logger.error({ err: error }, "expired holds could not be ended; trying again"),
    });
    undo.push(() => sweeper.stop());

    const loaded = await models;
    signal.throwIfAborted();
    const host = dialled(config.listen.host);
    const first: FirstAccount | null = await openFirstAccount(store, ledger, config.plans);
    return {
      ...runningService(config, times, logger, server, leave, undoAll),
      banner: {
        publicUrl: urlOf(host, config.listen.port || portOf(publicUrl)),
        onEveryAddress: host !== config.listen.host,
        operatorUrl,
        tokenFile: token.file,
        models: loaded,
        first,
        onAnyPort: config.listen.port === 0,
      },
    };
  } catch (error) {
    if (answering !== null && answering.running > 0) tellUnstarted(error, answering.running, logger);
    // Models that are up answer while others are still fetched: their clients are owed the drain time like any others.
    const untilMs =
      answering === null
        ? performance.now() + times.settleMs
        : await endAnswers(answering, config, times, logger);
    await undoAll(untilMs);
    throw error;
  }
}

/** Of an address on a port that was free, which is never the one that a URL leaves out. */
function portOf(url: string): number {
  return Number(new URL(url).port);
}

/** Of this process: another one after a restart. */
function nodeId(): string {
  return `${hostname()}-${randomBytes(4).toString("hex")}`;
}

function tellDiffering(differing: readonly NodeView[], logger: Logger): void {
  for (const { id, differs } of differing) {
    logger.warn({ node: id, differs }, "another node on this database has another configuration");
  }
  if (differing.length === 0) logger.info("all nodes on this database have the same configuration again");
}

function tellExpired({ expired }: Committed, logger: Logger): void {
  logger.warn({ count: expired.length }, "holds expired and were charged by their last checkpoint");
}

/** Who started it hears why at the end only. */
function tellUnstarted(error: unknown, running: number, logger: Logger): void {
  const reason = messageOf(error);
  logger.warn({ running, reason }, "the start is over; running answers may finish");
}

function tellAbandoned({ unread, unsettled }: Abandoned, logger: Logger): void {
  if (unread > 0) {
    logger.warn(
      { unread },
      "answers have not been read to their end and are cut off; that takes nothing from their charges",
    );
  }
  if (unsettled > 0) {
    logger.error(
      { unsettled },
      "requests are still not settled; those whose charges cannot be recorded now will expire, charged by their last checkpoint",
    );
  }
}

function versionIn(manifest: string): string {
  const parsed: unknown = JSON.parse(manifest);
  const isManifest = typeof parsed === "object" && parsed !== null && "version" in parsed;
  return isManifest ? String(parsed.version) : "unknown";
}

async function makeDataFolder(folder: string): Promise<void> {
  try {
    makeFolder(folder);
    await access(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    const reason = messageOf(error);
    throw new OperatorError(
      `The data folder ${folder} cannot be written (${reason}). Make it writable for this user, or name another one (data in inkwell.yaml, or INKWELL_DATA).`,
      error,
    );
  }
}

/** Where no collector is configured nothing of OpenTelemetry is loaded. */
async function startTracing(config: Config, logger: Logger, metrics: Metrics): Promise<Tracing | null> {
  if (config.tracing === null) return null;
  const { Tracing } = await import("./telemetry/traces.ts");
  return new Tracing(config.tracing, { version, logger, onLost: (spans) => metrics.lostSpans(spans) });
}

/**
 * From now on new requests are refused; the running ones may finish within the drain time, are then settled as they
 * stand, and are given up when that takes too long. Answers with the moment by which everything else is to be closed.
 */
async function endAnswers(
  server: PublicServer,
  { limits: { drainMs } }: Config,
  { settleMs }: ServiceTimes,
  logger: Logger,
): Promise<number> {
  const drained = server.drain();
  const cut = setTimeout(() => server.stop(), drainMs);
  const deadlineMs = drainMs + settleMs;
  const untilMs = performance.now() + deadlineMs;
  // A client that does not read, or a store that does not answer, holds up no stop.
  const over = setTimeout(() => tellAbandoned(server.abandon(), logger), deadlineMs);
  await drained;
  clearTimeout(cut);
  clearTimeout(over);
  return Math.min(untilMs, performance.now() + settleMs);
}

function runningService(
  config: Config,
  times: ServiceTimes,
  logger: Logger,
  server: PublicServer,
  leave: AbortController,
  undoAll: (untilMs: number) => Promise<void>,
): Omit<RunningService, "banner"> {
  const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
  let stopping: Promise<void> | null = null;

  async function stop(): Promise<void> {
    logger.info({ running: server.running }, "stopping");
    leave.abort();
    server.retire();
    if (config.limits.unreadyMs > 0) await sleep(config.limits.unreadyMs);
    await undoAll(await endAnswers(server, config, times, logger));
    logger.info("stopped");
  }
  return {
    stopped,
    stop() {
      stopping ??= stop().then(resolve, reject);
      return stopping;
    },
  };
}
