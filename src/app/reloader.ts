/**
 * Reloads the configuration of a running service.
 *
 * Guarantees: everything that can fail happens before anything is applied: reading and checking
 * the file, and loading the models that are new or changed. If a part fails, the running
 * configuration stays as it is. Applying is one turn of the event loop, so every request sees
 * either the old configuration or the new one. Running answers keep their model, engine and price.
 * Only one reload runs at a time.
 */
import type { Logger } from "pino";
import { service } from "../actors.ts";
import {
  type AppliedPlansReport,
  applicable,
  changesBetween,
  isEmpty,
  isSameSignIn,
  type LastReload,
  type ReloadPreview,
  type ReloadReport,
} from "../config/changes.ts";
import { type Config, configurationError } from "../config/load.ts";
import { operatorNames } from "../config/operator.ts";
import { messageOf, OperatorError, Refusal } from "../errors.ts";
import type { EventSending } from "../events/event-sending.ts";
import type { AllowedHosts } from "../http/api/allowed-hosts.ts";
import type { PublicServer, PublicSettings } from "../http/public/server.ts";
import type { Peers } from "../peers.ts";
import type { PersonSignIn } from "../sign-in/person-sign-in.ts";
import { changeLogRow } from "../store/change-log.ts";
import type { NodeWatch } from "../store/nodes.ts";
import type { Store } from "../store/store.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { configFingerprintOf } from "./config-fingerprint.ts";
import type { Portal } from "./portal.ts";
import { reloadPreview } from "./reload-preview.ts";
import type { RunningModels } from "./running-models.ts";
import type { ServicePlans } from "./service-plans.ts";
import { type Followed, followed, followMs } from "./worker-here.ts";

/** Everything that a reload changes or needs. */
export interface ReloadedDependencies {
  /** Reads the configuration as the start did. Throws an `OperatorError`. */
  reread(): Config;
  models: RunningModels;
  plans: ServicePlans;
  /** Keeps who reloaded. */
  store: Pick<Store, "logChange" | "times">;
  server: PublicServer;
  settingsOf(config: Config): PublicSettings;
  allowedHosts: AllowedHosts;
  /** Null: no portal. */
  portal: Pick<Portal, "configure"> | null;
  people: Pick<PersonSignIn, "configure">;
  watch: NodeWatch;
  events: Pick<EventSending, "configure">;
  /** The other workers, which reload too. */
  peers: Peers;
  metrics: Metrics;
  logger: Logger;
  /** Called with the configuration that applies from now on. */
  onApplied(config: Config): void;
}

const explanations = {
  starting: "The service is still starting. Send the request again when all models have been loaded.",
  reloading: "Another reload is running. Send the request again when it has ended.",
  closed: "The service is stopping.",
};

export class Reloader {
  readonly #dependencies: ReloadedDependencies;
  #running: Config;
  #phase: keyof typeof explanations | "idle" = "starting";
  #last: LastReload | null = null;
  #underWay: Promise<unknown> | null = null;
  /** The configuration that another worker has asked for last. */
  #newest: Config | null = null;
  #following: Promise<string> | null = null;
  readonly #closing = new AbortController();
  readonly #opened = Promise.withResolvers<void>();
  readonly #askOthers: (followed: Followed) => Promise<(string | null)[]>;

  constructor(running: Config, dependencies: ReloadedDependencies) {
    this.#running = running;
    this.#dependencies = dependencies;
    const follow = (followed: Followed) => this.#follow(followed);
    this.#askOthers = dependencies.peers.others("reload", follow, followMs);
  }

  /** The last reload that was tried, if there was one. */
  get last(): LastReload | null {
    return this.#last;
  }

