/**
 * The composition root: the only file that names concrete stores and engines. Puts the parts together, starts them in
 * an order in which nothing is half done when one of them fails, and stops them in the opposite one.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { access, constants } from "node:fs/promises";
import { hostname } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import { type FirstAccount, openFirstAccount } from "./access/first-account.ts";
import { authenticate } from "./access/keys.ts";
import type { LlamaModelConfig, ModelConfig, UpstreamModelConfig } from "./config/model.ts";
import { type Config, operatorToken } from "./config.ts";
import { balanceOf } from "./credits/balance.ts";
import { Ledger, type LedgerOptions } from "./credits/ledger.ts";
import { startLlamaEngine } from "./engines/llama/supervisor.ts";
import { UpstreamEngine } from "./engines/upstream/engine.ts";
import { OperatorError } from "./errors.ts";
import { Catalog, type Model } from "./generation/catalog.ts";
import { EngineSlot } from "./generation/engine-slot.ts";
import { generate, type Receipt } from "./generation/generate.ts";
import { agreementOf } from "./main/agreement.ts";
import type { Greeting } from "./main/greeting.ts";
import { listening, requirePort } from "./main/listening.ts";
import { createLogger } from "./main/logging.ts";
import { miniatureNotice, miniaturePath, notObtained, obtainModel } from "./main/model-files.ts";
import { RequestLog } from "./main/request-log.ts";
import type { Tracing } from "./main/tracing.ts";
import { makeFolder } from "./make-folder.ts";
import { Metrics } from "./server/metrics.ts";
import { createOperatorServer } from "./server/operator.ts";
import { createPublicServer, type PublicServer } from "./server/public.ts";
import { beatEveryMs, type NodeRegistry, type NodeView, soleNode, startNodeWatch } from "./store/nodes.ts";
import { commitLanes, openPostgresStore, patientRetriesMs } from "./store/postgres.ts";
import { pgDumpInstead } from "./store/postgres-connection.ts";
import { openSqliteStore } from "./store/sqlite.ts";
import { type Backup, backUpSqlite } from "./store/sqlite-backup.ts";
import type { Store } from "./store/store.ts";
import { startSweeper } from "./store/sweeper.ts";

export interface Streams {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
}

export interface OpenStore {
  store: Store;
  ledger: Ledger;
}

/** Beside the ledger, the processes that share its database. */
interface OpenDatabase extends OpenStore {
  nodes: NodeRegistry;
}

export interface RunningService {
  /** To be told now that it is up. A first key is nowhere else. */
  readonly greeting: Greeting;
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
  beatEveryMs: number;
  /** What ended with the drain time has this long to be settled and told. */
  settleMs: number;
}

export const serviceTimes: ServiceTimes = {
  keepAliveMs: 15_000,
  holdTtlMs: 30_000,
  sweepEveryMs: 10_000,
  beatEveryMs,
  settleMs: 10_000,
};

/** How long a backup waits for a database that another process is just recovering after a crash. */
const backupBusyMs = 5000;

