/**
 * Who may use the portal: browsers with a session of an API key.
 *
 * Every request reads the session, its key and its account again. Responses under way end within a
 * second of the session, on all nodes.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { KeySession, KeySessions } from "../../accounts/key-sessions.ts";
import { invariant } from "../../errors.ts";
import type { KeyRow } from "../../ledger/rows.ts";
import type { SessionRow } from "../../store/sessions.ts";
import { BrowserSignIn, requirePage, type SignInDependencies } from "../api/sign-in.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Null if the request needs no session. */
    keySession: KeySession | null;
  }
}

/** Name of the cookie over plain http. */
export const portalCookieName = "inkwell_portal";

export class PortalSignIn {
  readonly #sessions: KeySessions;
  readonly #browsers: BrowserSignIn<KeySession>;

  constructor(dependencies: SignInDependencies<KeySessions>) {
    this.#sessions = dependencies.sessions;
    this.#browsers = new BrowserSignIn({
      ...dependencies,
      cookieName: portalCookieName,
      section: "portal",
      urlVariable: "INKWELL_PORTAL_URL",
      people: "people",
      person: "a key",
      stillPossible: "The key still works for requests to the API.",
    });
  }

  /** Throws a refusal unless the request has a valid session. */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    request.keySession = await this.#browsers.authenticate(request, reply);
  }

  /**
   * Reads the session of a request again, once its body has arrived: a client can hold the body
   * back until its key has other rights, or none.
   */
  async authenticateAgain(request: FastifyRequest): Promise<void> {
    request.keySession = await this.#browsers.find(request.headers);
  }

  /** Starts a session and ends the one that the request has. Returns it with `Set-Cookie`. */
  async signIn(request: FastifyRequest, key: string): Promise<{ session: SessionRow; setCookie: string }> {
    return await this.#browsers.signIn(request, "key", (page) => this.#sessions.startByKey(key, page));
  }

  /**
   * Starts a session of the same page for the new secret of a key that the session has rotated
   * itself. Returns `Set-Cookie`. All other sessions of the key end with its old secret.
   */
  async renew({ headers }: FastifyRequest, key: KeyRow): Promise<string> {
    return this.#browsers.cookieOf(await this.#sessions.startFor(key, requirePage(headers)));
  }

  /** Ends the session of the request, on all nodes. Returns `Set-Cookie`, which removes it. */
  async signOut(request: FastifyRequest): Promise<string> {
    return await this.#browsers.signOut(request, this.sessionOf(request));
  }

  readonly sessionOf = sessionOf;
}

/** Returns the session of a request, with its key and account as they were when it arrived. */
export function sessionOf({ keySession }: FastifyRequest): KeySession {
  invariant(keySession !== null, "a route of the portal is called with a session");
  return keySession;
}
