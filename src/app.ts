/**
 * The composition root: together with src/app/ the only place that opens stores and starts
 * engines.
 *
 * Parts are started in order, and closed in the opposite order, also if the start fails.
 */
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { firstKeyFileName, openFirstAccount } from "./accounts/first-account.ts";
import type { OperatorSessions } from "./accounts/operator-sessions.ts";
import { RequestStops } from "./accounts/request-stops.ts";
import { startClockJob } from "./app/clock-job.ts";
import { configFingerprintOf } from "./app/config-fingerprint.ts";
import { type OpenDatabase, openUpgradedStore } from "./app/database.ts";
import { startStoreJobs } from "./app/jobs.ts";
import { connectionLimits } from "./app/open-files.ts";
import { operatorAccess } from "./app/operator-access.ts";
import { Portal } from "./app/portal.ts";
import { type ReloadedDependencies, Reloader } from "./app/reloader.ts";
import { RunningModels } from "./app/running-models.ts";
import { logAbandoned, logDiffering, logIgnoredVariables, logKeyFile } from "./app/service-log.ts";
import { ServicePlans } from "./app/service-plans.ts";
import { type ServiceTimes, serviceTimes } from "./app/service-times.ts";
import { signInWarnings, startSignIn } from "./app/sign-in.ts";
import { consoleUrl, type StartupBanner } from "./app/startup-banner.ts";
import { operatorFiles } from "./app/web-bundle.ts";
import type { WorkerHere } from "./app/worker-here.ts";
import { writeAddress } from "./app/written-address.ts";
import type { Catalog } from "./chat/catalog.ts";
import { eventSettingsOf, wantedEventsOf } from "./config/events.ts";
import type { Config } from "./config/load.ts";
import { operatorNames, readOperatorToken } from "./config/operator.ts";
import { invariant, messageOf } from "./errors.ts";
import { EventSending } from "./events/event-sending.ts";
import { invitationSettingsOf } from "./events/invitation-mail.ts";
import { createOperatorServer } from "./http/admin/server.ts";
import { AllowedHosts } from "./http/api/allowed-hosts.ts";
import { bindOrExplain, clientUrl, listenOn, publicAddress, requirePorts } from "./http/listening.ts";
import { type PublicDependencies, PublicServer, type PublicSettings } from "./http/public/server.ts";
import { Jobs } from "./jobs.ts";
import type { Ledger } from "./ledger/ledger.ts";
import { makeDataFolder } from "./make-folder.ts";
import { Peers } from "./peers.ts";
import { type NodeRegistry, type NodeWatch, startNodeWatch } from "./store/nodes.ts";
import type { Store } from "./store/store.ts";
import { watchEventLoop } from "./telemetry/event-loop.ts";
import { LiveTelemetry } from "./telemetry/live-telemetry.ts";
import { createLogger } from "./telemetry/logger.ts";
import { Metrics } from "./telemetry/metrics.ts";
import type { Tracing } from "./telemetry/tracing.ts";
import { version } from "./version.ts";

export interface Streams {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
}

interface ServiceHost extends Streams {
  /** Reads the configuration again, from the same place. Throws an `OperatorError`. */
  reread(): Config;
  /** Null: the service is this process. */
  worker?: WorkerHere | null;
}

interface RunningService {
  /** Shown to the operator. A key in it appears nowhere else. */
  readonly banner: StartupBanner;
  /**
   * Refuses new requests, lets running ones finish within the drain time and closes everything.
   * Idempotent. Returns `stopped`.
   */
  stop(): Promise<void>;
  /** Resolves when the service has stopped. */
  readonly stopped: Promise<void>;
  /** Reloads the configuration. The log has the result. */
  hangUp(): void;
  /** Makes the code of a sign-in link to the console. Show it on a terminal only. */
  newSignInCode(): Promise<string>;
}

/**
 * Resolves when the service answers requests. Throws an `OperatorError` if it cannot start, or
 * the signal's reason if the signal aborts the start. In both cases nothing is left running.
 */
export async function startService(
  config: Config,
  host: ServiceHost,
  signal: AbortSignal,
  times = serviceTimes,
): Promise<RunningService> {
  const service = new Service(config, host, times);
  try {
    const banner = await service.start(signal);
    return {
      banner,
      stop: () => service.stop(),
      stopped: service.stopped,
      hangUp: () => service.hangUp(),
      newSignInCode: () => service.newSignInCode(),
    };
  } catch (error) {
    await service.abandonStart(error);
    throw error;
  }
}