/** Of the package: its manifest lies one folder up, from src as from dist. */
export const version = versionIn(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

/** Opens the ledger, and makes its folder where there is none. */
export async function openStore(config: Config, options: LedgerOptions = {}): Promise<OpenDatabase> {
  const { database, plans } = config;
  if (database.kind === "sqlite") {
    const store = await openSqliteStore({ path: database.path, plans });
    return { store, ledger: new Ledger(store, options), nodes: soleNode() };
  }
  const store = await openPostgresStore({ url: database.url, plans });
  return {
    store,
    ledger: new Ledger(store, { lanes: commitLanes, retriesMs: patientRetriesMs, ...options }),
    nodes: store.nodes,
  };
}

/** Copies the ledger as it is now into a new file, also beside a running service. */
export async function backup(config: Config, file: string): Promise<Backup> {
  const { database } = config;
  if (database.kind === "postgres") throw pgDumpInstead(database.url, file);
  return backUpSqlite({ path: database.path, busyMs: backupBusyMs }, file);
}

/** Fetches the file of a model unless it is there already; its path. Null where an upstream runs it. */
export async function pullModel(
  config: Config,
  modelId: string,
  { stderr }: Streams,
): Promise<string | null> {
  const model = config.models.find(({ id }) => id === modelId);
  if (model === undefined) throw new OperatorError(`There is no model "${modelId}" in the configuration.`);
  if (model.engine === "upstream") return null;
  const obtained = await obtainModel(config, model, stderr, new AbortController().signal);
  if (!obtained.found) throw new OperatorError(notObtained(model, obtained));
  return obtained.path;
}

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
  // In the order in which they are to be undone, last first.
  const undo: (() => Promise<void>)[] = [];
  const undoAll = async () => {
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) await step();
  };
  try {
    // Asked before anything is made: the commonest slip leaves no trace.
    await requirePort("listen", config.listen);
    await requirePort("operator", config.operator);
    await makeDataFolder(config.dataDir);
    const token = await operatorToken(config);

    const metrics = new Metrics();
    // The longest wait of a start, so it begins first.
    const offered = config.models.map((model) => ({ model, slot: new EngineSlot(model.contextWindow) }));
    const loading = new AbortController();
    const either = AbortSignal.any([signal, loading.signal]);
    const models = startModels(config, offered, io, { logger, metrics }, either);
    undo.push(async () => {
      loading.abort(new Error("the service could not be started"));
      await Promise.allSettled([models]);
      await Promise.all(offered.map(({ slot }) => slot.close()));
    });
    // Whether they could be loaded is asked below; what goes wrong until then is told instead.
    models.catch(() => {});

    const { store, ledger, nodes } = await openStore(config, {
      onCommit: (commit) => metrics.committed(commit),
    });
    undo.push(async () => {
      await ledger.close(times.settleMs);
      await store.close();
    });

    const tracing = await startTracing(config, logger, metrics);
    undo.push(async () => tracing?.close());

    const watch = await startNodeWatch(
      nodes,
      { id: nodeId(), version, agreement: agreementOf(config) },
      {
        everyMs: times.beatEveryMs,
        onDiffers: (differing) => tellDiffering(differing, logger),
        onError: (error) =>
          logger.warn({ err: error }, "the other nodes could not be looked at; trying again"),
      },
    );
    undo.push(() => watch.stop());

    const catalog = new Catalog(offered.map(({ model, slot }) => catalogued(model, slot)));
    const server = publicServer(config, times, { logger, metrics, tracing, catalog, store, ledger });
    undo.push(() => server.close());
    const publicUrl = await listening("listen", config.listen, () => server.listen(config.listen));

    // Aborts when the service is going to stop, some time before it refuses anything.
    const leave = new AbortController();
    const leaving = leave.signal;
    const operator = createOperatorServer({
      version,
      token: token.token,
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
      holdTotals: () => store.holdTotals(),
      nodes: () => watch.nodes(),
      lateCharges: () => ledger.late,
    });
    undo.push(() => operator.close());
    const operatorUrl = await listening("operator", config.operator, () => operatorListen(operator, config));

    const sweeper = startSweeper(store, ledger, {
      everyMs: times.sweepEveryMs,
      onExpired: (count) => {
        metrics.expired(count);
        logger.warn({ count }, "holds expired and were charged by their last checkpoint");
      },
      onError: (error) => logger.error({ err: error }, "expired holds could not be ended; trying again"),
    });
    undo.push(() => sweeper.stop());

    const loaded = await models;
    signal.throwIfAborted();
    const first: FirstAccount | null = await openFirstAccount(store, ledger, config.plans);
    return {
      ...runningService(config, times, logger, server, leave, undoAll),
      greeting: {
        publicUrl,
        operatorUrl,
        tokenFile: token.file,
        models: loaded,
        first,
        onAnyPort: config.listen.port === 0,
      },
    };
  } catch (error) {
    await undoAll();
    throw error;
  }
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
    const reason = error instanceof Error ? error.message : String(error);
    throw new OperatorError(
      `The data folder ${folder} cannot be written (${reason}). Make it writable for this user, or name another one (data in inkwell.yaml, or INKWELL_DATA).`,
      error,
    );
  }
}

/** Nobody knows when a model was made; a time of this process or of its files would differ between starts and nodes. */
const unknownCreated = 0;

function catalogued(model: ModelConfig, slot: EngineSlot): Model {
  return { id: model.id, engine: slot, price: model.price, created: unknownCreated, ownedBy: "inkwell" };
}

/** What the public server is built on. */
interface Parts extends OpenStore {
  logger: Logger;
  metrics: Metrics;
  /** Null: no traces. */
  tracing: Tracing | null;
  catalog: Catalog;
}

function publicServer(
  config: Config,
  { holdTtlMs, keepAliveMs }: ServiceTimes,
  { logger, metrics, tracing, catalog, store, ledger }: Parts,
): PublicServer {
  const { plans, limits } = config;
  const known = authenticate(store, plans);
  const requestLog = new RequestLog(logger);
  const pipeline = {
    catalog,
    ledger,
    holdTtlMs,
    onSettled: (receipt: Receipt) => {
      metrics.settled(receipt);
      requestLog.settled(receipt);
      tracing?.settled(receipt);
    },
    onUnsettled: (requestId: string, reason: unknown) => {
      metrics.unsettled();
      logger.error(
        { requestId, err: reason },
        "a charge could not be recorded and is given up; its last checkpoint will be charged",
      );
    },
  };
  return createPublicServer(
    {
      catalog,
      logger,
      authenticate: (header) => known(header, Date.now()),
      generate: (caller, request, requestId, signal) => {
        tracing?.asked(requestId, catalog.find(request.model)?.id ?? null, request);
        return generate(pipeline, caller, request, requestId, signal);
      },
      readBalance: async (accountId) => balanceOf(await store.snapshot(accountId), plans),
      onFinished: (finished) => {
        metrics.finished(finished);
        requestLog.finished(finished);
        tracing?.finished(finished);
      },
    },
    {
      limits: {
        bodyBytesMax: limits.bodyBytesMax,
        messagesMax: limits.messagesMax,
        streamIdleMs: limits.streamIdleMs,
        keepAliveMs,
      },
      corsOrigins: config.cors.origins,
    },
  );
}

