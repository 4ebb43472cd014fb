/**
 * The composition root: the only file that names concrete stores and engines. Puts the parts together, starts them in
 * an order in which nothing is half done when one of them fails, and stops them in the opposite one.
 */
import { readFileSync } from "node:fs";
import { access, constants, mkdir } from "node:fs/promises";
import { relative } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import { type FirstAccount, openFirstAccount } from "./access/first-account.ts";
import { authenticate } from "./access/keys.ts";
import type { ModelConfig } from "./config/model.ts";
import { type Config, operatorToken } from "./config.ts";
import { balanceOf } from "./credits/balance.ts";
import { Ledger, type LedgerOptions } from "./credits/ledger.ts";
import { startLlamaEngine } from "./engines/llama/supervisor.ts";
import { OperatorError } from "./errors.ts";
import { Catalog, type Model } from "./generation/catalog.ts";
import { EngineSlot } from "./generation/engine-slot.ts";
import { generate, type Receipt } from "./generation/generate.ts";
import { greetingText } from "./main/greeting.ts";
import { listening, requirePort } from "./main/listening.ts";
import { createLogger } from "./main/logging.ts";
import { miniatureNotice, miniaturePath, notObtained, obtainModel } from "./main/model-files.ts";
import { RequestLog } from "./main/request-log.ts";
import { Metrics } from "./server/metrics.ts";
import { createOperatorServer } from "./server/operator.ts";
import { createPublicServer, type PublicServer } from "./server/public.ts";
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

export interface RunningService {
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
  /** What ended with the drain time has this long to be settled and told. */
  settleMs: number;
}

export const serviceTimes: ServiceTimes = {
  keepAliveMs: 15_000,
  holdTtlMs: 30_000,
  sweepEveryMs: 10_000,
  settleMs: 10_000,
};

/** How long a backup waits for a database that another process is just recovering after a crash. */
const backupBusyMs = 5000;

