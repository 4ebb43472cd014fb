/**
 * Snapshots of the service for the overview. All readers share one, and without a reader nothing
 * is computed.
 */
import { noInvitations } from "../../accounts/invitations.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import type { RecentError } from "../../telemetry/recent-errors.ts";
import { dayMs } from "../../units.ts";
import type { AdminDependencies, Health } from "./dependencies.ts";
import type { LiveState } from "./live-state.ts";
import { type Attention, OverviewDatabase } from "./overview-database.ts";
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
    const overview = overviewObject.of(await this.#snapshot());
    this.#last = { overview, json: JSON.stringify(overview) };
    this.#takenMs = performance.now();
    return this.#last;
  }

  async #snapshot(): Promise<Snapshot> {
    const { liveState, nodes, urls, invitations = () => noInvitations } = this.#deps;
    const { steps } = this.#database;
    const health = this.#deps.health(this.#database.isReachable);
    const [now, live, requests] = await Promise.all([health, liveState(), this.#deps.requests()]);
    const jobs = live.jobs.filter(({ state }) => state !== "ok");
    return {
      ...now,
      ...live,
      attention: [
        ...stateOf(now),
        ...this.#database.attention(),
        ...now.warnings.map(onHealth),
        ...jobs.map(({ name, state }) => onHealth(`The job "${name.replaceAll("_", " ")}" is ${state}.`)),
        ...unreadable(live.errors),
      ],
      steps: steps && { ...steps, model: steps.request || live.models.some(isUsable) },
      urls: urls(),
      invitations: invitations(),
      nodes: nodes(),
      requests,
      jobs,
      elsewhere: this.#database.elsewhere(requests),
      database: this.#database.view,
      near: this.#database.near,
      errors: live.errors.slice(0, errorsMax),
    };
  }
}

/** An upstream has nothing to load. */
function isUsable({ state, servers }: LiveState["models"][number]): boolean {
  return state === "ready" || servers !== null;
}

function onHealth(text: string): Attention {
  return { text, page: "health" };
}

function stateOf({ ready, store, clock, draining }: Health): Attention[] {
  if (draining) return [onHealth("The service stops.")];
  return [
    ...(store === "ok" ? [] : [onHealth(`The database is ${store.replace("_", "-")}.`)]),
    ...(ready || store !== "ok" ? [] : [onHealth("The service takes no requests: no model is loaded.")]),
    ...(clock === "ok" ? [] : [onHealth("The clock differs. Windows and dates follow the trusted time.")]),
  ];
}

/** Accounts whose rows cannot be read, as requests have found them lately. */
function unreadable(errors: readonly RecentError[]): Attention[] {
  const found = errors.filter(
    ({ code, lastMs }) => code === "balance_unavailable" && lastMs > Date.now() - dayMs,
  );
  return found
    .slice(0, 1)
    .map(() => onHealth("An account is damaged: its requests are refused. Run the audit."));
}
