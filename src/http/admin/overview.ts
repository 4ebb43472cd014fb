/**
 * `/admin/overview`: what the overview page of the console shows, as one object and as a stream.
 *
 * Guarantees that all readers share one snapshot a second, and that nothing is computed without a
 * reader. A stream is one write for each change. It neither prolongs its session nor delays a
 * stop, and a client that does not read is dropped.
 */
import type { FastifyReply } from "fastify";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { dayMs, hourMs } from "../../telemetry/live.ts";
import { type ApiApp, route } from "../api/app.ts";
import { EventStream } from "../api/event-stream.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { OverviewDatabase } from "./overview-database.ts";
import { errorsMax, type Overview, overviewObject, type Snapshot } from "./overview-object.ts";

/** At most one snapshot in this time. */
const snapshotMs = 1000;

export function overviewRoutes(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies): void {
  const overview = new OverviewFeed(actions, dependencies);
  app.addHook("preClose", async () => overview.close());
  const config = { prolongsSession: false };

  app.get(
    "/admin/overview",
    route(
      "showOverview",
      {
        summary: "Show what runs now and what was used lately",
        description:
          "`usage`, `near_exhaustion` (up to a minute old) and `running.requests` are of all processes; null before the database was read. Health, models with load and speed, `last_hour`, `last_day` and `errors` are of this process. All clients share one snapshot a second. Does not prolong a session.",
        response: { 200: overviewObject.schema },
      },
      { config },
    ),
    () => overview.now(),
  );

  app.get(
    "/admin/overview/stream",
    route(
      "streamOverview",
      {
        summary: "Stream the overview as server-sent events",
        description:
          "The `data` of each event is the object of `GET /admin/overview`. An event is sent at once and after each change, at most one a second. The stream ends with the session and with the process. A session has four streams at most.",
        response: { 200: overviewObject.schema },
        events: true,
        refusals: ["concurrency_limit_exceeded"],
      },
      { config, exposeHeadRoute: false },
    ),
    (request, reply) => {
      dependencies.streams.take(request, reply);
      overview.add(reply);
    },
  );
}

class OverviewFeed {
  readonly #deps: AdminDependencies;
  readonly #database: OverviewDatabase;
  readonly #streams = new Set<EventStream>();
  #timer: NodeJS.Timeout | null = null;
  #last: Overview | null = null;
  #taking: Promise<Overview> | null = null;
  #takenMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(actions: OperatorActions, dependencies: AdminDependencies) {
    const { store, requests, logger } = dependencies;
    const onError = (err: unknown) =>
      logger.warn({ err }, "the overview could not be read from the database; trying again");
    this.#deps = dependencies;
    this.#database = new OverviewDatabase({ store, actions, requests, onError });
  }

  /** Resolves with the last snapshot, or with a new one if that is older than `ageMsMax`. */
  async now(ageMsMax = snapshotMs): Promise<Overview> {
    if (this.#last !== null && performance.now() - this.#takenMs < ageMsMax) return this.#last;
    this.#taking ??= this.#take().finally(() => {
      this.#taking = null;
    });
    return await this.#taking;
  }

  add(reply: FastifyReply): void {
    const stream = new EventStream(reply);
    if (this.#isClosed || reply.raw.destroyed) return void stream.end();
    this.#streams.add(stream);
    stream.onEnd(() => {
      this.#streams.delete(stream);
      if (this.#streams.size === 0) this.#stop();
    });
    this.#timer ??= setInterval(() => this.#show([...this.#streams], snapshotMs / 2), snapshotMs);
    this.#show([stream], snapshotMs);
  }

  /** Ends all streams. */
  close(): void {
    this.#isClosed = true;
    for (const stream of this.#streams) stream.end();
  }

  #stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  #show(streams: readonly EventStream[], ageMsMax: number): void {
    this.now(ageMsMax).then(
      (overview) => {
        const text = JSON.stringify(overview);
        for (const stream of streams) stream.sendJson("", text);
      },
      (err: unknown) => {
        this.#deps.logger.warn({ err }, "the overview could not be shown; its streams end");
        for (const stream of streams) stream.end(true);
      },
    );
  }

  async #take(): Promise<Overview> {
    await this.#database.look();
    const overview = overviewObject.of(this.#snapshot());
    this.#last = overview;
    this.#takenMs = performance.now();
    return overview;
  }

  #snapshot(): Snapshot {
    const { catalog, requests, live, nodes, health } = this.#deps;
    const { activity, errors } = live;
    return {
      ...health(),
      store: this.#database.state,
      nodes: nodes(),
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
