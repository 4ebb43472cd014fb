/**
 * `/admin/overview`: what the overview page of the console shows, for pages that ask again.
 *
 * Guarantees that all readers share one snapshot a second.
 */
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { type ApiApp, route } from "../api/app.ts";
import { hasState } from "../api/entity-tag.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { overviewObject } from "./overview-object.ts";
import { OverviewSnapshots } from "./overview-snapshots.ts";

/** At most one snapshot in this time. */
const snapshotMs = 1000;

export function overviewRoutes(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies): void {
  const snapshots = new OverviewSnapshots(actions, dependencies);
  const { reads } = dependencies;

  app.get(
    "/admin/overview",
    route(
      "showOverview",
      {
        role: "viewer",
        summary: "Show what runs now and what was used lately",
        description:
          "`usage`, `low_balance` (up to a minute old) and `running.requests` are of all processes; null before the database was read. Health, models with load and speed, `last_hour`, `last_day` and `errors` are of this node with all of its workers. All clients share one snapshot a second. Has an entity tag: with `if-none-match`, the response is 304 while nothing has changed. Does not prolong a session.",
        response: { 200: overviewObject.schema },
      },
      { config: { prolongsSession: false } },
    ),
    async (request, reply) => {
      if (request.session !== null) reads.count(request.session.hash);
      const { overview, json } = await snapshots.now(snapshotMs);
      return hasState(request, reply, json) ? undefined : overview;
    },
  );
}
