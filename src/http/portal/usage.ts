/** `/api/requests` and `/api/usage`: what the requests of the key, or of its account, cost. */
import Type, { type Static } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import { usageObject } from "../../accounts/operator-objects.ts";
import { usageHoursObject, usageHoursSchema } from "../../accounts/usage-hours.ts";
import { usageReportSchema } from "../../accounts/usage-sums.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageOf, seqIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import {
  hoursFilters,
  hoursIn,
  periodIn,
  sumsDescription,
  sumsFilters,
  sumsResponse,
  usageFilters,
} from "../api/usage-filters.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

export function usageRoutes(app: ApiApp, { actions, timezone }: PortalDependencies): void {
  app.get(
    "/api/requests",
    route("listRequests", {
      summary: "List the receipts of finished requests, newest first",
      description:
        "`from` is inclusive, `to` exclusive. A key with the right `own` gets its own receipts, a key with the right `account` those of the account.",
      querystring: closed({ ...usageFilters, ...schema.pageQuery }),
      response: { 200: schema.pageOf(usageObject.schema) },
      refusals: ["key_not_found", "list_too_slow"],
    }),
    async (request) => {
      const { model, key, limit, after } = request.query;
      const wanted = {
        ...{ model, key },
        ...periodIn(request.query, timezone()),
        afterSeq: after === undefined ? undefined : seqIn(after),
      };
      return await pageOf(
        limit,
        (rows) => actions.receipts(sessionOf(request), { ...wanted, limit: rows }),
        usageObject.of,
        ({ seq }) => String(seq),
      );
    },
  );

  app.get(
    "/api/usage",
    route("sumUsage", {
      summary: "Sum usage by day, model or key",
      description: sumsDescription,
      querystring: closed({
        by: Type.Optional(
          Type.Enum(["day", "model", "key"], { description: '"day" (default), "model" or "key"' }),
        ),
        ...sumsFilters,
      }),
      response: { 200: Type.Unsafe<Static<typeof usageReportSchema> | string>(usageReportSchema) },
      refusals: ["key_not_found", "list_too_slow"],
      csv: true,
    }),
    async (request, reply) => {
      const { by = "day", ...rest } = request.query;
      const { accept } = request.headers;
      return await sumsResponse(by, rest, { accept, reply, timezone: timezone() }, (wanted) =>
        actions.usageReport(sessionOf(request), wanted),
      );
    },
  );

  app.get(
    "/api/usage/hours",
    route("showUsageHours", {
      summary: "Sum the usage of the last hours, by hour",
      description:
        "The last row can be the present hour, which is not over. Hours without a finished request have no row. With `by=model`, each model of an hour has a row of its own.",
      querystring: closed(hoursFilters),
      response: { 200: usageHoursSchema },
      refusals: ["key_not_found", "list_too_slow"],
    }),
    async (request) => {
      const { hours, query } = hoursIn(request.query);
      return usageHoursObject(await actions.usageHours(sessionOf(request), query, hours));
    },
  );
}
