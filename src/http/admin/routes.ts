/** All routes below `/admin`, and the OpenAPI document that describes them. */
import { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountRoutes } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { creditRoutes } from "./credits.ts";
import { keyRoutes } from "./keys.ts";
import { OpenApi } from "./openapi.ts";
import { serviceRoutes } from "./service.ts";
import { usageRoutes } from "./usage.ts";

export function adminRoutes(app: AdminApp, dependencies: AdminDependencies, version: string): OpenApi {
  const openApi = new OpenApi(version);
  app.addHook("onRoute", (route) => openApi.add(route));
  const modelIds = dependencies.catalog.all().map(({ id }) => id);
  const actions = new OperatorActions({ ...dependencies, modelIds });
  accountRoutes(app, actions);
  keyRoutes(app, actions);
  creditRoutes(app, actions);
  usageRoutes(app, actions);
  serviceRoutes(app, actions, dependencies);
  return openApi;
}
