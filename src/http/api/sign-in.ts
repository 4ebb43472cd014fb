/**
 * Signing in to a listener by browser: the cookie, the header that must come with it, and the
 * limit of attempts. Each listener has its own credentials and its own sessions.
 *
 * A page or server of another origin can neither sign in nor use a session, even on another port
 * of the same host: the header `X-Inkwell-Request` has a secret that it does not know. The page
 * chooses it before it signs in. Cookies are given over https, or on loopback.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { type NewSession, type SessionSecrets, sessionLifeMs } from "../../accounts/sessions.ts";
import { owner } from "../../actors.ts";
import { isLoopback } from "../../config/kinds.ts";
import { type Code, Refusal } from "../../errors.ts";
import type { Jobs } from "../../jobs.ts";
import { limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import type { Listener, SignInPlace } from "../../sign-in/person-sign-in.ts";
import { changeLogRow } from "../../store/change-log.ts";
import { isPersonId } from "../../store/people.ts";
import type { SessionRow } from "../../store/sessions.ts";
import type { Store } from "../../store/store.ts";
import type { Metrics, SignInResult } from "../../telemetry/metrics.ts";
import { clientOf } from "../connections.ts";
import {
  cookieIn,
  isUnattended,
  pageSecretIn,
  type SessionCookie,
  sessionCookie,
  setCookie,
} from "../session-cookie.ts";
import { SessionResponses } from "../session-responses.ts";
import { addressOf } from "./guard.ts";
import { type IssuerSignIn, noIssuer } from "./issuer-sign-in.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** False: requests of this route do not prolong a session. For streams and status. */
    prolongsSession?: boolean;
    /**
     * True: a response of this route does not end with the session. For changes that end the
     * session and whose answer must arrive.
     */
    outlivesSession?: boolean;
  }
}

/** The sessions of a listener. `Found`: a session with what else was read with it. */
interface SessionSource<Found extends SessionRow> {
  find(secrets: SessionSecrets): Promise<Found | null>;
  use(session: Found): Found;
  valid(hashes: readonly string[]): Promise<ReadonlySet<string>>;
  end(session: SessionRow): Promise<void>;
}

export interface SignInDependencies<Sessions> {
  sessions: Sessions;
  /** Sign-ins are in its list of changes. */
  store: Pick<Store, "logChange" | "sessionsOf" | "times">;
  jobs: Jobs;
  /** `operator.url` or `portal.url`: the URL that users of the listener open, if configured. */
  ownUrl(): string | null;
  logger: Pick<Logger, "info" | "warn" | "error">;
  metrics: Pick<Metrics, "signedIn">;
  /** Signing in with OpenID Connect. Default: nobody does. */
  issuer?: IssuerSignIn | undefined;
  /** For tests: another clock. */
  attempts?: TokenBucket | undefined;
}

/** The steps of one kind that an address may make in a minute. */
interface Attempts {
  bucket: TokenBucket;
  /** Completes "This address has made N". */
  what: string;
}

interface SignInOptions<Found extends SessionRow> extends SignInDependencies<SessionSource<Found>> {
  /** Name of the cookie over plain http. */
  cookieName: string;
  /** Section of the configuration. */
  section: Listener;
  /** The people who sign in: "operators". */
  people: string;
  /** For the log: "an operator". */
  person: string;
  /** The page to which an issuer sends browsers back. */
  callbackPath: string;
  /** Ends the refusal of too many attempts. */
  stillPossible: string;
}

/** A session that has begun, and the header `Set-Cookie` that gives it to the browser. */
export interface SignedIn {
  session: SessionRow;
  setCookie: string;
}

export class BrowserSignIn<Found extends SessionRow> {
  readonly #options: SignInOptions<Found>;
  /**
   * Steps of sign-ins by client, right or wrong, so that nobody can guess. No secret is looked at
   * beyond them, not even the right one.
   */
  readonly #attempts: TokenBucket;
  readonly #responses: SessionResponses;

