/**
 * The issuer of OpenID Connect: where people sign in, and what it says about them. The flow is
 * authorization code with PKCE, state and nonce.
 *
 * Guarantees that an identity comes from an ID token that this issuer has signed with one of its
 * public keys, for this client and this sign-in, and that is valid now. Nothing is read from the
 * issuer before somebody signs in: a service starts without it. Its description is read again
 * every few minutes. No secret, code or token is in an error.
 */
import type * as Client from "openid-client";
import { isRecord } from "../objects.ts";
import { isErasedSub } from "../store/people.ts";
import { answerSeconds, boundedFetch } from "./bounded-fetch.ts";
import { type Identity, identityIn, needsMore, type TokenClaims } from "./claims.ts";
import { isAway, isClientRefused, RejectedAnswerError, reasonOf } from "./failures.ts";
import { isSameIssuer, type SignInSettings } from "./settings.ts";

type Library = typeof Client;
type ClientSettings = Pick<SignInSettings, "issuer" | "clientId" | "clientSecret" | "groupsClaim">;

/** The values of a sign-in that was sent to the issuer. Its answer must fit to them. */
export interface BegunSignIn {
  redirectUri: string;
  state: string;
  nonce: string;
  verifier: string;
}

/** What the issuer says about a person. */
interface IssuerAnswer {
  identity: Identity;
  /** For asking again later. Null: the issuer gives none. */
  refreshToken: string | null;
  /** Why the userinfo endpoint was not read. Null: it was, or was not needed. */
  problem: string | null;
}

interface Discovered {
  library: Library;
  config: Client.Configuration;
  /** Returns the same configuration, whose requests another function sends. */
  configWith(send: Client.CustomFetch): Client.Configuration;
  atMs: number;
}

/** The description of the issuer is used for this time. Its keys are kept as long. */
const describedMs = 5 * 60_000;
/** After a failure, the issuer is asked again after this time at the earliest. */
const retryMs = 2_000;
/** Seconds. It limits nothing, but an issuer that is asked for a limit sends `auth_time`. */
const anyAge = String(365 * 86_400);
/** Texts of at most so many printable characters, as the specification has it. */
const subPattern = /^[\x20-\x7e]{1,255}$/;

export class Issuer {
  readonly #settings: ClientSettings;
  readonly #nowMs: () => number;
  #discovered: Discovered | null = null;
  #discovering: Promise<Discovered> | null = null;
  #failed: { error: unknown; atMs: number } | null = null;
  /** How the client authenticates itself. Issuers accept one way or both. */
  #authentication: "client_secret_post" | "client_secret_basic" | null = null;

  /** `nowMs`: monotonic time. */
  constructor(settings: ClientSettings, nowMs = () => performance.now()) {
    this.#settings = settings;
    this.#nowMs = nowMs;
  }

  /** Why the issuer could not be read when it was last asked. Null: it could. */
  get problem(): string | null {
    return this.#failed === null ? null : reasonOf(this.#failed.error);
  }

  /**
   * Returns the page of the issuer where a person signs in. `isAgain`: whether the issuer must ask
   * who they are, even if they are signed in there. Null: not for the console.
   */
  async begin({ redirectUri, state, nonce, verifier }: BegunSignIn, isAgain: boolean | null): Promise<URL> {
    const { library, config } = await this.#discover();
    const challenge = await library.calculatePKCECodeChallenge(verifier);
    try {
      return library.buildAuthorizationUrl(config, {
        redirect_uri: redirectUri,
        scope: requestedScopesOf(config.serverMetadata(), isAgain !== null),
        ...(isAgain === null ? {} : { max_age: isAgain ? "0" : anyAge }),
        // Some issuers ignore `max_age`.
        ...(isAgain === true ? { prompt: "login" } : {}),
        state,
        nonce,
        code_challenge: challenge,
        code_challenge_method: "S256",
      });
    } catch (error) {
      // The page of the issuer is missing, or is no page of the web.
      throw new IssuerMisdescribedError(reasonOf(error), { cause: error });
    }
  }

