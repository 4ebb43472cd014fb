/** `/admin/session`: signing in and out, the present session, and codes for sign-in links. */
import Type from "typebox";
import { closed, isoTime, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import type { NewCode } from "../../accounts/operator-sessions.ts";
import { type ApiApp, route } from "../api/app.ts";
import {
  attemptsText,
  header,
  issuerAnswer,
  refusedAnswers,
  requireOne,
  sessionObject,
  sharedRoutes,
  signInBytesMax,
} from "../api/session.ts";
import type { AdminDependencies } from "./dependencies.ts";

const codeObject = objectFor<NewCode & { url: string | null }>("SignInCode")({
  code: [text, ({ code }) => code],
  expires_at: [time, ({ expiresMs }) => isoTime(expiresMs)],
  operator_url: [orNull(Type.String({ description: "`operator.url`" })), ({ url }) => url],
});

export function sessionRoutes(
  app: ApiApp,
  _actions: OperatorActions,
  { signIn: access, timezone }: AdminDependencies,
): void {
  app.post(
    "/admin/session",
    route(
      "signIn",
      {
        summary:
          "Sign in: exchange the operator token, the code of a sign-in link, or the answer of an issuer, for a session",
        description: `Sets a cookie. \`idle_expires_at\` is the end of the session unless it is used before. A session that the request has ends. ${attemptsText}`,
        security: [header],
        body: closed({
          token: Type.Optional(Type.String({ description: "the operator token" })),
          code: Type.Optional(Type.String({ description: "the code of a sign-in link" })),
          response: issuerAnswer,
        }),
        response: { 200: sessionObject.schema },
        refusals: ["invalid_code", ...refusedAnswers],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      requireOne(
        request.body,
        'the operator token, {"token": "..."}, the code of a sign-in link, {"code": "..."}, and the answer of an issuer, {"response": "..."}',
      );
      const signedIn = await access.signIn(request, request.body);
      reply.header("set-cookie", signedIn.setCookie);
      return sessionObject.of({ ...signedIn.session, timezone: timezone() });
    },
  );

  sharedRoutes(app, "/admin", access, { role: "viewer", acceptsSecret: true, timezone });

  app.post(
    "/admin/session/codes",
    route("makeSignInCode", {
      role: "owner",
      summary: "Make a code for a sign-in link",
      description:
        "The link is /console#code=... below the URL of the operator listener. It works once, for five minutes. A session cannot make codes.",
      security: [{ operatorToken: [] }],
      response: { 201: codeObject.schema },
      refusals: ["token_required"],
    }),
    async (request, reply) => {
      reply.code(201);
      return codeObject.of(await access.newCode(request));
    },
  );
}
