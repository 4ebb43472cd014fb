/** All routes below `/api`. The tags of the OpenAPI document are the names of their groups. */
import type { ApiApp } from "../api/app.ts";
import { documentRoutes } from "../api/openapi.ts";
import { accountRoutes } from "./account.ts";
import { chatRoutes } from "./chat.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { keyRoutes } from "./keys.ts";
import { liveRoutes } from "./live.ts";
import { modelRoutes } from "./models.ts";
import { refusedBeforeRouting } from "./refusals.ts";
import { sessionRoutes } from "./session.ts";
import { portalCookieName } from "./sign-in.ts";
import { usageRoutes } from "./usage.ts";

const groups = {
  account: accountRoutes,
  usage: usageRoutes,
  keys: keyRoutes,
  models: modelRoutes,
  chat: chatRoutes,
  live: liveRoutes,
  session: sessionRoutes,
};

export function portalRoutes(app: ApiApp, dependencies: PortalDependencies, version: string): void {
  const api = {
    title: "Inkwell portal API",
    description:
      "The account of an API key: balance, usage and keys. It is for the pages of the portal, which sign in with the key.",
    version,
    cookieName: portalCookieName,
    urlSetting: "portal.url",
    acceptsToken: false,
    groups,
    refusedBeforeRouting,
  };
  documentRoutes(app, api, (routes, group) => routes(group, dependencies));
}
