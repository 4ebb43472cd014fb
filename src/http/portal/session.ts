/** `/api/session`: signing in and out, and the present session. */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import * as rules from "../../accounts/value-rules.ts";
import { type ApiApp, route } from "../api/app.ts";
import { addressOf } from "../api/guard.ts";
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
import { requirePage } from "../api/sign-in.ts";
import type { PortalDependencies } from "./dependencies.ts";

/** Codes of joining by a link. */
const joinRefusals = ["invalid_link", "link_full", "link_ended", "already_joined"] as const;

/** Need no session. */
export const linkRoute = "/api/sign-in/links";
export const joinRoute = "/api/sign-in/joins";

export function sessionRoutes(app: ApiApp, { signIn: access, links, timezone }: PortalDependencies): void {
  app.post(
    linkRoute,
    route(
      "askForLink",
      {
        summary: "Ask for a new link of an invitation by mail",
        description:
          "The answer is the same for all addresses. A mail is sent only if the address was invited before, and is that of exactly one open account.",
        security: [header],
        body: closed({ email: Type.String({ description: "the address of the invitation" }) }),
        response: { 202: closed({}) },
        refusals: ["no_mail_server", "too_many_sign_ins"],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      requirePage(request.headers);
      const { email } = request.body;
      if (!rules.email.pattern.test(email)) throw invalidValue("email", `email must be ${rules.email.rule}.`);
      links.ask(email, addressOf(request));
      reply.code(202);
      return {};
    },
  );
  app.post(
    joinRoute,
    route(
      "askToJoin",
      {
        summary: "Ask by mail to join by a link, if the service sends mail",
        description:
          "The answer is the same for all addresses. An address without an account gets a one-time link, whose use opens one and takes a seat. That of an open account gets a link to it.",
        security: [header],
        body: closed({
          code: Type.String({ description: "the code of the link" }),
          email: Type.String({ description: "the address of the person" }),
          name: Type.String({ description: `the name of the person, ${rules.typedName.rule}` }),
        }),
        response: { 202: closed({}) },
        refusals: [
          "invalid_link",
          "link_full",
          "link_ended",
          "domain_differs",
          "no_mail_server",
          "no_portal_url",
          "too_many_sign_ins",
        ],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      requirePage(request.headers);
      const { email } = request.body;
      if (!rules.email.pattern.test(email)) throw invalidValue("email", `email must be ${rules.email.rule}.`);
      await links.join(request.body, addressOf(request));
      reply.code(202);
      return {};
    },
  );
  app.post(
    "/api/session",
    route(
      "signIn",
      {
        summary:
          "Sign in: exchange an API key, the answer of an issuer, or the code of an invitation, for a session, or join by a link",
        description: `Sets a cookie. \`idle_expires_at\` is the end of the session unless it is used before. A session that the request has ends. The session of a key ends when the key is revoked, rotated or expires, that of a person when an operator suspends the person, and both when the account is closed. ${attemptsText}`,
        security: [header],
        body: closed({
          key: Type.Optional(Type.String({ description: "the API key" })),
          response: issuerAnswer,
          invitation: Type.Optional(
            Type.String({ description: "the code of an invitation, which is used up" }),
          ),
          join: Type.Optional(
            closed({
              code: Type.String({ description: "the code of the link" }),
              join_id: Type.String({
                pattern: "^[\\w-]{22,64}$",
                description:
                  "128 random bits of the browser in base64url: a repetition within an hour has the same account",
              }),
              name: Type.String({ description: `the name of the person, ${rules.typedName.rule}` }),
            }),
          ),
        }),
        response: { 200: sessionObject.schema },
        refusals: [
          "invalid_api_key",
          "account_suspended",
          "not_permitted",
          "invalid_invitation",
          ...joinRefusals,
          ...refusedAnswers,
        ],
      },
      { bodyLimit: signInBytesMax },
    ),
    async (request, reply) => {
      requireOne(
        request.body,
        'an API key, {"key": "..."}, the answer of an issuer, {"response": "..."}, the code of an invitation, {"invitation": "..."}, and what joins by a link, {"join": {...}}',
      );
      const { join, ...others } = request.body;
      const joining = join && { code: join.code, joinId: join.join_id, name: join.name };
      const signedIn = await access.signIn(request, joining === undefined ? others : { join: joining });
      reply.header("set-cookie", signedIn.setCookie);
      return sessionObject.of({ ...signedIn.session, timezone: timezone() });
    },
  );

  const choices = { acceptsSecret: access.acceptsKeys, sendsLinks: () => links.isOn };
  sharedRoutes(app, "/api", access, { role: "holder", ...choices, timezone });
}
