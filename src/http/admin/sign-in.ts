/**
 * Who may use the operator API: clients with the operator token, and browsers with a session.
 *
 * A page of another origin can neither sign in nor use a session, even on another port of the same
 * host: both need the header `X-Inkwell-Request: 1`. Cookies are given over https, or on loopback.
 * Failed sign-ins are limited; the token in the `Authorization` header is never locked.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import {
  type NewCode,
  type NewSession,
  type OperatorSessions,
  sessionLifeMs,
  wrongToken,
} from "../../accounts/operator-sessions.ts";
import { OperatorRefusal } from "../../accounts/refusals.ts";
import { isLoopback } from "../../config/kinds.ts";
import type { SessionRow } from "../../store/sessions.ts";
import type { Metrics, SignInResult } from "../../telemetry/metrics.ts";
import {
  hasRequestHeader,
  type SessionCookie,
  secretIn,
  sessionCookie,
  setCookie,
} from "../session-cookie.ts";
import { SessionResponses } from "../session-responses.ts";
import { failedAttemptsMax, SignInAttempts } from "../sign-in-attempts.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Null if the request has the operator token, or needs neither. */
    session: SessionRow | null;
  }
  interface FastifyContextConfig {
    /** False: requests of this route do not prolong a session. For streams and status. */
    prolongsSession?: boolean;
  }
}

/** Name of the cookie over plain http. */
export const consoleCookieName = "inkwell_console";

interface SignInDependencies {
  sessions: OperatorSessions;
  /** `operator.url`: the URL that operators use. */
  ownUrl(): string | null;
  logger: Pick<Logger, "info" | "warn">;
  metrics: Pick<Metrics, "signedIn">;
  /** For tests. */
  attempts?: SignInAttempts | undefined;
}

type Credentials = { token: string } | { code: string };

export class SignIn {
  readonly #deps: SignInDependencies;
  readonly #attempts: SignInAttempts;
  readonly #responses: SessionResponses;

