/**
 * Access to the portal: browsers with a session of an API key, or of a person.
 *
 * Every request reads the session, its key or person, and the account again. Responses under way
 * end within a second of the session, on all nodes.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Join, Joins } from "../../accounts/joins.ts";
import type { PortalSession, PortalSessions } from "../../accounts/portal-sessions.ts";
import { isPerson } from "../../accounts/portal-viewer.ts";
import { invariant, Refusal } from "../../errors.ts";
import type { KeyRow } from "../../ledger/rows.ts";
import type { TokenBucket } from "../../limits/token-bucket.ts";
import {
  BrowserSignIn,
  invalidSession,
  requirePage,
  type SignedIn,
  type SignInDependencies,
} from "../api/sign-in.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Null if the request needs no session. */
    portalSession: PortalSession | null;
  }
}

/** Name of the cookie over plain http. */
export const portalCookieName = "inkwell_portal";

/** One of them. */
type PortalCredentials = { readonly [Kind in "key" | "response" | "invitation"]?: string } & {
  readonly join?: Join;
};

export interface PortalSignInDependencies extends SignInDependencies<PortalSessions> {
  joins: Pick<Joins, "join" | "exchange">;
  /** People who join, by client. */
  joining: TokenBucket;
  /** Whether an API key signs in. Default: it does. */
  acceptsKeys?: boolean;
}

export class PortalSignIn {
  /** `portal.keys`: whether an API key signs in. */
  readonly acceptsKeys: boolean;
  readonly #deps: PortalSignInDependencies;
  readonly browsers: BrowserSignIn<PortalSession>;

  constructor(dependencies: PortalSignInDependencies) {
    this.acceptsKeys = dependencies.acceptsKeys ?? true;
    this.#deps = dependencies;
    this.browsers = new BrowserSignIn({
      ...dependencies,
      cookieName: portalCookieName,
      section: "portal",
      people: "people",
      person: "a key",
      callbackPath: "/signed-in",
      stillPossible: "The key still works for requests to the API.",
    });
  }

  /** Throws a refusal unless the request has a valid session. */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const session = await this.browsers.authenticate(request, reply);
    if (!this.#admits(session)) {
      throw invalidSession("API keys do not open this portal any more. Sign in again.");
    }
    request.portalSession = session;
  }

  /** Returns the session of the request. Null: it has none that opens the portal. */
  async look(request: FastifyRequest, reply: FastifyReply): Promise<PortalSession | null> {
    const session = await this.browsers.look(request, reply);
    request.portalSession = session !== null && this.#admits(session) ? session : null;
    return request.portalSession;
  }

  /** Starts a session and ends the one that the request has. Returns it with `Set-Cookie`. */
  async signIn(request: FastifyRequest, credentials: PortalCredentials): Promise<SignedIn> {
    const { key = "", response, invitation, join } = credentials;
    const { sessions, joins, joining } = this.#deps;
    if (response !== undefined) return await this.browsers.finishAtIssuer(request, response);
    if (invitation !== undefined) {
      return await this.browsers.signIn(request, "invitation", async (page) =>
        sessions.startOfPerson(await joins.exchange(invitation), page),
      );
    }
    if (join !== undefined) {
      const start = async (page: string) => sessions.startOfPerson(await joins.join(join), page);
      const attempts = { bucket: joining, what: "attempts to join" };
      return await this.browsers.signIn(request, "join", start, attempts);
    }
    if (!this.acceptsKeys) throw noKeys();
    return await this.browsers.signIn(request, "key", (page) => sessions.startByKey(key, page));
  }

  /** Not sessions of keys that began before the portal was closed to keys. */
  #admits(session: PortalSession): boolean {
    return this.acceptsKeys || isPerson(session);
  }

  /**
   * Starts a session of the same page for the new secret of a key that the session has rotated
   * itself. Returns `Set-Cookie`. All other sessions of the key end with its old secret.
   */
  async renew({ headers }: FastifyRequest, key: KeyRow): Promise<string> {
    return this.browsers.cookieOf(await this.#deps.sessions.startFor(key, requirePage(headers)));
  }

  readonly sessionOf = sessionOf;
}

function noKeys(): Refusal {
  return new Refusal(
    "not_permitted",
    "API keys do not open this portal. Sign in with your organisation, or with the link of an invitation.",
  );
}

/** Returns the session of a request, as it was when the request arrived. */
export function sessionOf({ portalSession }: FastifyRequest): PortalSession {
  invariant(portalSession !== null, "a route of the portal is called with a session");
  return portalSession;
}
