/** All routes below `/admin`. The tags of the OpenAPI document are the names of their groups. */
import { OperatorActions } from "../../accounts/operator-actions.ts";
import type { ApiApp } from "../api/app.ts";
import { documentRoutes } from "../api/openapi.ts";
import { accountLiveRoutes } from "./account-live.ts";
import { accountRoutes } from "./accounts.ts";
import { creditRoutes } from "./credits.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { jobRoutes } from "./jobs.ts";
import { keyRoutes } from "./keys.ts";
import { liveRoutes } from "./live.ts";
import { overviewRoutes } from "./overview.ts";
import { planRoutes } from "./plans.ts";
import { refusedBeforeRouting } from "./refusals.ts";
import { requestRoutes } from "./requests.ts";
import { serviceRoutes } from "./service.ts";
import { sessionRoutes } from "./session.ts";
import { consoleCookieName } from "./sign-in.ts";
import { usageRoutes } from "./usage.ts";
import { usageHoursRoutes } from "./usage-hours.ts";
import { usageSumsRoutes } from "./usage-sums.ts";

const groups = {
  accounts: accountRoutes,
  keys: keyRoutes,
  credits: creditRoutes,
  usage(app: ApiApp, actions: OperatorActions) {
    usageRoutes(app, actions);
    usageSumsRoutes(app, actions);
    usageHoursRoutes(app, actions);
  },
  plans: planRoutes,
  requests: requestRoutes,
  live(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies) {
    liveRoutes(app, actions, dependencies);
    accountLiveRoutes(app, actions, dependencies);
  },
  overview: overviewRoutes,
  service(app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies) {
    serviceRoutes(app, actions, dependencies);
    jobRoutes(app, dependencies);
  },
  session: sessionRoutes,
};

export function adminRoutes(app: ApiApp, dependencies: AdminDependencies, version: string): void {
  documentRoutes(app, {
    title: "Inkwell operator API",
    description: "Accounts, keys, credits and receipts. Every change is safe to repeat.",
    version,
    cookieName: consoleCookieName,
    urlSetting: "operator.url",
    acceptsToken: true,
    tags: Object.keys(groups),
    refusedBeforeRouting,
  });
  const modelIds = () => dependencies.catalog.all().map(({ id }) => id);
  const actions = new OperatorActions({ ...dependencies, modelIds, by: "operator" });
  for (const [tag, routes] of Object.entries(groups)) {
    app.register(async (group) => {
      group.addHook("onRoute", ({ schema = {} }) => {
        schema.tags = [tag];
      });
      routes(group, actions, dependencies);
    });
  }
}