/** Of the package: its manifest lies one folder up, from src as from dist. */
export const version = versionIn(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

/** Opens the ledger, and makes its folder where there is none. */
export async function openStore(config: Config, options: LedgerOptions = {}): Promise<OpenStore> {
  const store = await openSqliteStore({ path: config.database.path, plans: config.plans });
  return { store, ledger: new Ledger(store, options) };
}

/** Copies the ledger as it is now into a new file, also beside a running service. */
export async function backup(config: Config, file: string): Promise<Backup> {
  return backUpSqlite({ path: config.database.path, busyMs: backupBusyMs }, file);
}

/** Fetches the file of a model unless it is there already; its path. */
export async function pullModel(config: Config, modelId: string, { stderr }: Streams): Promise<string> {
  const model = config.models.find(({ id }) => id === modelId);
  if (model === undefined) throw new OperatorError(`There is no model "${modelId}" in the configuration.`);
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
  const say = (text: string) => io.stdout.write(`${text}\n`);
  // In the order in which they are to be undone, last first.
  const undo: (() => Promise<void>)[] = [];
  const undoAll = async () => {
    for (let step = undo.pop(); step !== undefined; step = undo.pop()) await step();
  };
  try {
    say(`Inkwell ${version}`);
    // Asked before anything is made: the commonest slip leaves no trace.
    await requirePort("listen", config.listen);
    await requirePort("operator", config.operator);
    await makeDataFolder(config.dataDir);
    const token = await operatorToken(config);

    // The longest wait of a start, so it begins first.
    const offered = config.models.map((model) => ({ model, slot: new EngineSlot(model.contextWindow) }));
    const loading = new AbortController();
    const models = startModels(config, offered, io, logger, AbortSignal.any([signal, loading.signal]));
    undo.push(async () => {
      loading.abort(new Error("the service could not be started"));
      await Promise.allSettled([models]);
      await Promise.all(offered.map(({ slot }) => slot.close()));
    });
    // Whether they could be loaded is asked below; what goes wrong until then is told instead.
    models.catch(() => {});

    const metrics = new Metrics();
    const { store, ledger } = await openStore(config, { onCommit: (commit) => metrics.committed(commit) });
    undo.push(async () => {
      await ledger.settled();
      await store.close();
    });

    const catalog = new Catalog(offered.map(({ model, slot }) => catalogued(model, slot)));
    const server = publicServer(config, times, { logger, metrics, catalog, store, ledger });
    undo.push(() => server.close());
    const publicUrl = await listening("listen", config.listen, () => server.listen(config.listen));

    const operator = createOperatorServer({
      version,
      token: token.token,
      store,
      ledger,
      plans: config.plans,
      catalog,
      metrics,
      logger,
      draining: () => server.draining,
    });
    metrics.observe({
      version,
      catalog,
      running: () => server.running,
      holdTotals: () => store.holdTotals(),
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
    say(
      greetingText({
        publicUrl,
        operatorUrl,
        tokenFile: token.file === null ? null : relative(process.cwd(), token.file),
        models: loaded,
        first,
      }),
    );
    return runningService(config, times, logger, server, undoAll);
  } catch (error) {
    await undoAll();
    throw error;
  }
}

function versionIn(manifest: string): string {
  const parsed: unknown = JSON.parse(manifest);
  const isManifest = typeof parsed === "object" && parsed !== null && "version" in parsed;
  return isManifest ? String(parsed.version) : "unknown";
}

async function makeDataFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new OperatorError(
      `The data folder ${folder} cannot be written (${reason}). Make it writable for this user, or name another one (data in inkwell.yaml, or INKWELL_DATA).`,
      error,
    );
  }
}

function catalogued(model: ModelConfig, slot: EngineSlot): Model {
  const created = Math.floor(Date.now() / 1000);
  return { id: model.id, engine: slot, price: model.price, created, ownedBy: "inkwell" };
}

/** What the public server is built on. */
interface Parts extends OpenStore {
  logger: Logger;
  metrics: Metrics;
  catalog: Catalog;
}

function publicServer(
  config: Config,
  { holdTtlMs, keepAliveMs }: ServiceTimes,
  { logger, metrics, catalog, store, ledger }: Parts,
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
    },
    onUnsettled: (requestId: string, reason: unknown) => {
      metrics.unsettled();
      logger.error(
        { requestId, err: reason },
        "a charge could not be recorded; its last checkpoint will be charged",
      );
    },
  };
  return createPublicServer(
    {
      catalog,
      logger,
      authenticate: (header) => known(header, Date.now()),
      generate: (caller, request, requestId, signal) =>
        generate(pipeline, caller, request, requestId, signal),
      readBalance: async (accountId) => balanceOf(await store.snapshot(accountId), plans),
      onFinished: (finished) => {
        metrics.finished(finished);
        requestLog.finished(finished);
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

async function operatorListen(
  operator: FastifyInstance,
  { operator: { host, port } }: Config,
): Promise<string> {
  return await operator.listen({ host, port });
}

/** One after another: each takes the machine for itself while it loads. */
async function startModels(
  config: Config,
  offered: readonly { model: ModelConfig; slot: EngineSlot }[],
  io: Streams,
  logger: Logger,
  signal: AbortSignal,
): Promise<{ id: string; onMiniature: boolean }[]> {
  const started = [];
  for (const { model, slot } of offered) {
    const { onMiniature } = await startModel(config, model, slot, io, logger, signal);
    started.push({ id: model.id, onMiniature });
    signal.throwIfAborted();
  }
  return started;
}

/** Fills the slot with the model's engine, or with one on the miniature where the model cannot be fetched. */
async function startModel(
  config: Config,
  model: ModelConfig,
  slot: EngineSlot,
  io: Streams,
  logger: Logger,
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
      log: logger.child({ model: model.id }),
    },
    signal,
  );
  await slot.fill(engine);
  return { onMiniature: !obtained.found };
}

function runningService(
  config: Config,
  { settleMs }: ServiceTimes,
  logger: Logger,
  server: PublicServer,
  undoAll: () => Promise<void>,
): RunningService {
  const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
  let stopping: Promise<void> | null = null;

  async function stop(): Promise<void> {
    logger.info({ running: server.running }, "stopping");
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
