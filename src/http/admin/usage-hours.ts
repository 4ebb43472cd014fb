/** `/admin/usage/hours`: usage summed by hour, for graphs. */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { usageHoursObject, usageHoursSchema } from "../../accounts/usage-hours.ts";
import { type ApiApp, route } from "../api/app.ts";
import * as schema from "../api/schemas.ts";
import { hoursFilters, hoursIn } from "../api/usage-filters.ts";

export function usageHoursRoutes(app: ApiApp, actions: OperatorActions): void {
  app.get(
    "/admin/usage/hours",
    route("showUsageHours", {
      summary: "Sum the usage of the last hours, by hour",
      description:
        "The last row can be the present hour, which is not over. Hours without a finished request have no row. With `by=model`, each model of an hour has a row of its own.",
      querystring: closed({ ...hoursFilters, account: Type.Optional(schema.accountName) }),
      response: { 200: usageHoursSchema },
      refusals: ["account_not_found", "list_too_slow"],
    }),
    async ({ query: { account, ...rest } }) => {
      const { hours, query } = hoursIn(rest);
      return usageHoursObject(await actions.usageHours({ ...query, account }, hours));
    },
  );
}