  constructor(options: SignInOptions<Found>) {
    const { sessions, jobs, section, attempts = new TokenBucket(limits.signIns) } = options;
    this.#options = options;
    this.#attempts = attempts;
    this.#responses = new SessionResponses({
      jobs,
      name: `check_${section}_sessions`,
      valid: (hashes) => sessions.valid(hashes),
    });
  }

  /** Whether the request has a cookie of this listener, valid or not. */
  hasCookie({ headers }: FastifyRequest): boolean {
    return cookieIn(headers, this.#cookie).kind !== "none";
  }

  /** Returns the session of the request. Throws a refusal unless it has a valid one. */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<Found> {
    const found = await this.look(request, reply);
    if (found !== null) return found;
    const { kind } = cookieIn(request.headers, this.#cookie);
    throw invalidSession(kind === "none" ? "Sign in first." : "The session has ended. Sign in again.");
  }

  /**
   * Returns the session of the request as it is now. Null: it has none, or one that has ended. The
   * response ends with the session.
   */
  async look({ headers, routeOptions }: FastifyRequest, reply: FastifyReply): Promise<Found | null> {
    const found = await this.#present({ headers }, requirePage(headers));
    if (found === null) return null;
    const { prolongsSession = true, outlivesSession = false } = routeOptions.config;
    if (!outlivesSession) this.#responses.add(found.hash, reply.raw);
    return prolongsSession && !isUnattended(headers) ? this.#options.sessions.use(found) : found;
  }

  async #present({ headers }: Pick<FastifyRequest, "headers">, page: string): Promise<Found | null> {
    const given = cookieIn(headers, this.#cookie);
    return given.kind === "secret" ? await this.#options.sessions.find({ cookie: given.secret, page }) : null;
  }

  /**
   * Starts a session and ends the one that the request has. Returns it with `Set-Cookie`. `by`:
   * the kind of credentials, for the log. `attempts`: in place of those of all sign-ins.
   */
  async signIn(
    request: FastifyRequest,
    by: string,
    start: (page: string) => Promise<NewSession>,
    attempts?: Attempts,
  ): Promise<SignedIn> {
    const step = async (page: string) => await this.#complete(request, page, by, await start(page));
    return await this.#runStep(request, by, step, attempts);
  }

  /** The part of the sign-in page about OpenID Connect. */
  get issuer(): IssuerSignIn["shown"] {
    return (this.#options.issuer ?? noIssuer).shown;
  }

  /** Begins a sign-in of the page with OpenID Connect. Returns the page of the issuer. */
  async beginAtIssuer(request: FastifyRequest): Promise<URL> {
    const { issuer = noIssuer } = this.#options;
    return await this.#runStep(request, "issuer", async (page) => {
      const isAgain = (await this.#present(request, page)) !== null;
      return await issuer.begin({ ...this.#place(request, page), isAgain });
    });
  }

  /** Finishes it with the answer of the issuer, and starts a session as `signIn` does. */
  async finishAtIssuer(request: FastifyRequest, query: string): Promise<SignedIn> {
    const { issuer = noIssuer } = this.#options;
    const finish = (page: string) => issuer.finish(query, this.#place(request, page));
    return await this.signIn(request, "issuer", finish);
  }

  /** Runs a step of a sign-in, if the client may. Counts and logs a refusal with its reason. */
  async #runStep<T>(
    request: FastifyRequest,
    by: string,
    step: (page: string) => Promise<T>,
    attempts: Attempts = { bucket: this.#attempts, what: "attempts to sign in" },
  ): Promise<T> {
    const { section, logger, metrics } = this.#options;
    const page = requirePage(request.headers);
    try {
      this.#requireSafeCookie(request);
      this.#countStep(clientOf(addressOf(request)), attempts);
      return await step(page);
    } catch (error) {
      // Not a failure of the service.
      if (error instanceof Refusal && (error.status < 500 || error.code === "issuer_unavailable")) {
        const { code, detail: reason } = error;
        metrics.signedIn(section, resultOf(code));
        const fields = { requestId: request.id, client: addressOf(request), by, code, reason };
        logger.warn(fields, "a sign-in was refused");
      }
      throw error;
    }
  }

  /** Ends the session that the request has, in favour of another one. */
  async #complete(request: FastifyRequest, page: string, by: string, started: NewSession): Promise<SignedIn> {
    const { section, person, logger, metrics, store, sessions } = this.#options;
    const { who, cookie } = started;
    const isPerson = who !== undefined && "person" in who;
    // Not of keys: a caller could fill the log, which nothing shortens.
    if (isPerson || who === undefined) {
      const actor = isPerson ? `person:${who.person}` : owner.by;
      const after = { listener: section, credentials: by };
      const change = { kind: "sign_in", by: actor, atMs: store.times().atMs, before: null, after } as const;
      // The link or code is used up. Without a session, the person would have nothing.
      await store
        .logChange(changeLogRow({ ...change, account: who?.account ?? null }))
        .catch((err: unknown) => logger.error({ err, actor }, "a sign-in is not in the list of changes"));
    }
    await this.#end(await this.#present(request, page));
    metrics.signedIn(section, "signed_in");
    const fields = { requestId: request.id, client: addressOf(request), by, ...who };
    logger.info(fields, `${isPerson ? "a person" : person} has signed in`);
    // The one that was found has the person and the role, too.
    const session = (await sessions.find({ cookie, page }).catch(() => null)) ?? started.session;
    return { session, setCookie: this.cookieOf(started) };
  }

  /**
   * The issuer compares the address of the page with those that it knows. Over plain http, the
   * host is on loopback (`#requireSafeCookie`).
   */
  #place({ headers }: FastifyRequest, page: string): SignInPlace {
    const { ownUrl, callbackPath, section } = this.#options;
    const own = this.#cookie.isSecure ? ownUrl() : null;
    const { origin } = new URL(own ?? `http://${headers.host}`);
    return { listener: section, page, redirectUri: origin + callbackPath };
  }

  #countStep(client: string, { bucket, what }: Attempts): void {
    const seconds = Math.ceil(bucket.take(client) / 1000);
    if (seconds === 0) return;
    throw new Refusal(
      "too_many_sign_ins",
      `This address has made ${bucket.most} ${what} within a minute. Try again in ${seconds} s. ${this.#options.stillPossible}`,
      { retryAfterSeconds: seconds },
    );
  }

  /** Returns the value of `Set-Cookie` that gives a session to the browser. */
  cookieOf({ cookie }: NewSession): string {
    return setCookie(this.#cookie, cookie, sessionLifeMs / 1000);
  }

  /** Returns the sessions of an owner that have not ended, the newest first. */
  async sessionsOf(owner: string): Promise<SessionRow[]> {
    const { sessions, store } = this.#options;
    const rows = await store.sessionsOf(owner);
    const valid = await sessions.valid(rows.map(({ hash }) => hash));
    return rows.filter(({ hash }) => valid.has(hash));
  }

  /**
   * Ends the session of the request, or all of its owner, on all nodes. Returns `Set-Cookie`,
   * which removes it.
   */
  async signOut(request: FastifyRequest, session: SessionRow, isEverywhere: boolean): Promise<string> {
    const { person, logger, issuer = noIssuer } = this.#options;
    for (const each of isEverywhere ? await this.sessionsOf(session.owner) : [session]) await this.#end(each);
    const { headers } = request;
    const given = cookieIn(headers, this.#cookie);
    // Nobody waits for the issuer.
    if (given.kind === "secret")
      void issuer.revokeToken(session, { cookie: given.secret, page: requirePage(headers) });
    const who = isPersonId(session.owner) ? "a person" : person;
    logger.info({ requestId: request.id, client: addressOf(request) }, `${who} has signed out`);
    return setCookie(this.#cookie, "", 0);
  }

  get #cookie(): SessionCookie {
    return sessionCookie(this.#options.cookieName, this.#options.ownUrl());
  }

  /** Ends a session. Its responses end at once on this node. */
  async #end(session: SessionRow | null): Promise<void> {
    if (session === null) return;
    await this.#options.sessions.end(session);
    this.#responses.end(session.hash);
  }

  /**
   * Refuses to set a cookie that others on the network could read. Over plain http, both the host
   * that the browser asks for and the page must be on loopback; a tunnel to this machine is, too.
   */
  #requireSafeCookie({ raw: { headersDistinct } }: FastifyRequest): void {
    const { section, people, ownUrl } = this.#options;
    const { host: hosts = [], origin: origins = [] } = headersDistinct;
    const plainOrigins = origins.filter((origin) => !/^https:/i.test(origin));
    if (this.#cookie.isSecure) {
      if (plainOrigins.every(isOnLoopback)) return;
      throw new Refusal(
        "insecure_sign_in",
        `This page was loaded over plain http. Open ${ownUrl()} instead.`,
      );
    }
    const urls = [...hosts.map((host) => `http://${host}`), ...origins];
    if (hosts.length > 0 && urls.every(isOnLoopback)) return;
    throw new Refusal(
      "insecure_sign_in",
      `Over plain http, ${people} can sign in on this machine only: open http://127.0.0.1 with the port of this listener, directly or through an SSH tunnel. For other machines, put a proxy with TLS in front and set ${section}.url to its https URL.`,
    );
  }
}

function resultOf(code: Code): SignInResult {
  switch (code) {
    case "invalid_operator_token":
      return "wrong_token";
    case "invalid_code":
    case "invalid_invitation":
    case "invalid_link":
      return "wrong_code";
    case "invalid_api_key":
    case "account_suspended":
      return "wrong_key";
    case "too_many_sign_ins":
      return "too_many";
    case "sign_in_failed":
    case "sign_in_off":
    case "already_joined":
    case "invalid_value":
      return "failed";
    case "link_full":
    case "link_ended":
      return "not_admitted";
    case "not_admitted":
    case "issuer_unavailable":
      return code;
    default:
      return "insecure";
  }
}

/** Whether the host of a URL is on loopback. */
export function isOnLoopback(url: string): boolean {
  if (!URL.canParse(url)) return false;
  return isLoopback(new URL(url).hostname.replace(/^\[|\]$|\.$/g, ""));
}

/** Returns the secret of the page that sends a request. Throws a refusal if it has none. */
export function requirePage(headers: FastifyRequest["headers"]): string {
  const page = pageSecretIn(headers);
  if (page !== null) return page;
  throw new Refusal(
    "missing_request_header",
    "A session, and signing in, need the header X-Inkwell-Request with 43 random letters and digits. They must be the same for all requests of a session. If a page reports this, load it again.",
  );
}

export function invalidSession(message: string): Refusal {
  return new Refusal("invalid_session", message);
}
