/**
 * `/admin/reload`, `/admin/nodes`, `/admin/holds`, `/admin/clock` and
 * `/admin/audit`: the configuration and the state of the service and its ledger.
 */
import Type from "typebox";
import { closed, isoTime, objectFor, text, time } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import {
  acceptedClockObject,
  auditJobObject,
  clockObject,
  holdObject,
  nodeObject,
} from "../../accounts/operator-objects.ts";
import { momentNamed } from "../../accounts/refusals.ts";
import type { ReloadReport } from "../../config/changes.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageIn, pageOf, placeCursor, placeIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import type { AdminDependencies } from "./dependencies.ts";

const names = Type.Array(text);

function named(description: string) {
  return Type.Array(text, { description });
}

export const reloadObject = objectFor<ReloadReport>("Reload")({
  reloaded_at: [time, (report) => isoTime(report.atMs)],
  models: [
    closed({ added: names, removed: names, changed: names }),
    ({ models }) => ({ added: models.added, removed: models.removed, changed: models.changed }),
  ],
  prices: [named("models whose price has changed"), (report) => report.prices],
  plans: [
    closed({ added: names, changed: names, retired: names, superseded: Type.Boolean() }),
    ({ plans }) => ({ ...plans }),
  ],
  warnings: [named("sentences for the operator"), (report) => report.warnings],
  settings: [named("other settings that have changed"), (report) => report.settings],
  needs_restart: [
    named("settings that differ in the file and keep their values until the next start"),
    (report) => report.needsRestart,
  ],
});

export function serviceRoutes(
  app: ApiApp,
  actions: OperatorActions,
  { audits, nodes, reload: reloadConfiguration }: AdminDependencies,
): void {
  app.post(
    "/admin/reload",
    route("reloadConfiguration", {
      summary: "Read the configuration again and apply it",
      description:
        "Checks everything first, and loads models that are new or changed, which can take minutes. If a part of the configuration cannot be used, nothing changes. Running answers keep their model and price.",
      response: { 200: reloadObject.schema },
      refusals: ["cannot_reload_now", "configuration_invalid"],
    }),
    async () => reloadObject.of(await reloadConfiguration()),
  );

  app.get(
    "/admin/nodes",
    route("listNodes", {
      summary: "List the live processes on this database, in the order of their start",
      description:
        "As this process last saw them, a few seconds ago. `differs` lists the settings that affect credits and differ from this process.",
      ...schema.listOf(nodeObject.schema),
    }),
    async ({ query }) => pageIn(nodes(), query, nodeObject.of),
  );

  app.get(
    "/admin/holds",
    route("listHolds", {
      summary: "List running requests and the credits that they hold, in the order of account and request id",
      description:
        "A hold whose `expires_at` has passed belongs to a process that died. It is charged by its last checkpoint within seconds.",
      ...schema.listByAccount(holdObject.schema),
      refusals: ["account_not_found", "list_too_slow"],
    }),
    async ({ query: { limit, after, account } }) => {
      const place = placeIn(after);
      const from = place && { account: place.account, id: place.rest };
      return pageOf(
        limit,
        (rows) => actions.holds({ account, after: from, limit: rows }),
        holdObject.of,
        (row) => placeCursor(row.account, row.id),
      );
    },
  );

  app.get(
    "/admin/clock",
    route("showClock", {
      summary: "Show whether the clock of the ledger is trusted",
      description:
        "`clock_at` is the clock, `ledger_at` the time that the ledger uses. They differ if the clock is not trusted. Ledger time is ahead of a trusted clock that was set back, and runs at half pace until the clock has caught up.",
      response: { 200: clockObject.schema },
    }),
    async () => clockObject.of(await actions.clock()),
  );

  app.post(
    "/admin/clock/accept",
    route("acceptClock", {
      summary: "Accept the present reading of the clock",
      description:
        "Ends the time in which the ledger does not believe its clock. `time` is the true time, which has to be within a minute of the clock. `by` names the operator in the record. Other processes follow within 5 s.",
      body: closed({ by: schema.note, time: schema.moment }),
      response: { 200: acceptedClockObject.schema },
      refusals: ["clock_trusted", "clock_differs"],
    }),
    async ({ body: { by, time } }) =>
      acceptedClockObject.of(await actions.acceptClock(by, momentNamed("time", time))),
  );

  app.post(
    "/admin/audit",
    route("startAudit", {
      summary: "Start an audit of all rows of the ledger",
      description:
        "Responds at once. The audit runs in the background and takes minutes on a large ledger. If an audit already runs in any process on this database, no second one starts, so a repetition is safe. Requests do not wait for the audit. On PostgreSQL, requests of a busy account become slower while it runs.",
      response: { 202: auditJobObject.schema },
    }),
    async (_request, reply) => reply.code(202).send(auditJobObject.of(await audits.start())),
  );

  app.get(
    "/admin/audit",
    route("showAudit", {
      summary: "Show the running audit and the last result",
      description:
        "The result is stored in the database: every process shows the same, after a restart too. `failed` is set if a later audit could not read all rows.",
      response: { 200: auditJobObject.schema },
    }),
    async () => auditJobObject.of(await audits.job()),
  );
}
