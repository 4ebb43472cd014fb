/** All routes below `/admin`, and the OpenAPI document that describes them. */
import { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountRoutes } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { creditRoutes } from "./credits.ts";
import { keyRoutes } from "./keys.ts";
import { documentRoutes } from "./openapi.ts";
import { serviceRoutes } from "./service.ts";
import { usageRoutes } from "./usage.ts";

export function adminRoutes(app: AdminApp, dependencies: AdminDependencies, version: string): void {
  documentRoutes(app, version);
  const modelIds = dependencies.catalog.all().map(({ id }) => id);
  const actions = new OperatorActions({ ...dependencies, modelIds });
  app.register(async (documented) => {
    accountRoutes(documented, actions);
    keyRoutes(documented, actions);
    creditRoutes(documented, actions);
    usageRoutes(documented, actions);
    serviceRoutes(documented, actions, dependencies);
  });
}
