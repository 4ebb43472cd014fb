/**
 * The composition root: together with src/app/ the only place that names concrete stores and
 * engines.
 *
 * Parts are started in order and closed in the opposite order. A start that fails leaves nothing
 * running.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { openFirstAccount } from "./accounts/first-account.ts";
import { isoTime } from "./accounts/json-objects.ts";
import { fingerprintOf } from "./app/config-fingerprint.ts";
import { type OpenDatabase, openStore } from "./app/database.ts";
import { catalogued, startModels } from "./app/models.ts";
import { connectionLimits } from "./app/open-files.ts";
import type { StartupBanner } from "./app/startup-banner.ts";
import { Catalog, EngineSlot } from "./chat/catalog.ts";
import type { Config } from "./config/load.ts";
import { operatorNames, operatorToken } from "./config/operator.ts";
import { messageOf } from "./errors.ts";
import { createOperatorServer } from "./http/admin/server.ts";
import type { ConnectionLimits } from "./http/connections.ts";
import { bindOrExplain, listenOn, publicAddress, requirePort } from "./http/listening.ts";
import type { Abandoned } from "./http/public/running-requests.ts";
import { type PublicDependencies, PublicServer } from "./http/public/server.ts";
import type { Ledger } from "./ledger/batcher.ts";
import type { ClockState } from "./ledger/clock.ts";
import { makeDataFolder } from "./make-folder.ts";
import { type ClockWatch, clockEveryMs, startClockWatch } from "./store/clock-watch.ts";
import {
  heartbeatEveryMs,
  type NodeRegistry,
  type NodeView,
  type NodeWatch,
  startNodeWatch,
} from "./store/nodes.ts";
import type { Store } from "./store/store.ts";
import { startSweeper } from "./store/sweeper.ts";
import { watchEventLoop } from "./telemetry/event-loop.ts";
import { createLogger } from "./telemetry/logger.ts";
import { Metrics } from "./telemetry/metrics.ts";
import type { Tracing } from "./telemetry/traces.ts";

export interface Streams {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
}

interface RunningService {
  /** Shown to the operator. The key of a first account appears nowhere else. */
  readonly banner: StartupBanner;
  /**
   * Refuses new requests, lets running ones finish within the drain time and closes everything.
   * Idempotent. Returns `stopped`.
   */
  stop(): Promise<void>;
  /** Resolves when the service has stopped. */
  readonly stopped: Promise<void>;
}

/** Times that operators cannot configure. Tests set shorter ones. */
interface ServiceTimes {
  /**
   * A stream that is silent for this long gets a comment line, so that proxies keep the
   * connection.
   */
  keepAliveMs: number;
  /** A hold without a heartbeat for this long expires and is charged by its last checkpoint. */
  holdTtlMs: number;
  /** Interval between searches for expired holds. */
  sweepEveryMs: number;
  /** Interval between heartbeats to the other nodes. */
  heartbeatEveryMs: number;
  /** Interval between looks at the clock. */
  clockEveryMs: number;
  /** Time to settle and report answers that the end of the drain time cut off. */
  settleMs: number;
  /** Time limit of chat templates. Default: that of the embedded engine. */
  renderMs?: number;
}

export const serviceTimes: ServiceTimes = {
  keepAliveMs: 15_000,
  holdTtlMs: 30_000,
  sweepEveryMs: 10_000,
  heartbeatEveryMs,
  clockEveryMs,
  settleMs: 10_000,
};

/** Version from package.json. */
export const { version }: { version: string } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
);

/**
 * Resolves when the service answers requests. Throws an `OperatorError` if it cannot start, or
 * the signal's reason if the signal aborts the start. In both cases nothing is left running.
 */
export async function startService(
  config: Config,
  { stderr }: Streams,
  signal: AbortSignal,
  times = serviceTimes,
): Promise<RunningService> {
  const service = new Service(config, stderr, times);
  try {
    const banner = await service.start(signal);
    return { banner, stop: () => service.stop(), stopped: service.stopped };
  } catch (error) {
    await service.abandonStart(error);
    throw error;
  }
}

type Parts = Omit<PublicDependencies, "observers">;

class Service {
  readonly #config: Config;
  readonly #stderr: Streams["stderr"];
  readonly #times: ServiceTimes;
  readonly #logger: Logger;
  readonly #metrics = new Metrics();
  /** Everything that has been started. Closed in the opposite order. */
  readonly #started = new AsyncDisposableStack();
  /** Charges that the store has not recorded by then are given up. Set when closing begins. */
  #closeByMs = Number.POSITIVE_INFINITY;
  /** True as soon as the service is asked to stop, before it refuses requests. */
  #isLeaving = false;
  #server: PublicServer | null = null;
  readonly #stopped = Promise.withResolvers<void>();

