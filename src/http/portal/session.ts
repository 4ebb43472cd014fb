/** `/api/session`: signing in and out, and the present session. */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import { type ApiApp, route } from "../api/app.ts";
import { header, presentSessionRoutes, sessionObject, signInBytesMax } from "../api/session.ts";
import type { PortalDependencies } from "./dependencies.ts";

export function sessionRoutes(app: ApiApp, { signIn: access, timezone }: PortalDependencies): void {
  app.post(
    "/api/session",
    route(
      "signIn",
      {
        summary: "Sign in: exchange an API key for a session",
        description:
          "Sets a cookie. `idle_expires_at` is the end of the session unless it is used before. A session that the request has ends. The session ends when the key is revoked, rotated or expires, and when its account is closed. Ten failed attempts a minute from one address are answered; further ones get 429.",
        security: [header],
        body: closed({ key: Type.String({ description: "the API key" }) }),
        response: { 200: sessionObject.schema },
        refusals: ["invalid_api_key", "account_suspended", "insecure_sign_in", "too_many_sign_ins"],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      const signedIn = await access.signIn(request, request.body.key);
      reply.header("set-cookie", signedIn.setCookie);
      return sessionObject.of({ ...signedIn.session, timezone: timezone() });
    },
  );

  presentSessionRoutes(app, "/api/session", "holder", access, timezone);
}
