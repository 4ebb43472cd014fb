/**
 * `/admin/overview`: what the overview page of the console shows, as one object and as a stream.
 *
 * Guarantees that all readers share one snapshot a second.
 */
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { type ApiApp, route } from "../api/app.ts";
import { Feed } from "../api/feed.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { overviewObject } from "./overview-object.ts";
import { OverviewSnapshots } from "./overview-snapshots.ts";

/** At most one snapshot in this time. */
const snapshotMs = 1000;

export function overviewRoutes(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies): void {
  const { jobs, streams } = dependencies;
  const snapshots = new OverviewSnapshots(actions, dependencies);
  const feed = new Feed({
    ...{ jobs, name: "show_overview", failure: "the overview could not be shown" },
    read: (topics: readonly "overview"[], ageMsMax) => topics.map(() => snapshots.now(ageMsMax)),
  });
  const config = { prolongsSession: false };

  app.get(
    "/admin/overview",
    route(
      "showOverview",
      {
        role: "viewer",
        summary: "Show what runs now and what was used lately",
        description:
          "`usage`, `low_balance` (up to a minute old) and `running.requests` are of all processes; null before the database was read. Health, models with load and speed, `last_hour`, `last_day` and `errors` are of this process. All clients share one snapshot a second. Does not prolong a session.",
        response: { 200: overviewObject.schema },
      },
      { config },
    ),
    async () => (await snapshots.now(snapshotMs)).overview,
  );

  app.get(
    "/admin/overview/stream",
    route(
      "streamOverview",
      {
        role: "viewer",
        summary: "Stream the overview as server-sent events",
        description:
          "The `data` of each event `message` is the object of `GET /admin/overview`. An event is sent at once and after each change, at most one a second. The stream ends with the session and with the process. A session has four streams at most.",
        response: { 200: overviewObject.schema },
        events: true,
        refusals: ["concurrency_limit_exceeded"],
      },
      { config, exposeHeadRoute: false },
    ),
    (request, reply) => {
      streams.take(request, reply);
      feed.follow(reply, "overview", (stream, { json }) => stream.send("message", json));
    },
  );
}
