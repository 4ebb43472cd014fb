/** `/api/keys`: the key of the session, or all keys of its account. */
import { hashKey } from "../../accounts/keys.ts";
import { isPerson } from "../../accounts/portal-viewer.ts";
import { lastKeyActions, ownKeyActions } from "../../actions/portal-runs.ts";
import { actionRoute, actionRoutes } from "../api/action-routes.ts";
import type { ApiApp } from "../api/app.ts";
import { contextFor } from "./context.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

/** The answer arrives even if the change ends the session: it has the only copy of a secret. */
const outlives = { config: { outlivesSession: true } };

export function keyRoutes(app: ApiApp, dependencies: PortalDependencies): void {
  const { signIn, store, logger } = dependencies;
  const contextOf = contextFor(dependencies);
  actionRoutes(app, ownKeyActions, contextOf);
  actionRoute(app, lastKeyActions.rotateKey, contextOf, outlives, async (request, reply, rotated) => {
    const session = sessionOf(request);
    if (!isPerson(session) && rotated.id === session.key.id && rotated.key !== null) {
      try {
        const row = await store.keyById(rotated.id);
        // After another rotation, the session ends as all others.
        if (row?.hash === hashKey(rotated.key)) reply.header("set-cookie", await signIn.renew(request, row));
      } catch (err) {
        // The secret must arrive all the same. Its holder can sign in with it.
        logger.warn({ requestId: request.id, err }, "a key was rotated, and its session was not renewed");
      }
    }
    return rotated;
  });
  actionRoute(app, lastKeyActions.revokeKey, contextOf, outlives);
}
