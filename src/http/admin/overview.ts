/**
 * `/admin/overview`: what the overview page of the console shows, as one object and as a stream.
 *
 * Guarantees that all readers share one snapshot a second, and that nothing is computed without a
 * reader. A stream is one write for each change. It neither prolongs its session nor delays a
 * stop, and a client that does not read is dropped.
 */
import type { ServerResponse } from "node:http";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { dayMs, hourMs } from "../../telemetry/live.ts";
import { type ApiApp, operation } from "../api/app.ts";
import { writeHead } from "../error-response.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { OverviewDatabase } from "./overview-database.ts";
import { errorsMax, type Overview, overviewObject, type Snapshot } from "./overview-object.ts";

/** At most one snapshot in this time. */
const snapshotMs = 1000;
/** A comment follows after this number of snapshots without a change. */
const quietTicksMax = 15;
/** A client that does not read is dropped after this number of snapshots. */
const unreadTicksMax = 30;

const showOverview = operation("showOverview", {
  summary: "Show what runs now and what was used lately",
  description:
    "`usage`, `near_exhaustion` (up to a minute old) and `running.requests` are of all processes; null before the database was read. Health, models with load and speed, `last_hour`, `last_day` and `errors` are of this process. All clients share one snapshot a second. Does not prolong a session.",
  response: { 200: overviewObject.schema },
});

const streamOverview = operation("streamOverview", {
  summary: "Stream the overview as server-sent events",
  description:
    "The `data` of each event is the object of `GET /admin/overview`. An event is sent at once and after each change, at most one a second. The stream ends with the session and with the process. A session has four streams at most.",
  response: { 200: overviewObject.schema },
  events: true,
  refusals: ["concurrency_limit_exceeded"],
});

export function overviewRoutes(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies): void {
  const overview = new OverviewFeed(actions, dependencies);
  app.addHook("preClose", async () => overview.close());
  const config = { prolongsSession: false };

  app.get("/admin/overview", { schema: showOverview, config }, () => overview.now());

  app.get(
    "/admin/overview/stream",
    { schema: streamOverview, config, exposeHeadRoute: false },
    (request, reply) => {
      dependencies.streams.take(request, reply);
      writeHead(reply, 200, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
      overview.add(reply.raw);
    },
  );
}

interface Reader {
  response: ServerResponse;
  /** The last snapshot that was written to it. */
  sent: string;
  quietTicks: number;
  unreadTicks: number;
}

class OverviewFeed {
  readonly #deps: AdminDependencies;
  readonly #database: OverviewDatabase;
  readonly #readers = new Set<Reader>();
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

  add(response: ServerResponse): void {
    if (this.#isClosed || response.destroyed) return void response.end();
    const reader: Reader = { response, sent: "", quietTicks: 0, unreadTicks: 0 };
    this.#readers.add(reader);
    response.once("close", () => {
      this.#readers.delete(reader);
      if (this.#readers.size === 0) this.#stop();
    });
    this.#timer ??= setInterval(() => this.#show([...this.#readers], snapshotMs / 2), snapshotMs);
    this.#show([reader], snapshotMs);
  }

  /** Ends all streams. */
  close(): void {
    this.#isClosed = true;
    for (const { response } of this.#readers) response.end();
  }

  #stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  #show(readers: readonly Reader[], ageMsMax: number): void {
    this.now(ageMsMax).then(
      (overview) => {
        const event = eventOf(overview);
        for (const reader of readers) send(reader, event);
      },
      (err: unknown) => {
        this.#deps.logger.warn({ err }, "the overview could not be shown; its streams end");
        for (const { response } of readers) response.destroy();
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

function eventOf(overview: Overview): string {
  return `data: ${JSON.stringify(overview)}\n\n`;
}

/** Writes nothing while the client does not read, so that no client can fill the memory. */
function send(reader: Reader, event: string): void {
  const { response } = reader;
  if (response.destroyed || response.writableEnded) return;
  if (response.writableNeedDrain) {
    reader.unreadTicks += 1;
    if (reader.unreadTicks > unreadTicksMax) response.destroy();
    return;
  }
  reader.unreadTicks = 0;
  if (event !== reader.sent) {
    response.write(event);
    reader.sent = event;
    reader.quietTicks = 0;
    return;
  }
  reader.quietTicks += 1;
  if (reader.quietTicks < quietTicksMax) return;
  response.write(":\n\n");
  reader.quietTicks = 0;
}