  /**
   * Exchanges the answer with which the issuer has sent the browser back. Throws an
   * `IssuerAwayError`, or a `RejectedAnswerError` if the answer is not believed.
   */
  async redeem(query: string, { redirectUri, state, nonce, verifier }: BegunSignIn): Promise<IssuerAnswer> {
    const url = new URL(redirectUri);
    url.search = query;
    return await this.#ask(async ({ library, config }) => {
      const tokens = await library.authorizationCodeGrant(config, url, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims();
      if (claims === undefined) throw new RejectedAnswerError("the issuer has sent no ID token");
      return await this.#answerOf({ library, config }, tokens, claims);
    });
  }

  /**
   * Asks again about a person. `keep` gets the new refresh token, if the issuer rotates it, before
   * anything else can fail: the old one works no more.
   */
  async refresh(
    refreshToken: string,
    person: { issuer: string; sub: string },
    keep: (refreshToken: string) => Promise<void>,
  ): Promise<IssuerAnswer> {
    return await this.#ask(async ({ library, configWith }) => {
      const config = configWith(async (url, options) => {
        const response = await boundedFetch(url, options);
        // Only the exchange is a POST.
        const answer: unknown =
          options.method === "POST" &&
          (await response
            .clone()
            .json()
            .catch(() => null));
        if (isRecord(answer) && typeof answer.refresh_token === "string") await keep(answer.refresh_token);
        return response;
      });
      const tokens = await library.refreshTokenGrant(config, refreshToken);
      // An answer without an ID token is about the person of the refresh token.
      const claims = tokens.claims() ?? { iss: person.issuer, sub: person.sub };
      if (claims.sub !== person.sub) throw new RejectedAnswerError("the refreshed token is somebody else's");
      return await this.#answerOf({ library, config }, tokens, claims);
    });
  }

  /** Ends a refresh token, if the issuer has a place for that. */
  async revoke(refreshToken: string): Promise<void> {
    await this.#ask(async ({ library, config }) => {
      if (config.serverMetadata().revocation_endpoint === undefined) return;
      await library.tokenRevocation(config, refreshToken, { token_type_hint: "refresh_token" });
    });
  }

  /**
   * Sends a code that no issuer has given out. Resolves if the issuer accepts the client, and
   * rejects as `redeem` does otherwise.
   */
  async tryClient(redirectUri: string): Promise<void> {
    const url = new URL(redirectUri);
    const { issuer } = await this.metadata();
    url.search = `?${new URLSearchParams({ code: "inkwell-config-check", iss: issuer })}`;
    try {
      await this.#ask(({ library, config }) =>
        library.authorizationCodeGrant(config, url, { pkceCodeVerifier: "x".repeat(43) }),
      );
    } catch (error) {
      if (isClientRefused(error) || isAway(error)) throw error;
    }
  }

  /** The description of the issuer. */
  async metadata(): Promise<Client.ServerMetadata> {
    return (await this.#discover()).config.serverMetadata();
  }

  async #ask<T>(send: (discovered: Discovered) => Promise<T>): Promise<T> {
    const discovered = await this.#discover();
    try {
      return await send(discovered);
    } catch (error) {
      const other = isClientRefused(error) ? this.#otherAuthentication(discovered.config) : null;
      if (other !== null) {
        this.#authentication = other;
        this.#discovered = null;
        return await send(await this.#discover());
      }
      // The next sign-in reads the description and the keys again: they may have changed.
      this.#discovered = null;
      if (isAway(error) || error instanceof RejectedAnswerError || isClientRefused(error)) throw error;
      throw new RejectedAnswerError(reasonOf(error), { cause: error });
    }
  }

  /** The way in which the client has not authenticated itself yet. */
  #otherAuthentication(config: Client.Configuration) {
    const tried = this.#authentication;
    const { token_endpoint_auth_methods_supported: accepted = ["client_secret_basic"] } =
      config.serverMetadata();
    if (tried !== "client_secret_post" || this.#settings.clientSecret === null) return null;
    return accepted.includes("client_secret_basic") ? "client_secret_basic" : null;
  }

  async #discover(): Promise<Discovered> {
    const kept = this.#discovered;
    if (kept !== null && this.#nowMs() - kept.atMs < describedMs) return kept;
    const failed = this.#failed;
    // People who press the button again and again do not cause as many requests.
    if (failed !== null && this.#nowMs() - failed.atMs < retryMs) throw failed.error;
    this.#discovering ??= this.#read().finally(() => {
      this.#discovering = null;
    });
    return await this.#discovering;
  }

  async #read(): Promise<Discovered> {
    try {
      const library = await import("openid-client");
      const { issuer, clientId, clientSecret } = this.#settings;
      const options = {
        [library.customFetch]: boundedFetch,
        timeout: answerSeconds,
        execute: issuer.startsWith("http:") ? [library.allowInsecureRequests] : [],
      };
      const found = await library.discovery(new URL(issuer), clientId, undefined, library.None(), options);
      const { supportsPKCE: _, ...metadata } = found.serverMetadata();
      requireIssuer(metadata, issuer);
      const authentication = this.#authentication ?? firstAuthentication(metadata);
      this.#authentication = authentication;
      const configWith = (send: Client.CustomFetch) => {
        const config = new library.Configuration(
          { ...metadata, id_token_signing_alg_values_supported: asymmetricOf(metadata) },
          clientId,
          undefined,
          clientSecret === null
            ? library.None()
            : authentication === "client_secret_post"
              ? library.ClientSecretPost(clientSecret)
              : library.ClientSecretBasic(clientSecret),
        );
        config[library.customFetch] = send;
        config.timeout = answerSeconds;
        if (issuer.startsWith("http:")) library.allowInsecureRequests(config);
        // Without it, the library trusts tokens that come over TLS, whatever their signature.
        library.enableNonRepudiationChecks(config);
        return config;
      };
      this.#failed = null;
      this.#discovered = { library, config: configWith(boundedFetch), configWith, atMs: this.#nowMs() };
      return this.#discovered;
    } catch (error) {
      const away = isAway(error) ? error : new IssuerMisdescribedError(reasonOf(error), { cause: error });
      this.#failed = { error: away, atMs: this.#nowMs() };
      throw away;
    }
  }

  async #answerOf(
    { library, config }: Pick<Discovered, "library" | "config">,
    tokens: Client.TokenEndpointResponse,
    claims: TokenClaims,
  ): Promise<IssuerAnswer> {
    const { groupsClaim, issuer, clientId } = this.#settings;
    if (!isSameIssuer(claims.iss, issuer)) throw new RejectedAnswerError("the token is of another issuer");
    // The library checks it only if there are several audiences.
    if (claims.azp !== undefined && claims.azp !== clientId)
      throw new RejectedAnswerError("the token is for another client (azp)");
    if (!subPattern.test(claims.sub) || isErasedSub(claims.sub))
      throw new RejectedAnswerError("the claim sub is not 1 to 255 characters, or is reserved");
    const refreshToken = tokens.refresh_token ?? null;
    const { userinfo_endpoint: endpoint } = config.serverMetadata();
    if (endpoint === undefined || !needsMore(claims, groupsClaim)) {
      return { identity: identityIn(claims, groupsClaim), refreshToken, problem: null };
    }
    try {
      const more = await library.fetchUserInfo(config, tokens.access_token, claims.sub);
      return { identity: identityIn(merged(claims, more), groupsClaim), refreshToken, problem: null };
    } catch (error) {
      // The token alone is enough for rules about addresses.
      return { identity: identityIn(claims, groupsClaim), refreshToken, problem: reasonOf(error) };
    }
  }
}

