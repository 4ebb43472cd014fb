/**
 * `/admin/usage/sums`: usage summed by day, model, key or account, as pages of JSON or as one CSV.
 */
import Type, { type Static } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { usageReportSchema } from "../../accounts/usage-sums.ts";
import { usageGroups } from "../../store/usage-sums.ts";
import { type ApiApp, route } from "../api/app.ts";
import * as schema from "../api/schemas.ts";
import { sumsDescription, sumsFilters, sumsResponse } from "../api/usage-filters.ts";

export function usageSumsRoutes(app: ApiApp, actions: OperatorActions): void {
  app.get(
    "/admin/usage/sums",
    route("sumUsage", {
      summary: "Sum usage by day, model, key or account",
      description: sumsDescription,
      querystring: closed({
        by: Type.Optional(
          Type.Enum([...usageGroups], { description: `"day" (default), "model", "key" or "account"` }),
        ),
        account: Type.Optional(schema.accountName),
        ...sumsFilters,
      }),
      response: { 200: Type.Unsafe<Static<typeof usageReportSchema> | string>(usageReportSchema) },
      refusals: ["account_not_found", "list_too_slow"],
      csv: true,
    }),
    async ({ query, headers: { accept } }, reply) => {
      const { by = "day", account, ...rest } = query;
      return await sumsResponse(by, rest, { accept, reply, timezone: actions.timezone }, (wanted) =>
        actions.usageReport({ ...wanted, account }),
      );
    },
  );
}
