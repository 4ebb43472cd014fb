/** `/api/usage`, and `/api/requests`: what requests cost, and stops of requests that run. */
import { ownRequestActions, ownUsageActions } from "../../actions/portal-runs.ts";
import { actionRoutes } from "../api/action-routes.ts";
import type { ApiApp } from "../api/app.ts";
import { contextFor } from "./context.ts";
import type { PortalDependencies } from "./dependencies.ts";

export function usageRoutes(app: ApiApp, dependencies: PortalDependencies): void {
  actionRoutes(app, ownUsageActions, contextFor(dependencies));
  actionRoutes(app, ownRequestActions, contextFor(dependencies));
}
