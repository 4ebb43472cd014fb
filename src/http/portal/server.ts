/**
 * The portal's listener: the pages for holders of API keys, and their API below `/api`. It has its
 * own port, bound to loopback unless configured otherwise, and exists only if it is configured.
 *
 * The pages need no session; they contain no data. All requests below `/api` need the session of a
 * key or of a person. The rules of signing in are those of the operator's listener
 * (api/sign-in.ts).
 */
import type { Invitations } from "../../accounts/invitations.ts";
import type { Joins } from "../../accounts/joins.ts";
import { accountOf, isPerson } from "../../accounts/portal-viewer.ts";
import { limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import { refusedConnections } from "../../telemetry/refused-connections.ts";
import type { AllowedHosts } from "../api/allowed-hosts.ts";
import { type ApiApp, createApiApp } from "../api/app.ts";
import { guard } from "../api/guard.ts";
import { responseTo } from "../api/refusals.ts";
import { signInRoutesOf } from "../api/session.ts";
import type { Connections } from "../connections.ts";
import { pagePaths, pageRoutes, type ReadWebFiles } from "../web-files.ts";
import { type PortalDependencies, portalActions } from "./dependencies.ts";
import { NewLinks } from "./new-links.ts";
import { unknownPath } from "./refusals.ts";
import { portalRoutes } from "./routes.ts";
import { joinRoute, linkRoute } from "./session.ts";
import { PortalSignIn, type PortalSignInDependencies } from "./sign-in.ts";

interface PortalServerDependencies
  extends Omit<PortalDependencies, "signIn" | "actions" | "links">,
    Omit<PortalSignInDependencies, "store" | "logger" | "joining"> {
  /** Version of the service, for the OpenAPI document. */
  version: string;
  invitations: Invitations;
  joins: Joins;
  allowedHosts: AllowedHosts;
  connections: Connections;
  metrics: Metrics;
  readPages: ReadWebFiles;
}

/** Paths of assets that do not exist. */
const otherAssets = "/assets/*";
const documentPath = "/api/openapi.json";

export function createPortalServer(dependencies: PortalServerDependencies): ApiApp {
  const { connections, allowedHosts, logger, version } = dependencies;
  const { invitations, joins } = dependencies;
  const joining = new TokenBucket(limits.joins);
  const signIn = new PortalSignIn({ ...dependencies, joining });
  const links = new NewLinks(invitations, { joins, joining }, logger);
  const app = createApiApp((address) => connections.isTrusted(address));
  app.decorateRequest("portalSession", null);
  connections.guard(app.server, refusedConnections("portal", dependencies));
  guard(app, {
    section: "portal",
    hostSetting: "portal.url",
    openPaths: new Set([...pagePaths(""), otherAssets]),
    hostlessPaths: new Set(),
    signInRoutes: new Set([...signInRoutesOf("/api"), `POST ${linkRoute}`, `POST ${joinRoute}`]),
    undocumentedPaths: new Set([documentPath]),
    allowedHosts,
    logger,
    authenticate: (request, reply) => signIn.authenticate(request, reply),
    logged: ({ portalSession }) =>
      portalSession === null
        ? {}
        : {
            account: accountOf(portalSession),
            ...(isPerson(portalSession)
              ? { person: portalSession.person.id }
              : { keyId: portalSession.key.id }),
            session: portalSession.hash.slice(0, 8),
          },
    responseTo,
    unknownPath,
  });
  pageRoutes(app, "", dependencies.readPages);
  portalRoutes(app, { ...dependencies, signIn, links, actions: portalActions(dependencies) }, version);
  app.addHook("onClose", () => links.close());
  app.get(documentPath, async () => app.swagger());
  // Otherwise these would be pages.
  for (const path of ["/api", "/api/*", otherAssets]) {
    app.all(path, async (_request, reply) => reply.callNotFound());
  }
  return app;
}
