/** Routes that `/admin/session` and the portal's `/api/session` share. */
import type { FastifyReply, FastifyRequest } from "fastify";
import Type from "typebox";
import { closed, isoTime, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import { idleEndMs } from "../../accounts/sessions.ts";
import { type Actor, operatorRoles, type Role } from "../../actors.ts";
import { Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import type { PersonRow } from "../../store/people.ts";
import type { SessionRow } from "../../store/sessions.ts";
import { type ApiApp, route } from "./app.ts";
import type { IssuerSignIn } from "./issuer-sign-in.ts";
import type { BrowserSignIn } from "./sign-in.ts";

/** Largest body of a sign-in. An answer of an issuer has a few thousand characters. */
export const signInBytesMax = 20_000;

export const attemptsText = `An address may make ${limits.signIns.most} attempts a minute; further ones get 429.`;

/** A session, and who has signed in. A session of a secret has no person. */
interface ShownSession extends SessionRow {
  timezone: string;
  person?: PersonRow | null;
  actor?: Actor;
}

export const sessionObject = objectFor<ShownSession>("Session")({
  expires_at: [time, ({ endsMs }) => isoTime(endsMs)],
  idle_expires_at: [time, (row) => isoTime(idleEndMs(row))],
  timezone: [
    Type.String({ description: "the zone of the configuration, in which reports count days" }),
    ({ timezone }) => timezone,
  ],
  person: [
    orNull(closed({ id: text, name: orNull(text), email: orNull(text) })),
    ({ person }) => (person ? { id: person.id, name: person.name, email: person.email } : null),
  ],
  role: [
    orNull(Type.Enum([...operatorRoles])),
    ({ actor }) => (actor === undefined || actor.role === "holder" ? null : actor.role),
  ],
});

/** How people can sign in. */
export const choicesObject = objectFor<{
  issuer: IssuerSignIn["shown"];
  acceptsSecret: boolean;
  sendsLinks: boolean;
}>("SignInChoices")({
  issuer: [
    orNull(
      closed({
        name: Type.String({ description: "`sign_in.name`" }),
        available: Type.Boolean({ description: "whether it answered when it was last asked" }),
      }),
    ),
    ({ issuer }) => issuer && { name: issuer.name, available: issuer.problem === null },
  ],
  accepts_secret: [Type.Boolean(), ({ acceptsSecret }) => acceptsSecret],
  sends_links: [
    Type.Boolean({ description: "whether people who were invited can ask for new links by mail" }),
    ({ sendsLinks }) => sendsLinks,
  ],
});

/** The answer of an issuer, as a part of the body of a sign-in. */
export const issuerAnswer = Type.Optional(
  Type.String({
    maxLength: 16_000,
    description: "the query with which the issuer has sent the browser back",
  }),
);

/** Throws unless the body of a sign-in has one kind of credentials. */
export function requireOne(body: object, kinds: string): void {
  if (Object.keys(body).length === 1) return;
  throw new Refusal("invalid_value", `The body must have one of ${kinds}.`);
}

const refusedAtIssuer = [
  "sign_in_off",
  "issuer_unavailable",
  "insecure_sign_in",
  "too_many_sign_ins",
] as const;
/** Codes of a sign-in with the answer of an issuer. */
export const refusedAnswers = ["sign_in_failed", "not_admitted", ...refusedAtIssuer] as const;

/** Methods and paths that need no session. */
export function signInRoutesOf(base: string): ReadonlySet<string> {
  const session = [`GET ${base}/session`, `POST ${base}/session`];
  return new Set([...session, `GET ${base}/sign-in`, `POST ${base}/sign-in`]);
}

/** For the OpenAPI documents. */
export const header = { requestHeader: [] };
const bySession = [{ session: [], ...header }];

export const ownSession = objectFor<SessionRow & { isPresent: boolean }>("OwnSession")({
  created_at: [time, ({ createdMs }) => isoTime(createdMs)],
  used_at: [time, ({ usedMs }) => isoTime(usedMs)],
  expires_at: [time, ({ endsMs }) => isoTime(endsMs)],
  present: [Type.Boolean({ description: "it is that of this request" }), ({ isPresent }) => isPresent],
});

interface SessionAccess {
  readonly browsers: Pick<BrowserSignIn<SessionRow>, "issuer" | "beginAtIssuer" | "signOut" | "sessionsOf">;
  /** Null: the request has no session. */
  look(request: FastifyRequest, reply: FastifyReply): Promise<Omit<ShownSession, "timezone"> | null>;
  sessionOf(request: FastifyRequest): Omit<ShownSession, "timezone">;
}

interface SessionOptions {
  role: Role;
  acceptsSecret: boolean;
  sendsLinks?: () => boolean;
  /** Returns the zone of the configuration. */
  timezone(): string;
}

/**
 * Adds the routes that show how to sign in, begin it, and show and end the present session and all
 * sessions of its owner.
 */
export function sharedRoutes(
  app: ApiApp,
  base: string,
  access: SessionAccess,
  { role, acceptsSecret, sendsLinks = () => false, timezone }: SessionOptions,
): void {
  const { browsers, sessionOf } = access;
  app.get(
    `${base}/sign-in`,
    route("showSignIn", {
      summary: "Show how people can sign in",
      security: [],
      response: { 200: choicesObject.schema },
    }),
    async () => choicesObject.of({ issuer: browsers.issuer, acceptsSecret, sendsLinks: sendsLinks() }),
  );

  app.post(
    `${base}/sign-in`,
    route("beginSignIn", {
      summary: "Begin to sign in with OpenID Connect",
      description:
        "Returns the page of the issuer. It sends the browser back to the page `signed-in`, which exchanges the query of its address for a session. That must happen within ten minutes, once, with the same secret in `X-Inkwell-Request`.",
      security: [header],
      response: { 200: closed({ url: text }) },
      refusals: refusedAtIssuer,
    }),
    async (request) => ({ url: (await browsers.beginAtIssuer(request)).href }),
  );

  app.get(
    `${base}/session`,
    route(
      "showSession",
      {
        summary: "Show the present session",
        description: "null if the request has none, or one that has ended. Does not prolong the session.",
        security: [...bySession, header],
        response: { 200: orNull(sessionObject.schema) },
      },
      { config: { prolongsSession: false } },
    ),
    async (request, reply) => {
      const session = await access.look(request, reply);
      return session && sessionObject.of({ ...session, timezone: timezone() });
    },
  );

  app.get(
    `${base}/sessions`,
    route("listSessions", {
      role,
      summary: "List the sessions of the same person, key or operator token",
      security: bySession,
      response: { 200: closed({ data: Type.Array(ownSession.schema) }) },
    }),
    async (request) => {
      const { hash, owner } = sessionOf(request);
      const rows = await browsers.sessionsOf(owner);
      return { data: rows.map((row) => ownSession.of({ ...row, isPresent: row.hash === hash })) };
    },
  );

  for (const [path, id, what] of [
    ["session", "signOut", "the present session"],
    ["sessions", "signOutEverywhere", "all sessions of the same person, key or operator token"],
  ] as const) {
    app.delete(
      `${base}/${path}`,
      route(
        id,
        {
          role,
          summary: `Sign out: end ${what} on all nodes, and the responses to it`,
          security: bySession,
          response: { 204: Type.Unsafe<undefined>(Type.Null()) },
        },
        { config: { outlivesSession: true } },
      ),
      async (request, reply) => {
        const isEverywhere = path === "sessions";
        reply.header("set-cookie", await browsers.signOut(request, sessionOf(request), isEverywhere));
        reply.code(204);
      },
    );
  }
}