  constructor(dependencies: SignInDependencies) {
    const { sessions, logger, attempts = new SignInAttempts() } = dependencies;
    this.#deps = dependencies;
    this.#attempts = attempts;
    this.#responses = new SessionResponses({
      valid: (hashes) => sessions.valid(hashes),
      onError: (err) => logger.warn({ err }, "sessions could not be read; responses to them are ended"),
    });
  }

  /**
   * Throws a refusal unless the request has the operator token or a valid session. The response to
   * a session ends with the session.
   */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { sessions } = this.#deps;
    const { headers, routeOptions } = request;
    const [, token] = /^bearer +(\S+) *$/i.exec(headers.authorization ?? "") ?? [];
    if (token !== undefined) {
      if (!sessions.isToken(token)) throw wrongToken();
      return;
    }
    const given = secretIn(headers, this.#cookie);
    if (given.kind === "none") throw missingCredentials();
    if (!hasRequestHeader(headers)) throw missingHeader();
    const found = given.kind === "secret" ? await sessions.find(given.secret) : null;
    if (found === null) throw invalidSession("The session has ended. Sign in again.");
    request.session = routeOptions.config.prolongsSession === false ? found : sessions.use(found);
    this.#responses.add(found.hash, reply.raw);
  }

  /** Starts a session and ends the one that the request has. Returns it with `Set-Cookie`. */
  async signIn(
    request: FastifyRequest,
    credentials: Credentials,
  ): Promise<{ session: SessionRow; setCookie: string }> {
    const { sessions, logger, metrics } = this.#deps;
    if (!hasRequestHeader(request.headers)) throw missingHeader();
    const by = "token" in credentials ? "token" : "code";
    const client = request.ip;
    try {
      requireSafeCookie(request, this.#cookie, this.#deps.ownUrl());
      const { secret, session } = await this.#attempt(client, () =>
        "token" in credentials
          ? sessions.startByToken(credentials.token)
          : sessions.startByCode(credentials.code),
      );
      const before = secretIn(request.headers, this.#cookie);
      if (before.kind === "secret") await this.#end(await sessions.find(before.secret), null);
      metrics.signedIn("signed_in");
      logger.info({ requestId: request.id, client, by }, "an operator has signed in");
      return { session, setCookie: setCookie(this.#cookie, secret, sessionLifeMs / 1000) };
    } catch (error) {
      if (error instanceof OperatorRefusal) {
        const { code } = error;
        metrics.signedIn(resultOf(error));
        logger.warn({ requestId: request.id, client, by, code }, "a sign-in was refused");
      }
      throw error;
    }
  }

  /** Ends the session of the request, on all nodes. Returns `Set-Cookie`, which removes it. */
  async signOut(request: FastifyRequest, reply: FastifyReply): Promise<string> {
    await this.#end(this.sessionOf(request), reply);
    this.#deps.logger.info({ requestId: request.id, client: request.ip }, "an operator has signed out");
    return setCookie(this.#cookie, "", 0);
  }

  /** Returns the session of the request. Throws a refusal if it has the operator token. */
  sessionOf({ session }: FastifyRequest): SessionRow {
    if (session !== null) return session;
    throw invalidSession("This request has the operator token, and no session.");
  }

  /** Makes a code. Only the token may: otherwise a session could prolong itself for ever. */
  async newCode(request: FastifyRequest): Promise<NewCode & { url: string | null }> {
    if (request.session !== null) {
      throw new OperatorRefusal(
        "token_required",
        "A session cannot make a sign-in link. Send the operator token in a header: Authorization: Bearer ...",
      );
    }
    return { ...(await this.#deps.sessions.newCode()), url: this.#deps.ownUrl() };
  }

  get #cookie(): SessionCookie {
    return sessionCookie(consoleCookieName, this.#deps.ownUrl());
  }

  async #attempt(client: string, start: () => Promise<NewSession>): Promise<NewSession> {
    const waitMs = this.#attempts.begin(client);
    if (waitMs > 0) throw tooManyAttempts(waitMs);
    try {
      const started = await start();
      this.#attempts.succeeded(client);
      return started;
    } catch (error) {
      // A database that does not answer is no failed attempt.
      if (!(error instanceof OperatorRefusal)) this.#attempts.succeeded(client);
      throw error;
    }
  }

  /** Ends a session. Its responses end at once on this node, but not the given one. */
  async #end(session: SessionRow | null, reply: FastifyReply | null): Promise<void> {
    if (session === null) return;
    await this.#deps.sessions.end(session);
    this.#responses.end(session.hash, reply?.raw ?? null);
  }
}

function resultOf({ code }: OperatorRefusal): SignInResult {
  switch (code) {
    case "invalid_operator_token":
      return "wrong_token";
    case "invalid_code":
      return "wrong_code";
    case "too_many_sign_ins":
      return "too_many";
    default:
      return "insecure";
  }
}

/**
 * Refuses to set a cookie that others on the network could read. Over plain http, both the host
 * that the browser asks for and the page must be on loopback; a tunnel to this machine is, too.
 */
function requireSafeCookie(
  { raw: { headersDistinct } }: FastifyRequest,
  { isSecure }: SessionCookie,
  ownUrl: string | null,
): void {
  const { host: hosts = [], origin: origins = [] } = headersDistinct;
  const plainOrigins = origins.filter((origin) => !/^https:/i.test(origin));
  if (isSecure) {
    if (plainOrigins.every(isOnLoopback)) return;
    throw new OperatorRefusal(
      "insecure_sign_in",
      `This page was loaded over plain http. Open ${ownUrl} instead.`,
    );
  }
  const urls = [...hosts.map((host) => `http://${host}`), ...origins];
  if (hosts.length > 0 && urls.every(isOnLoopback)) return;
  throw new OperatorRefusal(
    "insecure_sign_in",
    "Over plain http, operators can sign in on this machine only: open http://127.0.0.1 with the port of this listener, directly or through an SSH tunnel. For other machines, put a proxy with TLS in front and set operator.url to its https URL (INKWELL_OPERATOR_URL).",
  );
}

function isOnLoopback(url: string): boolean {
  if (!URL.canParse(url)) return false;
  return isLoopback(new URL(url).hostname.replace(/^\[|\]$|\.$/g, ""));
}

function missingCredentials(): OperatorRefusal {
  return new OperatorRefusal(
    "missing_operator_token",
    "The operator token is missing. Send it in a header: Authorization: Bearer ... Its value is INKWELL_OPERATOR_TOKEN, or the content of the file operator-token in the data folder.",
  );
}

function missingHeader(): OperatorRefusal {
  return new OperatorRefusal(
    "missing_request_header",
    "A session, and signing in, need the header X-Inkwell-Request: 1. It shows that a page of this listener sends the request.",
  );
}

function invalidSession(message: string): OperatorRefusal {
  return new OperatorRefusal("invalid_session", message);
}

function tooManyAttempts(waitMs: number): OperatorRefusal {
  const seconds = Math.ceil(waitMs / 1000);
  return new OperatorRefusal(
    "too_many_sign_ins",
    `Signing in from this address failed ${failedAttemptsMax} times within a minute. Try again in ${seconds} s. The operator token still works in the header Authorization: Bearer ...`,
    null,
    seconds,
  );
}
