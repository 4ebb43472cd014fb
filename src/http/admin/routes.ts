/** All routes below `/admin`. The tags of the OpenAPI document are the names of their groups. */
import { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountRoutes } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { creditRoutes } from "./credits.ts";
import { keyRoutes } from "./keys.ts";
import { liveRoutes } from "./live.ts";
import { documentRoutes } from "./openapi.ts";
import { overviewRoutes } from "./overview.ts";
import { planRoutes } from "./plans.ts";
import { requestRoutes } from "./requests.ts";
import { serviceRoutes } from "./service.ts";
import { sessionRoutes } from "./session.ts";
import { usageRoutes } from "./usage.ts";
import { usageHoursRoutes } from "./usage-hours.ts";
import { usageSumsRoutes } from "./usage-sums.ts";

const groups = {
  accounts: accountRoutes,
  keys: keyRoutes,
  credits: creditRoutes,
  usage(app: AdminApp, actions: OperatorActions) {
    usageRoutes(app, actions);
    usageSumsRoutes(app, actions);
    usageHoursRoutes(app, actions);
  },
  plans: planRoutes,
  requests: requestRoutes,
  live: liveRoutes,
  overview: overviewRoutes,
  service: serviceRoutes,
  session: sessionRoutes,
};

export function adminRoutes(app: AdminApp, dependencies: AdminDependencies, version: string): void {
  documentRoutes(app, version, Object.keys(groups));
  const modelIds = () => dependencies.catalog.all().map(({ id }) => id);
  const actions = new OperatorActions({ ...dependencies, modelIds });
  for (const [tag, routes] of Object.entries(groups)) {
    app.register(async (group) => {
      group.addHook("onRoute", ({ schema = {} }) => {
        schema.tags = [tag];
      });
      routes(group, actions, dependencies);
    });
  }
}