/** The document at the configured URL is not that of the issuer. */
export class IssuerMisdescribedError extends Error {
  override readonly name = "IssuerMisdescribedError";
}

/** A description may name another issuer only if the library allows it for a known product. */
function requireIssuer(metadata: Client.ServerMetadata, issuer: string): void {
  if (isSameIssuer(metadata.issuer, issuer)) return;
  throw new IssuerMisdescribedError(`its description is that of ${metadata.issuer}`);
}

/**
 * Only signatures with a public key show who has signed. An issuer may list others too, such as
 * HS256 with the client secret.
 */
function asymmetricOf({ id_token_signing_alg_values_supported: all = ["RS256"] }: Client.ServerMetadata) {
  return all.filter((alg) => /^(?:RS|PS|ES)(?:256|384|512)$|^(?:EdDSA|Ed25519)$/.test(alg));
}

/** Most issuers accept both ways, and read all characters of a secret in a form. */
function firstAuthentication({
  token_endpoint_auth_methods_supported: accepted = ["client_secret_basic"],
}: Client.ServerMetadata): "client_secret_post" | "client_secret_basic" {
  return accepted.includes("client_secret_post") ? "client_secret_post" : "client_secret_basic";
}

/** Some issuers send groups and refresh tokens only if a scope asks for them. */
function requestedScopesOf(
  { scopes_supported: supported = [] }: Client.ServerMetadata,
  wantsRefresh: boolean,
): string {
  const more = ["groups", ...(wantsRefresh ? ["offline_access"] : [])];
  return ["openid", "profile", "email", ...more.filter((scope) => supported.includes(scope))].join(" ");
}

/** The token wins. An address and its verification stay together. */
function merged(claims: TokenClaims, more: Record<string, unknown>): TokenClaims {
  const { email, email_verified: verified } = claims;
  const isConfirmedThere = verified === undefined && isRecord(more) && more.email === email;
  const address = email === undefined || isConfirmedThere ? more : claims;
  return { ...more, ...claims, email: address.email, email_verified: address.email_verified };
}