  /** Allows reloads from now on. */
  open(): void {
    if (this.#phase === "starting") this.#phase = "idle";
    this.#opened.resolve();
    this.#dependencies.metrics.reloaded(true, Date.now());
  }

  /**
   * Logs and returns what has changed. If the new configuration cannot be used, logs and throws
   * the refusal, and nothing has changed.
   */
  async reload(by: string): Promise<ReloadReport> {
    return await this.#alone(async () => {
      const report = await this.#reload(by, this.#dependencies.reread);
      await this.#log(by, report);
      const unlike = (await this.#askOthers({ by, config: this.#running })).filter(
        (each) => each !== followed,
      );
      const reasons = unlike.map((reason) => (reason ?? "it does not answer").replace(/\.?$/, "."));
      const told = reasons.map((reason) => `A worker did not reload: ${reason}`);
      for (const reason of reasons) this.#dependencies.logger.warn({ reason }, "a worker did not reload");
      this.#ended(true, report.atMs);
      return { ...report, warnings: [...report.warnings, ...told] };
    });
  }

  /** Does what another worker has done, which keeps who reloaded. Returns why it could not. */
  async #follow({ by, config }: Followed): Promise<string> {
    this.#newest = config;
    await this.#opened.promise;
    // It asks nobody, so it ends.
    await this.#following;
    // Another reload has been asked for meanwhile.
    if (config !== this.#newest) return followed;
    const reload = async () => this.#ended(true, (await this.#reload(by, () => config)).atMs);
    this.#following = this.#alone(reload).then(() => followed, messageOf);
    return await this.#following;
  }

  /** Returns what a reload would change now. It loads no model, so a reload can still fail. */
  async preview(): Promise<ReloadPreview> {
    const { reread, settingsOf, plans } = this.#dependencies;
    try {
      const next = readNext(reread);
      // Throws what a reload would throw.
      settingsOf(applicable(this.#running, next));
      return reloadPreview(this.#running, next, await plans.compare(next.plans));
    } catch (error) {
      throw refusalOf(error);
    }
  }

  /** Makes the plans of the running configuration current, even if they were superseded. */
  async applyPlans(by: string): Promise<AppliedPlansReport> {
    const { plans } = this.#dependencies;
    return await this.#alone(() => plans.apply(this.#running.plans, { by, force: true }));
  }

  async #alone<T>(change: () => Promise<T>): Promise<T> {
    if (this.#phase !== "idle") throw new Refusal("cannot_reload_now", explanations[this.#phase]);
    this.#phase = "reloading";
    const underWay = change();
    this.#underWay = underWay;
    try {
      return await underWay;
    } finally {
      if (this.#phase === "reloading") this.#phase = "idle";
    }
  }

  /** Reloads as `reload` does. The log has the result. */
  reloadOnSignal(): void {
    if (this.#phase !== "idle") {
      const reason = explanations[this.#phase];
      this.#dependencies.logger.warn({ reason }, "the configuration was not reloaded on SIGHUP");
      return;
    }
    // It logs its failure.
    this.reload(service).catch(() => {});
  }

  /** Refuses further reloads, and ends a reload that still loads models. */
  async close(): Promise<void> {
    this.#phase = "closed";
    this.#closing.abort(new Refusal("cannot_reload_now", explanations.closed));
    await Promise.allSettled([this.#underWay]);
  }

  /** The last step of a reload: whoever sees its result may reload again at once. */
  #ended(successful: boolean, atMs: number): void {
    this.#last = { atMs, successful };
    this.#dependencies.metrics.reloaded(successful, atMs);
  }

  async #log(by: string, { models, prices, settings, needsRestart }: ReloadReport): Promise<void> {
    const { store, logger } = this.#dependencies;
    const { atMs } = store.times();
    const after = { models, prices, settings, needsRestart };
    const row = changeLogRow({ kind: "reload", by, atMs, before: null, after });
    await store.logChange(row).catch((error: unknown) => {
      logger.error({ err: error }, "the reload is not in the list of changes");
    });
  }

  async #reload(by: string, reread: () => Config): Promise<ReloadReport> {
    const { logger } = this.#dependencies;
    try {
      return await this.#prepareAndApply(by, reread);
    } catch (error) {
      this.#ended(false, Date.now());
      const known = error instanceof OperatorError || error instanceof Refusal;
      const fields = known ? { reason: messageOf(error) } : { err: error };
      logger.error(fields, "the configuration was not reloaded; the service keeps the running one");
      throw refusalOf(error);
    }
  }

  async #prepareAndApply(by: string, reread: () => Config): Promise<ReloadReport> {
    const { models, settingsOf, logger } = this.#dependencies;
    const read = readNext(reread);
    const between = changesBetween(this.#running, read);
    const next = applicable(this.#running, read);
    const settings = settingsOf(next);
    const engines = await models.prepare(next.models, this.#closing.signal);
    const plans = await models.orClose(engines, () =>
      this.#dependencies.plans.apply(next.plans, { by, models: next.models }),
    );
    const { kind, added, changed, retired, warnings } = plans;
    const superseded = kind === "superseded";
    const changes = { ...between, plans: { added, changed, retired, superseded }, warnings };
    // From here on nothing can fail and nothing is awaited.
    const isLogged = logger.isLevelEnabled("info");
    const log = () =>
      logger.info(
        changes,
        isEmpty(changes) && kind === "unchanged"
          ? "the configuration is reloaded; nothing has changed"
          : "the configuration is reloaded",
      );
    if (isLogged) log();
    models.replace(next.models, engines);
    this.#apply(next, settings);
    // The new level may show what the old one did not.
    if (!isLogged) log();
    return { atMs: Date.now(), ...changes };
  }

  #apply(next: Config, settings: PublicSettings): void {
    const { server, allowedHosts, portal, people, watch, events, logger, onApplied } = this.#dependencies;
    server.configure(settings);
    allowedHosts.replace(operatorNames(next.operator));
    portal?.configure(next);
    events.configure(next.events);
    if (!isSameSignIn(this.#running, next)) people.configure(next.signIn);
    logger.level = next.log.level;
    this.#running = next;
    onApplied(next);
    // Reports its failures itself, and repeats the heartbeat.
    void watch.changed(configFingerprintOf(next));
  }
}

function readNext(reread: () => Config): Config {
  const read = reread();
  // A service that runs keeps its sign-in. Only a start goes on without.
  if (read.signInProblems.length > 0) throw configurationError(read.signInProblems);
  return read;
}

function refusalOf(error: unknown): unknown {
  return error instanceof OperatorError ? new Refusal("configuration_invalid", error.message) : error;
}
