/**
 * Snapshots of the service for the overview. All readers share one, and without a reader nothing
 * is computed.
 */
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { dayMs, hourMs } from "../../units.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { OverviewDatabase } from "./overview-database.ts";
import { errorsMax, type Overview, overviewObject, type Snapshot } from "./overview-object.ts";

/** An overview, and the same as JSON. */
interface TakenOverview {
  overview: Overview;
  json: string;
}

export class OverviewSnapshots {
  readonly #deps: AdminDependencies;
  readonly #database: OverviewDatabase;
  #last: TakenOverview | null = null;
  #taking: Promise<TakenOverview> | null = null;
  #takenMs = Number.NEGATIVE_INFINITY;

  constructor(actions: OperatorActions, dependencies: AdminDependencies) {
    const { store, requests, logger } = dependencies;
    const onError = (err: unknown) =>
      logger.warn({ err }, "the overview could not be read from the database; trying again");
    this.#deps = dependencies;
    this.#database = new OverviewDatabase({ store, actions, requests, onError });
  }

  /** Resolves with the last snapshot, or with a new one if that is older than `ageMsMax`. */
  async now(ageMsMax: number): Promise<TakenOverview> {
    if (this.#last !== null && performance.now() - this.#takenMs < ageMsMax) return this.#last;
    this.#taking ??= this.#take().finally(() => {
      this.#taking = null;
    });
    return await this.#taking;
  }

  async #take(): Promise<TakenOverview> {
    await this.#database.look();
    const overview = overviewObject.of(this.#snapshot());
    this.#last = { overview, json: JSON.stringify(overview) };
    this.#takenMs = performance.now();
    return this.#last;
  }

  #snapshot(): Snapshot {
    const { catalog, requests, live, nodes, health, jobs } = this.#deps;
    const { activity, errors } = live;
    const now = health(this.#database.isReachable);
    const problems = this.#database.view?.audit?.problems ?? 0;
    return {
      ...now,
      warnings: [
        ...(problems === 0 ? [] : ["The last recorded audit found broken rules."]),
        ...this.#database.failing.map(({ name, problem }) => `The receiver ${name} fails: ${problem}.`),
        ...now.warnings,
      ],
      nodes: nodes(),
      jobs: jobs.states().filter(({ state }) => state !== "ok"),
      requests: requests.list(),
      elsewhere: this.#database.elsewhere(),
      database: this.#database.view,
      near: this.#database.near,
      models: catalog.all().map((model) => ({ model, lastDay: activity.over(model.id, dayMs) })),
      lastHour: activity.over(null, hourMs),
      lastDay: activity.over(null, dayMs),
      errors: errors.list().slice(0, errorsMax),
    };
  }
}
