/** `/admin/plans`: the plans of the database, and making those of the configuration current. */
import Type from "typebox";
import { closed, objectFor, orNull, text } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { comparedPlansObject, planObject } from "../../accounts/plan-objects.ts";
import type { AppliedPlansReport } from "../../config/changes.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import type { AdminDependencies } from "./dependencies.ts";

const names = Type.Array(text);

const appliedObject = objectFor<AppliedPlansReport>("AppliedPlans")({
  applied: [Type.Boolean({ description: "false: they were current" }), ({ kind }) => kind === "applied"],
  added: [names, ({ added }) => added],
  changed: [names, ({ changed }) => changed],
  retired: [names, ({ retired }) => retired],
  warnings: [names, ({ warnings }) => warnings],
});

export function planRoutes(
  app: ApiApp,
  actions: OperatorActions,
  { applyPlans: applyConfigured, configuredPlans }: AdminDependencies,
): void {
  app.get(
    "/admin/plans",
    route("listPlans", {
      summary: "List the plans of the database with their versions and numbers of accounts",
      description:
        "Plans of the current section in its order, then retired plans by name. Accounts keep a retired plan, and no other account can be put on it. `configuration` compares the plans of this node's configuration, as the node last read it, with the database.",
      querystring: closed(schema.pageQuery),
      response: {
        200: closed({
          data: Type.Array(planObject.schema),
          next: orNull(Type.String({ description: "a cursor" })),
          configuration: comparedPlansObject.schema,
        }),
      },
    }),
    async ({ query }) => {
      const section = configuredPlans();
      const changes = await actions.previewPlans(section);
      const page = await pageIn(await actions.plans(), query, planObject.of);
      return { ...page, configuration: comparedPlansObject.of({ section, changes }) };
    },
  );

  app.post(
    "/admin/plans/apply",
    route("applyPlans", {
      summary: "Make the plans of this node's configuration current",
      description:
        "Also applies plans that newer ones have replaced, as a way back. The plans are those of the configuration when the node last read it; reload it first if the file has changed.",
      response: { 200: appliedObject.schema },
      refusals: ["cannot_reload_now"],
    }),
    async () => appliedObject.of(await applyConfigured()),
  );
}
