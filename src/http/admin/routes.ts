/** Everything below `/admin` that the document describes, and the document. */
import { accountRoutes } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { creditRoutes } from "./credits.ts";
import { keyRoutes } from "./keys.ts";
import { OpenApi } from "./openapi.ts";
import { serviceRoutes } from "./service.ts";
import { usageRoutes } from "./usage.ts";

/** `version` is the service's; the document carries it. */
export function adminRoutes(app: AdminApp, dependencies: AdminDependencies, version: string): OpenApi {
  const openApi = new OpenApi(version);
  app.addHook("onRoute", (route) => openApi.add(route));
  accountRoutes(app, dependencies);
  keyRoutes(app, dependencies);
  creditRoutes(app, dependencies);
  usageRoutes(app, dependencies);
  serviceRoutes(app, dependencies);
  return openApi;
}