class Service {
  /** The configuration that applies now. */
  #config: Config;
  readonly #reread: () => Config;
  readonly #worker: WorkerHere | null;
  readonly #isFirst: boolean;
  readonly #peers: Peers;
  readonly #stderr: Streams["stderr"];
  /** A terminal may show secrets. Other output ends in files and logs. */
  readonly #isAtTerminal: boolean;
  readonly #times: ServiceTimes;
  readonly #logger: Logger;
  readonly #metrics = new Metrics();
  readonly #live: LiveTelemetry;
  readonly #jobs: Jobs;
  /** Everything that has been started. Closed in the opposite order. */
  readonly #started = new AsyncDisposableStack();
  /** Charges that the store has not recorded by then are given up. Set when closing begins. */
  #closeByMs = Number.POSITIVE_INFINITY;
  /** True as soon as the service is asked to stop, before it refuses requests. */
  #isLeaving = false;
  #server: PublicServer | null = null;
  #reloader: Reloader | null = null;
  #sessions: OperatorSessions | null = null;
  readonly #stopped = Promise.withResolvers<void>();
  /** Unique for each process: a restart has another id. */
  readonly #node = `${hostname()}-${randomBytes(4).toString("hex")}`;

  constructor(config: Config, { stdout, stderr, reread, worker = null }: ServiceHost, times: ServiceTimes) {
    this.#config = config;
    this.#reread = reread;
    this.#worker = worker;
    this.#isFirst = (worker?.number ?? 1) === 1;
    this.#peers = worker?.peers ?? new Peers();
    this.#live = new LiveTelemetry(this.#peers);
    this.#stderr = stderr;
    this.#isAtTerminal = stdout.isTTY === true;
    this.#times = times;
    this.#logger = createLogger(config.log.level, stderr, this.#live.errors, worker?.number);
    this.#jobs = new Jobs({ logger: this.#logger, metrics: this.#metrics });
  }

  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  async start(signal: AbortSignal): Promise<StartupBanner> {
    const config = this.#config;
    logIgnoredVariables(this.#logger, config);
    // Checked before anything is created: a port in use is common, and leaves no trace.
    if (this.#isFirst) await requirePorts(config);
    const settings = this.#settingsOf(config);
    makeDataFolder(config.dataDir);
    const token = await readOperatorToken(config);

    this.#watchEventLoop();
    // Models take longest to load, so they begin first.
    const models = this.#createModels();
    const loading = this.#beginLoading(models, signal);
    // Closed after the ledger, which records charges until it is closed.
    const tracing = await this.#startTracing();
    const { store, ledger, nodes } = await this.#openDatabase(signal);
    const plans = await this.#applyPlans(store);
    const clock = await startClockJob(store, {
      jobs: this.#jobs,
      everyMs: this.#times.clockEveryMs,
      logger: this.#logger,
    });
    const { catalog } = models;
    const events = this.#startEvents(store, catalog);
    const watch = await this.#watchNodes(nodes);
    const dependencies = { store, ledger, catalog, metrics: this.#metrics, logger: this.#logger };
    const server = this.#createPublicServer(dependencies, tracing, settings);
    const boundUrl = await bindOrExplain("listen", config.listen, (at) => server.listen(at));
    const addresses = publicAddress(config.listen, boundUrl);
    this.#metrics.observe({
      version,
      catalog,
      running: () => server.requests.count,
      connections: server.connections,
      uploads: server.uploads,
      holdTotals: () => store.holdTotals(),
      lastAudit: () => store.lastAudit(),
      nodes: () => watch.nodes(),
      clock: () => clock.state(),
      lateCharges: () => ledger.late,
    });
    const jobs = this.#jobs;
    const { access: tell } = events;
    const people = startSignIn(config, { ...dependencies, token: token.token, tell }, jobs, this.#times);
    const ofPortal = {
      chat: server.chat,
      live: this.#live,
      version,
      token: token.token,
      localUrl: addresses.publicUrl,
      people,
      invitations: () => invitationSettingsOf(this.#config),
    };
    const portal = config.portal === null ? null : new Portal(config, { ...dependencies, jobs, ...ofPortal });
    const allowedHosts = new AllowedHosts(operatorNames(config.operator));
    const reloaded = { models, plans, store, server, allowedHosts, portal, people, watch, events };
    const reloader = this.#createReloader(reloaded);
    const stops = this.#startRequestStops(store, ledger, server);
    const access = await operatorAccess({ store, token, people, logger: this.#logger });
    this.#sessions = access.sessions;
    const operator = createOperatorServer({
      ...dependencies,
      ...ofPortal,
      urls: () => ({ api: this.#config.listen.url ?? addresses.publicUrl, portal: portal?.url ?? null }),
      jobs,
      stops,
      allowedHosts,
      peers: this.#peers,
      requests: server.requests,
      ...access,
      modelIds: () => catalog.ids(),
      onSignedIn: (session) => events.signedIn(session),
      roleNow: (person) => people.roleNow(person),
      tell,
      supportCredits: () => this.#config.operator.supportCredits,
      issuer: people,
      ownUrl: () => this.#config.operator.url,
      isTrusted: (address) => server.connections.isTrusted(address),
      isWritable: () => clock.isWritable(),
      nodes: () => watch.nodes(),
      clock: () => clock.state(),
      draining: () => this.#isLeaving || server.requests.draining,
      warnings: () => [...signInWarnings(this.#config), ...plans.warnings],
      reload: (by) => reloader.reload(by),
      previewReload: () => reloader.preview(),
      timezone: () => this.#config.timezone,
      currency: () => this.#config.currency,
      endpoints: () => wantedEventsOf(this.#config.events),
      configured: () => this.#config,
      applyPlans: (by) => reloader.applyPlans(by),
      lastReload: () => reloader.last,
      ...operatorFiles(),
    });
    this.#started.defer(() => operator.close());
    const operatorUrl = await bindOrExplain("operator", config.operator, (at) => listenOn(operator, at));
    const urls = { ...addresses, operatorUrl };
    if (this.#worker === null) this.#started.defer(writeAddress(config, urls, this.#logger));
    if (portal !== null) this.#started.defer(() => portal.close());
    const portalUrl = portal === null ? null : await portal.listen();
    startStoreJobs(jobs, { store, ledger, times: this.#times, timezone: () => this.#config.timezone });

    const loaded = await loading;
    signal.throwIfAborted();
    const keyFile = join(config.dataDir, firstKeyFileName);
    const first = await openFirstAccount(store, ledger, this.#isAtTerminal ? null : keyFile);
    if (first === null && this.#isFirst) await logKeyFile(this.#logger, store, keyFile);
    reloader.open();
    return {
      ...urls,
      consoleUrl: consoleUrl(config.operator.url ?? clientUrl(config.operator.host, operatorUrl)),
      portalUrl,
      tokenFile: token.file,
      models: loaded,
      first,
    };
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

  /** Returns the code of a sign-in link. */
  async newSignInCode(): Promise<string> {
    invariant(this.#sessions !== null, "the service is up");
    return (await this.#sessions.newCode()).code;
  }

  hangUp(): void {
    this.#reloader?.reloadOnSignal();
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
    // While the operator listener is open, so that the caller of a reload gets its answer.
    await this.#reloader?.close();
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
    const over = setTimeout(() => logAbandoned(this.#logger, server.requests.abandon()), limitMs);
    this.#closeByMs = performance.now() + limitMs;
    await drained;
    clearTimeout(cut);
    clearTimeout(over);
  }

  #watchEventLoop(): void {
    const loop = watchEventLoop((delayMs) => this.#metrics.eventLoopDelayed(delayMs));
    this.#started.defer(() => loop.stop());
  }

  #createModels(): RunningModels {
    const models = new RunningModels(this.#config.models, {
      config: this.#config,
      queueMax: () => this.#config.limits.queueMax,
      stderr: this.#stderr,
      logger: this.#logger,
      metrics: this.#metrics,
      renderMs: this.#times.renderMs,
      probeEveryMs: this.#times.probeEveryMs,
    });
    this.#started.defer(() => models.close());
    return models;
  }

  #beginLoading(models: RunningModels, signal: AbortSignal) {
    const failed = new AbortController();
    const loading = models.start(AbortSignal.any([signal, failed.signal]));
    // `start` awaits it later; until then a failure is not an unhandled rejection.
    loading.catch(() => {});
    this.#started.defer(async () => {
      failed.abort(new Error("the service could not be started"));
      await Promise.allSettled([loading]);
    });
    return loading;
  }

  /** Loads OpenTelemetry only if a collector is configured. */
  async #startTracing(): Promise<Tracing | null> {
    const { tracing: options } = this.#config;
    if (options === null) return null;
    const { Tracing } = await import("./telemetry/tracing.ts");
    const onLost = (spans: number) => this.#metrics.lostSpans(spans);
    const tracing = new Tracing(options, { version, logger: this.#logger, onLost });
    this.#started.defer(() => tracing.close());
    return tracing;
  }

  async #openDatabase(signal: AbortSignal): Promise<OpenDatabase> {
    const database = await openUpgradedStore(this.#config, {
      signal,
      events: () => eventSettingsOf(this.#config.events),
      onUpgrade: (step, about) => this.#logger.info(about ?? {}, step),
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
      await this.#jobs.stop();
      await database.ledger.close(Math.max(0, this.#closeByMs - performance.now()));
      await database.store.close();
    });
    return database;
  }

  async #applyPlans(store: Store): Promise<ServicePlans> {
    const plans = new ServicePlans(store, this.#logger);
    await plans.apply(this.#config.plans, { models: this.#config.models });
    plans.watch(this.#jobs, this.#times.heartbeatEveryMs);
    return plans;
  }

  #startEvents(store: Store, catalog: Catalog): EventSending {
    this.#metrics.events.observe(() => store.events.endpoints(wantedEventsOf(this.#config.events)));
    const events = new EventSending({
      store,
      catalog,
      jobs: this.#jobs,
      node: this.#node,
      logger: this.#logger,
      times: this.#times.events,
      portalUrl: this.#config.portal?.url ?? null,
      onAttempt: (endpoint, result) => this.#metrics.events.attempted(endpoint, result),
    });
    events.configure(this.#config.events);
    this.#started.defer(() => events.close());
    return events;
  }

  #startRequestStops(store: Store, ledger: Ledger, server: PublicServer): RequestStops {
    const stops = new RequestStops({ store, ledger }, server.requests, {
      jobs: this.#jobs,
      everyMs: this.#times.stopsEveryMs,
      onError: (err) => this.#logger.warn({ err }, "the end of a stopped request could not be read"),
    });
    this.#started.defer(() => stops.close());
    return stops;
  }

  async #watchNodes(nodes: NodeRegistry): Promise<NodeWatch> {
    const self = { id: this.#node, version, fingerprint: configFingerprintOf(this.#config) };
    const watch = await startNodeWatch(nodes, self, {
      jobs: this.#jobs,
      everyMs: this.#times.heartbeatEveryMs,
      onDiffers: (differing) => logDiffering(this.#logger, differing),
    });
    this.#started.defer(() => watch.stop());
    return watch;
  }

  #settingsOf({ limits, cors, portal }: Config): PublicSettings {
    return {
      limits: { ...limits, keepAliveMs: this.#times.keepAliveMs },
      corsOrigins: cors.origins,
      connections: connectionLimits(limits, { hasPortal: portal !== null }),
    };
  }

  #createPublicServer(
    dependencies: Omit<PublicDependencies, "observers">,
    tracing: Tracing | null,
    settings: PublicSettings,
  ): PublicServer {
    const { holdTtlMs } = this.#times;
    const observers = tracing === null ? [this.#live] : [this.#live, tracing];
    const server = new PublicServer({ ...dependencies, observers }, { ...settings, holdTtlMs });
    this.#server = server;
    this.#started.defer(() => server.close());
    return server;
  }

  #createReloader(
    reloaded: Omit<
      ReloadedDependencies,
      "reread" | "settingsOf" | "metrics" | "logger" | "peers" | "onApplied"
    >,
  ) {
    const reloader = new Reloader(this.#config, {
      ...reloaded,
      reread: this.#reread,
      settingsOf: (config) => this.#settingsOf(config),
      metrics: this.#metrics,
      logger: this.#logger,
      peers: this.#peers,
      onApplied: (config) => {
        this.#config = config;
        this.#worker?.tell({ kind: "config", config });
      },
    });
    this.#reloader = reloader;
    this.#started.defer(() => reloader.close());
    return reloader;
  }
}