/** Where no collector is configured nothing of OpenTelemetry is loaded. */
async function startTracing(config: Config, logger: Logger, metrics: Metrics): Promise<Tracing | null> {
  if (config.tracing === null) return null;
  const { Tracing } = await import("./main/tracing.ts");
  return new Tracing(config.tracing, { version, logger, onLost: (spans) => metrics.lostSpans(spans) });
}

async function operatorListen(
  operator: FastifyInstance,
  { operator: { host, port } }: Config,
): Promise<string> {
  return await operator.listen({ host, port });
}

/** What is told of a model's engine. */
interface Watchers {
  logger: Logger;
  metrics: Metrics;
}

/** One after another: each takes the machine for itself while it loads. */
async function startModels(
  config: Config,
  offered: readonly { model: ModelConfig; slot: EngineSlot }[],
  io: Streams,
  watchers: Watchers,
  signal: AbortSignal,
): Promise<{ id: string; onMiniature: boolean }[]> {
  // There is nothing to load: these answer while others are still being fetched.
  for (const { model, slot } of offered) {
    if (model.engine === "upstream") await slot.fill(upstreamEngine(config, model, watchers));
  }
  const started = [];
  for (const { model, slot } of offered) {
    if (model.engine === "upstream") {
      started.push({ id: model.id, onMiniature: false });
      continue;
    }
    const { onMiniature } = await startModel(config, model, slot, io, watchers, signal);
    started.push({ id: model.id, onMiniature });
    signal.throwIfAborted();
  }
  return started;
}

/** Fills the slot with the model's engine, or with one on the miniature where the model cannot be fetched. */
async function startModel(
  config: Config,
  model: LlamaModelConfig,
  slot: EngineSlot,
  io: Streams,
  { logger, metrics }: Watchers,
  signal: AbortSignal,
): Promise<{ onMiniature: boolean }> {
  const obtained = await obtainModel(config, model, io.stderr, signal);
  if (!obtained.found) io.stderr.write(`${notObtained(model, obtained)}\n${miniatureNotice(model)}\n`);
  const engine = await startLlamaEngine(
    {
      modelPath: obtained.found ? obtained.path : miniaturePath,
      contextWindow: model.contextWindow,
      parallel: model.parallel,
      queueMax: config.limits.queueMax,
      ...(model.threads === null ? {} : { threads: model.threads }),
      gpu: model.gpu === "off" ? false : model.gpu,
      ...(model.reasoning === null ? {} : { reasoning: model.reasoning }),
      environment: config.childEnvironment,
      onDecode: (answers) => metrics.decoded(model.id, answers),
      log: logger.child({ model: model.id }),
    },
    signal,
  );
  await slot.fill(engine);
  return { onMiniature: !obtained.found };
}

function upstreamEngine(
  config: Config,
  model: UpstreamModelConfig,
  { logger }: Pick<Watchers, "logger">,
): UpstreamEngine {
  const { connectMs, headersMs, idleMs } = model;
  return new UpstreamEngine({
    urls: model.urls,
    key: model.key,
    model: model.model,
    dialect: model.dialect,
    contextWindow: model.contextWindow,
    parallel: model.parallel,
    queueMax: config.limits.queueMax,
    times: { connectMs, headersMs, idleMs },
    reasoning: model.reasoning,
    log: logger.child({ model: model.id }),
  });
}

function runningService(
  config: Config,
  { settleMs }: ServiceTimes,
  logger: Logger,
  server: PublicServer,
  leave: AbortController,
  undoAll: () => Promise<void>,
): Omit<RunningService, "greeting"> {
  const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
  let stopping: Promise<void> | null = null;

  async function stop(): Promise<void> {
    logger.info({ running: server.running }, "stopping");
    leave.abort();
    if (config.limits.unreadyMs > 0) await sleep(config.limits.unreadyMs);
    const drained = server.drain();
    const cut = setTimeout(() => server.stop(), config.limits.drainMs);
    const lost = setTimeout(
      () => logger.error({ running: server.running }, "requests are still not settled; they will expire"),
      config.limits.drainMs + settleMs,
    );
    await drained;
    clearTimeout(cut);
    clearTimeout(lost);
    await undoAll();
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
