/** Routes that `/admin/session` and the portal's `/api/session` share. */
import type { FastifyRequest } from "fastify";
import Type from "typebox";
import { isoTime, objectFor, time } from "../../accounts/json-objects.ts";
import { idleEndMs } from "../../accounts/sessions.ts";
import type { Role } from "../../actors.ts";
import type { SessionRow } from "../../store/sessions.ts";
import { type ApiApp, route } from "./app.ts";

/** Largest body of a sign-in. A token has at most 512 characters. */
export const signInBytesMax = 4096;

export const sessionObject = objectFor<SessionRow & { timezone: string }>("Session")({
  expires_at: [time, ({ endsMs }) => isoTime(endsMs)],
  idle_expires_at: [time, (row) => isoTime(idleEndMs(row))],
  timezone: [
    Type.String({ description: "the zone of the configuration, in which reports count days" }),
    ({ timezone }) => timezone,
  ],
});

/** For the OpenAPI documents. */
export const header = { requestHeader: [] };
const bySession = [{ session: [], ...header }];

interface SessionAccess {
  sessionOf(request: FastifyRequest): SessionRow;
  /** Ends the session of the request. Returns `Set-Cookie`, which removes it. */
  signOut(request: FastifyRequest): Promise<string>;
}

/**
 * Adds the routes that show and end the present session. `timezone` returns the zone of the
 * configuration.
 */
export function presentSessionRoutes(
  app: ApiApp,
  path: string,
  role: Role,
  access: SessionAccess,
  timezone: () => string,
): void {
  app.get(
    path,
    route(
      "showSession",
      {
        role,
        summary: "Show the present session",
        description: "Does not prolong the session.",
        security: bySession,
        response: { 200: sessionObject.schema },
      },
      { config: { prolongsSession: false } },
    ),
    async (request) => sessionObject.of({ ...access.sessionOf(request), timezone: timezone() }),
  );

  app.delete(
    path,
    route(
      "signOut",
      {
        role,
        summary: "Sign out: end the present session on all nodes, and the responses to it",
        security: bySession,
        response: { 204: Type.Unsafe<undefined>(Type.Null()) },
      },
      { config: { outlivesSession: true } },
    ),
    async (request, reply) => {
      reply.header("set-cookie", await access.signOut(request));
      reply.code(204);
    },
  );
}
