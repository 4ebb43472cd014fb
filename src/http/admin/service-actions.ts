/** How this process does what operators do with the service, its plans and its requests. */
import Type, { type Static } from "typebox";
import { closed, isoTime, objectFor, text, time } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { holdObject, lastAuditObject, nodeObject, timeObject } from "../../accounts/operator-objects.ts";
import { comparedPlansObject, planObject } from "../../accounts/plan-objects.ts";
import { refusalObject } from "../../accounts/refused-requests.ts";
import type { RequestStop } from "../../accounts/request-stops.ts";
import { settingChangeObject } from "../../accounts/setting-changes.ts";
import { bindFor } from "../../actions/bind.ts";
import { pageIn, pageOf, pageSchema, placeCursor, placeIn } from "../../actions/pages.ts";
import { applyPlans, previewReload, reloadConfiguration, stopRequest } from "../../actions/service.ts";
import * as views from "../../actions/views.ts";
import type { Role } from "../../actors.ts";
import type { AppliedPlansReport, ReloadPreview, ReloadReport } from "../../config/changes.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { jobObject } from "./job-object.ts";
import { errorObject, modelObject } from "./live-objects.ts";
import { requestObject } from "./request-object.ts";

export interface ServiceContext {
  timezone: string;
  role: Role;
  actions: OperatorActions;
  here: AdminDependencies;
}

const bind = bindFor<ServiceContext>();
const names = Type.Array(text);

function named(description: string) {
  return Type.Array(text, { description });
}

const appliedObject = objectFor<AppliedPlansReport>("AppliedPlans")({
  applied: [Type.Boolean({ description: "false: they were current" }), ({ kind }) => kind === "applied"],
  added: [names, ({ added }) => added],
  changed: [names, ({ changed }) => changed],
  retired: [names, ({ retired }) => retired],
  warnings: [names, ({ warnings }) => warnings],
});

const plansPage = closed({
  ...pageSchema(planObject.schema).properties,
  configuration: comparedPlansObject.schema,
});

export const planActions = {
  listPlans: bind(views.listPlans, plansPage, async ({ actions, here }, input) => {
    const section = here.configured().plans;
    const compared = await actions.previewPlans(section);
    const page = await pageIn(await actions.plans(), input, planObject.of);
    return { ...page, configuration: comparedPlansObject.of({ section, ...compared }) };
  }),
  applyPlans: bind(applyPlans, appliedObject.schema, async ({ actions, here }) =>
    appliedObject.of(await here.applyPlans(actions.by)),
  ),
};

const stopObject = objectFor<RequestStop>("RequestStop")({
  request_id: [text, (stop) => stop.requestId],
  stopped: [
    Type.Boolean({
      description:
        "true: this process has stopped it; false: another process answers it, and stops it within a few seconds",
    }),
    (stop) => stop.isStopped,
  ],
});

export const requestActions = {
  listRequests: bind(
    views.listRequests,
    pageSchema(requestObject.schema),
    async ({ here }, { limit, after = "", account }) => {
      const found = (await here.requests())
        .filter((each) => each.request_id > after && [undefined, each.account].includes(account))
        .toSorted((a, b) => (a.request_id < b.request_id ? -1 : 1));
      return await pageOf(
        limit,
        async (rows) => found.slice(0, rows),
        (request) => request,
        (request) => request.request_id,
      );
    },
  ),
  stopRequest: bind(stopRequest, stopObject.schema, async ({ actions: { by }, here }, { request }) =>
    stopObject.of(await here.stops.stopRequest({ id: request, by })),
  ),
};

const reloadObject = objectFor<ReloadReport>("Reload")({
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

export type ReloadJson = Static<typeof reloadObject.schema>;

export const reloadPreviewObject = objectFor<ReloadPreview>("ReloadPreview")({
  changes: [
    Type.Array(settingChangeObject.schema, {
      description: "settings that differ; of secrets, only that they do",
    }),
    ({ changes }) => changes.map(settingChangeObject.of),
  ],
  needs_restart: [
    named("settings among them that keep their values until the next start"),
    ({ needsRestart }) => needsRestart,
  ],
  superseded: [
    Type.Boolean({ description: "whether newer plans replaced those of the file, so that it changes none" }),
    ({ superseded }) => superseded,
  ],
  warnings: [named("sentences for the operator"), ({ warnings }) => warnings],
});

export type ReloadPreviewJson = Static<typeof reloadPreviewObject.schema>;

export const liveActions = {
  listModels: bind(views.listModels, pageSchema(modelObject.schema), async ({ here }, input) =>
    pageIn((await here.liveState()).models, input, (model) => model),
  ),
  listErrors: bind(views.listErrors, pageSchema(errorObject.schema), async ({ here }, input) =>
    pageIn((await here.liveState()).errors, input, errorObject.of),
  ),
  listRefusals: bind(
    views.listRefusals,
    pageSchema(refusalObject.schema),
    async ({ actions, here }, { account, ...input }) => {
      const { id } = await actions.account(account);
      return await pageIn(await here.live.refusalsOf(id), input, refusalObject.of);
    },
  ),
};

export const serviceActions = {
  reloadConfiguration: bind(reloadConfiguration, reloadObject.schema, async ({ actions, here }) =>
    reloadObject.of(await here.reload(actions.by)),
  ),
  previewReload: bind(previewReload, reloadPreviewObject.schema, async ({ here }) =>
    reloadPreviewObject.of(await here.previewReload()),
  ),
  listNodes: bind(views.listNodes, pageSchema(nodeObject.schema), async ({ here }, input) =>
    pageIn(here.nodes(), input, nodeObject.of),
  ),
  listHolds: bind(
    views.listHolds,
    pageSchema(holdObject.schema),
    async ({ actions }, { limit, after, account }) => {
      const place = placeIn(after);
      const from = place && { account: place.account, id: place.rest };
      return await pageOf(
        limit,
        (rows) => actions.holds({ account, after: from, limit: rows }),
        holdObject.of,
        (row) => placeCursor(row.account, row.id),
      );
    },
  ),
  showTime: bind(views.showTime, timeObject.schema, async ({ actions }) =>
    timeObject.of({ atMs: actions.ledgerMs(), timezone: actions.timezone }),
  ),
  listJobs: bind(views.listJobs, pageSchema(jobObject.schema), async ({ here }, input) => {
    const rows = (await here.liveState()).jobs.map((job) => ({ ...job, id: job.name }));
    return await pageIn(rows, input, jobObject.of);
  }),
  showAudit: bind(views.showAudit, lastAuditObject.schema, async ({ here }) =>
    lastAuditObject.of(await here.store.lastAudit()),
  ),
};
