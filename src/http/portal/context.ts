/** What an action in the portal gets of a request: the session, and who acts. */
import type { FastifyRequest } from "fastify";
import type { PortalContext } from "../../actions/portal-runs.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

export function contextFor({ actions, timezone }: Pick<PortalDependencies, "actions" | "timezone">) {
  return (request: FastifyRequest): PortalContext => ({
    actions,
    timezone: timezone(),
    role: "holder",
    session: sessionOf(request),
  });
}
