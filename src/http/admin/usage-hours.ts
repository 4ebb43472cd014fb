/** `/admin/usage/hours`: usage summed by hour, for graphs. */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { usageHoursObject, usageHoursSchema } from "../../accounts/usage-hours.ts";
import { graphHoursMax } from "../../store/usage-hours.ts";
import { type ApiApp, operation } from "../api/app.ts";
import * as schema from "../api/schemas.ts";

const hoursDefault = 24;

const showUsageHours = operation("showUsageHours", {
  summary: "Sum the usage of the last hours, by hour",
  description:
    "The last row can be the present hour, which is not over. Hours without a finished request have no row. With `by=model`, each model of an hour has a row of its own.",
  querystring: closed({
    hours: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: graphHoursMax,
        description: `a whole number of hours from 1 to ${graphHoursMax} (default ${hoursDefault})`,
      }),
    ),
    account: Type.Optional(schema.accountName),
    model: Type.Optional(schema.noteThatIs("the id of a model")),
    by: Type.Optional(Type.Enum(["hour", "model"], { description: '"hour" (default) or "model"' })),
  }),
  response: { 200: usageHoursSchema },
  refusals: ["account_not_found", "list_too_slow"],
});

export function usageHoursRoutes(app: ApiApp, actions: OperatorActions): void {
  app.get("/admin/usage/hours", { schema: showUsageHours }, async ({ query }) => {
    const { hours = hoursDefault, account, model, by } = query;
    return usageHoursObject(await actions.usageHours({ account, model, byModel: by === "model" }, hours));
  });
}
