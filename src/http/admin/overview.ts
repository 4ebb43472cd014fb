/**
 * `/admin/overview`: what the overview page of the console shows, as one object and as a stream.
 *
 * Guarantees that all readers share one snapshot a second, and that nothing is computed without a
 * reader. A stream is one write for each change. It neither prolongs its session nor delays a
 * stop, and a client that does not read is dropped.
 */
import type { ServerResponse } from "node:http";
import Type from "typebox";
import { closed, count, objectFor, text } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { type Activity, dayMs, hourMs } from "../../telemetry/activity.ts";
import type { RecentError } from "../../telemetry/recent-errors.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";
import { type ApiApp, operation } from "../api/app.ts";
import { writeHead } from "../error-response.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { activityObject, errorObject, type LiveModel, modelObject } from "./live.ts";
import { requestObject } from "./requests.ts";

/** At most one snapshot in this time. */
const snapshotMs = 1000;
/** Rows of the lists in a snapshot. */
const requestsMax = 20;
const errorsMax = 5;
/** A check of the store that takes longer counts as a failure. */
const storeMsMax = 3000;
/** A comment follows after this number of snapshots without a change. */
const quietTicksMax = 15;
/** A client that does not read is dropped after this number of snapshots. */
const unreadTicksMax = 30;

interface Snapshot {
  store: "ok" | "unreachable";
  clock: "ok" | "wrong";
  draining: boolean;
  warnings: string[];
  nodes: number;
  requests: readonly RequestRecord[];
  models: readonly LiveModel[];
  lastHour: Activity;
  lastDay: Activity;
  errors: readonly RecentError[];
}

const overviewObject = objectFor<Snapshot>("Overview")({
  health: [
    closed({
      store: Type.Enum(["ok", "unreachable"]),
      clock: Type.Enum(["ok", "wrong"]),
      draining: Type.Boolean({ description: "true while the service stops" }),
      warnings: Type.Array(text),
      nodes: count,
    }),
    ({ store, clock, draining, warnings, nodes }) => ({ store, clock, draining, warnings, nodes }),
  ],
  running: [
    closed({ running: count, waiting: count, requests: Type.Array(requestObject.schema) }),
    ({ requests }) => {
      const running = requests.filter(({ work }) => work?.generation.started).length;
      const oldest = requests.slice(0, requestsMax).map(requestObject.of);
      return { running, waiting: requests.length - running, requests: oldest };
    },
  ],
  models: [Type.Array(modelObject.schema), ({ models }) => models.map(modelObject.of)],
  last_hour: [activityObject.schema, ({ lastHour }) => activityObject.of(lastHour)],
  last_day: [activityObject.schema, ({ lastDay }) => activityObject.of(lastDay)],
  errors: [
    Type.Array(errorObject.schema, { description: `the last ${errorsMax}` }),
    ({ errors }) => errors.map(errorObject.of),
  ],
});

const showOverview = operation("showOverview", {
  summary: "Show what this process does now and did lately",
  description:
    "Health, running requests, models with load and speed, the last hour and day, and the last errors. All clients share one snapshot a second.",
  response: { 200: overviewObject.schema },
});

const streamOverview = operation("streamOverview", {
  summary: "Stream the overview as server-sent events",
  description:
    "The `data` of each event is the object of `GET /admin/overview`. An event is sent at once and after each change, at most one a second. The stream ends with the session and with the process.",
  response: { 200: overviewObject.schema },
});

type OverviewDependencies = Pick<
  AdminDependencies,
  "store" | "catalog" | "requests" | "live" | "nodes" | "health"
>;

export function overviewRoutes(
  app: ApiApp,
  _actions: OperatorActions,
  dependencies: AdminDependencies,
): void {
  const overview = new OverviewFeed(dependencies);
  app.addHook("preClose", async () => overview.close());

  app.get("/admin/overview", { schema: showOverview }, async () => overview.now());

  app.get(
    "/admin/overview/stream",
    { schema: streamOverview, config: { prolongsSession: false }, exposeHeadRoute: false },
    (_request, reply) => {
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
  readonly #deps: OverviewDependencies;
  readonly #readers = new Set<Reader>();
  #timer: NodeJS.Timeout | null = null;
  #object: ReturnType<typeof overviewObject.of> | null = null;
  #takenMs = Number.NEGATIVE_INFINITY;
  #store: Snapshot["store"] = "ok";
  /** Start of the check of the store that is under way. */
  #checkedMs: number | null = null;
  #isClosed = false;

  constructor(dependencies: OverviewDependencies) {
    this.#deps = dependencies;
  }

  /** Returns the last snapshot, or a new one if that is older than `ageMsMax`. */
  now(ageMsMax = snapshotMs): ReturnType<typeof overviewObject.of> {
    const nowMs = performance.now();
    if (this.#object === null || nowMs - this.#takenMs >= ageMsMax) {
      this.#object = overviewObject.of(this.#snapshot(nowMs));
      this.#takenMs = nowMs;
    }
    return this.#object;
  }

  add(response: ServerResponse): void {
    const reader: Reader = { response, sent: "", quietTicks: 0, unreadTicks: 0 };
    if (this.#isClosed) return void response.end();
    this.#readers.add(reader);
    response.once("close", () => {
      this.#readers.delete(reader);
      if (this.#readers.size === 0) this.#stop();
    });
    this.#timer ??= setInterval(() => this.#tick(), snapshotMs);
    send(reader, eventOf(this.now()));
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

  #tick(): void {
    // A timer may be early by a fraction of a millisecond.
    const event = eventOf(this.now(snapshotMs / 2));
    for (const reader of this.#readers) send(reader, event);
  }

  #snapshot(nowMs: number): Snapshot {
    const { catalog, requests, live, nodes, health } = this.#deps;
    this.#checkStore(nowMs);
    const { activity, errors } = live;
    return {
      ...health(),
      store: this.#store,
      nodes: nodes().length,
      requests: requests.list(),
      models: catalog.all().map((model) => ({ model, lastDay: activity.over(model.id, dayMs) })),
      lastHour: activity.over(null, hourMs),
      lastDay: activity.over(null, dayMs),
      errors: errors.list().slice(0, errorsMax),
    };
  }

  /** A snapshot does not wait for the store: it shows the result of the check before. */
  #checkStore(nowMs: number): void {
    if (this.#checkedMs !== null) {
      if (nowMs - this.#checkedMs > storeMsMax) this.#store = "unreachable";
      return;
    }
    this.#checkedMs = nowMs;
    const ended = (state: Snapshot["store"]) => {
      this.#store = state;
      this.#checkedMs = null;
    };
    this.#deps.store.accounts({ limit: 1 }).then(
      () => ended("ok"),
      // The log has the reason, from the parts that need the store.
      () => ended("unreachable"),
    );
  }
}

function eventOf(overview: object): string {
  return `data: ${JSON.stringify(overview)}\n\n`;
}

/** Writes nothing while the client does not read, so that no client can fill the memory. */
function send(reader: Reader, event: string): void {
  const { response } = reader;
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