  constructor(config: Config, stderr: Streams["stderr"], times: ServiceTimes) {
    this.#config = config;
    this.#stderr = stderr;
    this.#times = times;
    this.#logger = createLogger(config.log.level, stderr);
  }

  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  async start(signal: AbortSignal): Promise<StartupBanner> {
    const config = this.#config;
    this.#logIgnoredVariables();
    // Checked before anything is created: a port in use is the most common mistake, and leaves no
    // trace.
    await requirePort("listen", config.listen);
    await requirePort("operator", config.operator);
    const connections = connectionLimits(config.limits);
    makeDataFolder(config.dataDir);
    const token = await operatorToken(config);

    this.#watchEventLoop();
    // Models take longest to load, so they begin first.
    const { catalog, loading } = this.#beginLoadingModels(signal);
    // Closed after the ledger, which records charges until it is closed.
    const tracing = await this.#startTracing();
    const { store, ledger, nodes } = await this.#openDatabase();
    const clock = await this.#watchClock(store);
    const watch = await this.#watchNodes(nodes);
    const parts = {
      store,
      ledger,
      catalog,
      plans: config.plans,
      metrics: this.#metrics,
      logger: this.#logger,
    };
    const server = this.#createPublicServer(parts, tracing, connections);
    const boundUrl = await bindOrExplain("listen", config.listen, () => server.listen(config.listen));
    this.#observe(parts, server, watch, clock);
    const operatorUrl = await this.#listenToOperator(parts, server, watch, clock, token.token);
    this.#sweepHolds(store, ledger);

    const models = await loading;
    signal.throwIfAborted();
    const first = await openFirstAccount(store, ledger, config.plans);
    return { ...publicAddress(config.listen, boundUrl), operatorUrl, tokenFile: token.file, models, first };
  }

  /**
   * Closes what a failed start has started. Models that were ready answered requests while others
   * were still loading: those answers get the drain time too.
   */
  async abandonStart(error: unknown): Promise<void> {
    const running = this.#server?.requests.count ?? 0;
    if (running > 0) {
      // The caller sees the error only after the drain.
      const reason = messageOf(error);
      this.#logger.warn({ running, reason }, "the start is abandoned; running answers may finish");
    }
    try {
      await this.#close();
    } catch (err) {
      // The error of the start is the one to report to the operator.
      this.#logger.error({ err }, "a part could not be closed after the failed start");
    }
  }

  stop(): Promise<void> {
    if (!this.#isLeaving) this.#stop().then(this.#stopped.resolve, this.#stopped.reject);
    return this.stopped;
  }

  async #stop(): Promise<void> {
    const { unreadyMs } = this.#config.limits;
    this.#logger.info({ running: this.#server?.requests.count }, "stopping");
    this.#isLeaving = true;
    this.#server?.requests.retire();
    if (unreadyMs > 0) await sleep(unreadyMs);
    await this.#close();
    this.#logger.info("stopped");
  }

  async #close(): Promise<void> {
    if (this.#server !== null) await this.#drain(this.#server);
    this.#closeByMs = Math.min(this.#closeByMs, performance.now() + this.#times.settleMs);
    await this.#started.disposeAsync();
  }

  /**
   * Refuses new requests. Running ones may finish within the drain time, are then settled as they
   * stand, and are abandoned if that takes too long.
   */
  async #drain(server: PublicServer): Promise<void> {
    const { drainMs } = this.#config.limits;
    const drained = server.requests.drain();
    const cut = setTimeout(() => server.requests.stop(), drainMs);
    // A client that does not read, or a store that does not respond, cannot delay the stop.
    const limitMs = drainMs + this.#times.settleMs;
    const over = setTimeout(() => this.#logAbandoned(server.requests.abandon()), limitMs);
    this.#closeByMs = performance.now() + limitMs;
    await drained;
    clearTimeout(cut);
    clearTimeout(over);
  }

  #watchEventLoop(): void {
    const loop = watchEventLoop((delayMs) => this.#metrics.eventLoopDelayed(delayMs));
    this.#started.defer(() => loop.stop());
  }

