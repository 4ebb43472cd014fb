/** `/api/session`: signing in and out, and the present session. */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import { Refusal } from "../../errors.ts";
import { type ApiApp, route } from "../api/app.ts";
import {
  header,
  issuerAnswer,
  presentSessionRoutes,
  refusedAnswers,
  sessionObject,
  signInBytesMax,
  signInRoutes,
} from "../api/session.ts";
import type { PortalDependencies } from "./dependencies.ts";
import type { PortalCredentials } from "./sign-in.ts";

export function sessionRoutes(app: ApiApp, { signIn: access, timezone }: PortalDependencies): void {
  signInRoutes(app, "/api", access, access.acceptsKeys);
  app.post(
    "/api/session",
    route(
      "signIn",
      {
        summary: "Sign in: exchange an API key, or the answer of an issuer, for a session",
        description:
          "Sets a cookie. `idle_expires_at` is the end of the session unless it is used before. A session that the request has ends. The session of a key ends when the key is revoked, rotated or expires, that of a person when an operator suspends the person, and both when the account is closed. Ten failed attempts a minute from one address are answered; further ones get 429.",
        security: [header],
        body: closed({
          key: Type.Optional(Type.String({ description: "the API key" })),
          response: issuerAnswer,
        }),
        response: { 200: sessionObject.schema },
        refusals: ["invalid_api_key", "account_suspended", "not_permitted", ...refusedAnswers],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      const signedIn = await access.signIn(request, credentialsIn(request.body));
      reply.header("set-cookie", signedIn.setCookie);
      return sessionObject.of({ ...signedIn.session, timezone: timezone() });
    },
  );

  presentSessionRoutes(app, "/api/session", "holder", access, timezone);
}

function credentialsIn({ key, response }: { key?: string; response?: string }): PortalCredentials {
  if (key !== undefined && response === undefined) return { key };
  if (response !== undefined && key === undefined) return { response };
  throw new Refusal(
    "invalid_value",
    'The body must have either an API key, {"key": "..."}, or the answer of an issuer, {"response": "..."}.',
  );
}
