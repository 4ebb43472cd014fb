/**
 * Authenticates requests to the operator API, by the operator token, an operator key, or a
 * session of a browser. The token in the `Authorization` header is never locked.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import { type OperatorKeys, operatorKeyPrefix } from "../../accounts/operator-keys.ts";
import {
  type NewCode,
  type OperatorSession,
  type OperatorSessions,
  wrongToken,
} from "../../accounts/operator-sessions.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { label } from "../../accounts/value-rules.ts";
import { type Actor, commandLine, owner, userHeader } from "../../actors.ts";
import { invariant, Refusal } from "../../errors.ts";
import { tryDecode } from "../../percent-encoding.ts";
import type { SessionRow } from "../../store/sessions.ts";
import { BrowserSignIn, invalidSession, type SignedIn, type SignInDependencies } from "../api/sign-in.ts";
import { ReadRate } from "../read-rate.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Null if the request has other credentials, or needs none. */
    session: OperatorSession | null;
    /** The sender of the request. Null: it needs nobody. */
    actor: Actor | null;
  }
}

/** Name of the cookie over plain http. */
export const consoleCookieName = "inkwell_console";

/** One of them. */
type Credentials = { readonly [Kind in "token" | "code" | "response"]?: string };

export interface OperatorSignInDependencies extends SignInDependencies<OperatorSessions> {
  operatorKeys: Pick<OperatorKeys, "authenticate">;
  /** Called before a new session is given out: if it fails, so does the sign-in. */
  onSignedIn?(session: SessionRow): Promise<void>;
}

export class OperatorSignIn {
  readonly #deps: OperatorSignInDependencies;
  readonly browsers: BrowserSignIn<OperatorSession>;
  readonly #reads = new ReadRate("key");

  constructor(dependencies: OperatorSignInDependencies) {
    this.#deps = dependencies;
    this.browsers = new BrowserSignIn({
      ...dependencies,
      cookieName: consoleCookieName,
      section: "operator",
      people: "operators",
      person: "an operator",
      callbackPath: "/console/signed-in",
      stillPossible: "The operator token still works in the header Authorization: Bearer ...",
    });
  }

  /**
   * Throws a refusal unless the request has the operator token, an operator key or a valid
   * session. The response to a session ends with the session.
   */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    request.actor = await this.#actorIn(request, reply);
    const user = userIn(request);
    if (user === null) return;
    if (request.actor !== owner || request.session !== null) throw foreignUser();
    request.actor = commandLine(user);
  }

  async #actorIn(request: FastifyRequest, reply: FastifyReply): Promise<Actor> {
    const [, token] = /^bearer +(\S+) *$/i.exec(request.headers.authorization ?? "") ?? [];
    if (token?.startsWith(operatorKeyPrefix)) {
      const actor = await this.#deps.operatorKeys.authenticate(token);
      if (request.method === "GET" || request.method === "HEAD") this.#reads.count(actor.by);
      return actor;
    }
    if (token !== undefined) {
      if (this.#deps.sessions.isToken(token)) return owner;
      throw wrongToken();
    }
    if (!this.browsers.hasCookie(request)) throw missingCredentials();
    request.session = await this.browsers.authenticate(request, reply);
    return request.session.actor;
  }

  /** Starts a session and ends the one that the request has. Returns it with `Set-Cookie`. */
  async signIn(request: FastifyRequest, credentials: Credentials): Promise<SignedIn> {
    const signedIn = await this.#start(request, credentials);
    await this.#deps.onSignedIn?.(signedIn.session);
    return signedIn;
  }

  async #start(request: FastifyRequest, credentials: Credentials): Promise<SignedIn> {
    const { token, code = "", response } = credentials;
    const { sessions } = this.#deps;
    if (response !== undefined) return await this.browsers.finishAtIssuer(request, response);
    return token !== undefined
      ? await this.browsers.signIn(request, "token", (page) => sessions.startByToken(token, page))
      : await this.browsers.signIn(request, "code", (page) => sessions.startByCode(code, page));
  }

  /** Returns the session of a page, whatever else the request has. Null: it has none. */
  async look(request: FastifyRequest, reply: FastifyReply): Promise<OperatorSession | null> {
    request.session = await this.browsers.look(request, reply);
    request.actor = request.session?.actor ?? null;
    return request.session;
  }

  /** Returns the session of the request. Throws a refusal if it has other credentials. */
  sessionOf({ session }: FastifyRequest): OperatorSession {
    if (session !== null) return session;
    throw invalidSession("This request has no session.");
  }

  /** Makes a code. Only the token may: otherwise a session could prolong itself for ever. */
  async newCode(request: FastifyRequest): Promise<NewCode & { url: string | null }> {
    if (request.session !== null || !isToken(senderOf(request))) {
      throw new Refusal(
        "token_required",
        "Only the operator token makes a sign-in link. Send the operator token in a header: Authorization: Bearer ...",
      );
    }
    return { ...(await this.#deps.sessions.newCode()), url: this.#deps.ownUrl() };
  }
}

/** Returns the user that a request names. Null: it names none. */
function userIn({ headers }: FastifyRequest): string | null {
  const encoded = headers[userHeader];
  if (encoded === undefined) return null;
  const user = tryDecode(String(encoded));
  if (user !== undefined && label.pattern.test(user)) return user;
  throw invalidValue(userHeader, `${userHeader} must be ${label.rule}, in percent-encoding.`);
}

function foreignUser(): Refusal {
  return new Refusal(
    "not_permitted",
    `Only the operator token may name a user (${userHeader}). Nothing has changed.`,
  );
}

/** No key and no person has these names. */
function isToken({ by }: Actor): boolean {
  return by === owner.by || by.startsWith(commandLine("").by);
}

/** Returns who sends the request. */
export function senderOf({ actor }: FastifyRequest): Actor {
  invariant(actor !== null, "a route of the operator API is called by somebody");
  return actor;
}

function missingCredentials(): Refusal {
  return new Refusal(
    "missing_operator_token",
    "The operator token is missing. Send it in a header: Authorization: Bearer ... Its value is INKWELL_OPERATOR_TOKEN, or the content of the file operator-token in the data folder.",
  );
}