  #beginLoadingModels(signal: AbortSignal) {
    const offered = this.#config.models.map((model) => ({
      model,
      slot: new EngineSlot(model.contextWindow),
    }));
    const failed = new AbortController();
    const loading = startModels(offered, {
      config: this.#config,
      stderr: this.#stderr,
      logger: this.#logger,
      metrics: this.#metrics,
      renderMs: this.#times.renderMs,
      signal: AbortSignal.any([signal, failed.signal]),
    });
    // `start` awaits it later; until then a failure is not an unhandled rejection.
    loading.catch(() => {});
    this.#started.defer(async () => {
      failed.abort(new Error("the service could not be started"));
      await Promise.allSettled([loading]);
      await Promise.all(offered.map(({ slot }) => slot.close()));
    });
    return { catalog: new Catalog(offered.map(catalogued)), loading };
  }

  /** Loads OpenTelemetry only if a collector is configured. */
  async #startTracing(): Promise<Tracing | null> {
    const { tracing: options } = this.#config;
    if (options === null) return null;
    const { Tracing } = await import("./telemetry/traces.ts");
    const onLost = (spans: number) => this.#metrics.lostSpans(spans);
    const tracing = new Tracing(options, { version, logger: this.#logger, onLost });
    this.#started.defer(() => tracing.close());
    return tracing;
  }

  async #openDatabase(): Promise<OpenDatabase> {
    const database = await openStore(this.#config, {
      onHoldLeft: (requestId, reason) =>
        this.#logger.warn(
          { requestId, err: reason },
          "a hold may have been taken and could not be given back; if it was, it expires",
        ),
      onCommit: (commit) => {
        this.#metrics.committed(commit);
        const { length: count } = commit.expired;
        if (count > 0)
          this.#logger.warn({ count }, "holds expired and were charged by their last checkpoint");
      },
    });
    this.#started.defer(async () => {
      await database.ledger.close(Math.max(0, this.#closeByMs - performance.now()));
      await database.store.close();
    });
    return database;
  }

  async #watchNodes(nodes: NodeRegistry): Promise<NodeWatch> {
    const self = { id: nodeId(), version, fingerprint: fingerprintOf(this.#config) };
    const watch = await startNodeWatch(nodes, self, {
      everyMs: this.#times.heartbeatEveryMs,
      onDiffers: (differing) => this.#logDiffering(differing),
      onError: (err) => this.#logger.warn({ err }, "the heartbeat to the other nodes failed; trying again"),
    });
    this.#started.defer(() => watch.stop());
    return watch;
  }

  async #watchClock(store: Store): Promise<ClockWatch> {
    const watch = await startClockWatch(store, {
      everyMs: this.#times.clockEveryMs,
      onChange: (state, readings) => this.#logClock(state, readings),
      onError: (err) => this.#logger.warn({ err }, "the clock could not be read; trying again"),
    });
    this.#started.defer(() => watch.stop());
    return watch;
  }

  #createPublicServer(parts: Parts, tracing: Tracing | null, connections: ConnectionLimits): PublicServer {
    const { limits, cors } = this.#config;
    const server = new PublicServer(
      { ...parts, observers: tracing === null ? [] : [tracing] },
      {
        holdTtlMs: this.#times.holdTtlMs,
        limits: { ...limits, keepAliveMs: this.#times.keepAliveMs },
        corsOrigins: cors.origins,
        connections,
      },
    );
    this.#server = server;
    this.#started.defer(() => server.close());
    return server;
  }

  #observe(
    { catalog, store, ledger }: Parts,
    server: PublicServer,
    watch: NodeWatch,
    clock: ClockWatch,
  ): void {
    this.#metrics.observe({
      version,
      catalog,
      running: () => server.requests.count,
      connections: server.connections,
      uploads: server.uploads,
      holdTotals: () => store.holdTotals(),
      nodes: () => watch.nodes(),
      clock: () => clock.state(),
      lateCharges: () => ledger.late,
    });
  }

  #listenToOperator(
    parts: Parts,
    server: PublicServer,
    watch: NodeWatch,
    clock: ClockWatch,
    token: string,
  ): Promise<string> {
    const address = this.#config.operator;
    const operator = createOperatorServer({
      ...parts,
      version,
      token,
      hosts: operatorNames(address),
      nodes: () => watch.nodes(),
      clock: () => clock.state(),
      draining: () => this.#isLeaving || server.requests.draining,
    });
    this.#started.defer(() => operator.close());
    return bindOrExplain("operator", address, () => listenOn(operator, address));
  }

  #sweepHolds(store: Store, ledger: Ledger): void {
    const sweeper = startSweeper(store, ledger, {
      everyMs: this.#times.sweepEveryMs,
      onError: (err) => this.#logger.error({ err }, "expired holds could not be ended; trying again"),
    });
    this.#started.defer(() => sweeper.stop());
  }

  #logIgnoredVariables(): void {
    const { ignoredVariables: variables } = this.#config;
    if (variables.length === 0) return;
    this.#logger.info(
      { variables },
      "variables that Kubernetes sets for Services are ignored; enableServiceLinks: false in the pod removes them",
    );
  }

  #logClock({ isTrusted, trustedMs, clockMs }: ClockState, readings: number): void {
    const clock = isoTime(clockMs);
    if (!isTrusted) {
      this.#logger.error(
        { clock, trusted: isoTime(trustedMs) },
        "the clock is wrong or has stepped; the ledger continues at the trusted time. Correct the clock, or run: inkwell clock accept",
      );
    } else if (readings > 0) {
      this.#logger.warn({ clock, readings }, "readings of the clock were not believed; it is right again");
    } else this.#logger.info({ clock }, "the clock is trusted again");
  }

  #logDiffering(differing: readonly NodeView[]): void {
    for (const { id, differs } of differing) {
      this.#logger.warn({ node: id, differs }, "another node on this database has another configuration");
    }
    if (differing.length === 0) {
      this.#logger.info("all nodes on this database have the same configuration again");
    }
  }

  #logAbandoned({ unread, unsettled }: Abandoned): void {
    if (unread > 0) {
      this.#logger.warn(
        { unread },
        "answers have not been read to their end and are cut off; their charges are recorded in full",
      );
    }
    if (unsettled > 0) {
      this.#logger.error(
        { unsettled },
        "requests are still not settled; if their charges cannot be recorded now, their holds expire and are charged by their last checkpoint",
      );
    }
  }
}

/** Unique for each process: a restart has another id. */
function nodeId(): string {
  return `${hostname()}-${randomBytes(4).toString("hex")}`;
}
