/**
 * Signing in with OpenID Connect, from the button to the session, and what each request of such a
 * session may do.
 *
 * A begun sign-in is a row that ends with its first use. Its state is random. Its nonce and its
 * verifier follow from the state, the secret of the page that began it and the operator token, so
 * they are stored nowhere, and only the same page of the same listener can finish it. Person, role
 * and account are read again with each request. The issuer is asked again each hour about
 * operators; if it is away or ill, their sessions go on.
 */
import { hash, randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { type NewSession, type SessionSecrets, Sessions } from "../accounts/sessions.ts";
import type { OperatorIdentity, SignedInPeople } from "../accounts/signed-in-people.ts";
import type { OperatorRole } from "../actors.ts";
import { invariant, Refusal } from "../errors.ts";
import type { TellAccess } from "../ledger/events.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { isClosedAt } from "../ledger/rows.ts";
import { invitationIssuer } from "../store/invitations.ts";
import type { FoundHolder, PersonRow } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isAway, isClientRefused, isPersonRefused, RejectedAnswerError, reasonOf } from "./failures.ts";
import { type BegunSignIn, Issuer, IssuerMisdescribedError } from "./issuer.ts";
import { People } from "./people.ts";
import { issuerUnavailable, signInFailed, signInOff } from "./refusals.ts";
import { roleNow } from "./rules.ts";
import { isSameIssuer, type SignInSettings } from "./settings.ts";

/** A sign-in must be finished within this time. */
const begunMs = 10 * 60_000;
/** The issuer is asked again about an operator after this time. */
const checkEveryMs = 3_600_000;
/** If the issuer is away then, it is asked again after this time. */
const checkAgainMs = 5 * 60_000;
/** Some actions need a sign-in at the issuer within this time. */
const freshMs = 15 * 60_000;
/** Without a refresh token, nobody can ask the issuer again. */
const uncheckedLifeMs = 3_600_000;

interface PersonSignInDependencies {
  store: Store;
  ledger: Pick<Ledger, "apply">;
  /** The operator token, which keys the hashes of sessions. */
  token: string;
  logger: Pick<Logger, "info" | "warn" | "error">;
  tell?: TellAccess | undefined;
  /** A use of a session could not be recorded. */
  onError(error: unknown): void;
  /** People can sign in from now on. */
  onConfigured?(): void;
}

interface Configured {
  settings: SignInSettings;
  issuer: Issuer;
}

/** The sections of the listeners. */
export type Listener = "operator" | "portal";

/** Where a person signs in. */
export interface SignInPlace {
  listener: Listener;
  /** The secret of the page. */
  page: string;
  /** Where the issuer sends the browser back to. */
  redirectUri: string;
  /** The page has a session, so its person has to show again who they are. */
  isAgain?: boolean;
}

export class PersonSignIn implements SignedInPeople {
  readonly #deps: PersonSignInDependencies;
  readonly #sessions: Sessions;
  readonly #people: People;
  #configured: Configured | null = null;

  constructor(dependencies: PersonSignInDependencies, settings: SignInSettings | null) {
    const { store, token, onError } = dependencies;
    this.#deps = dependencies;
    this.#sessions = new Sessions(store, token, onError);
    this.#people = new People(dependencies);
    this.configure(settings);
  }

  /** Applies a reload. Null: nobody signs in, and only invited people have sessions. */
  configure(settings: SignInSettings | null): void {
    this.#configured = settings && { settings, issuer: new Issuer(settings) };
    if (settings !== null) this.#deps.onConfigured?.();
  }

  /** What the sign-in page shows. `problem`: why the issuer could not be used when last asked. */
  get shown(): { name: string; problem: string | null } | null {
    if (this.#configured === null) return null;
    const { settings, issuer } = this.#configured;
    return { name: settings.name, problem: issuer.problem };
  }

  /** Begins a sign-in. Returns the page of the issuer. */
  async begin(place: SignInPlace): Promise<URL> {
    const { settings, issuer } = this.#require();
    const state = randomBytes(32).toString("base64url");
    const isAgain = place.listener === "operator" ? place.isAgain === true : null;
    try {
      const url = await issuer.begin(this.#begun(state, place, settings), isAgain);
      const limits = { idleMs: begunMs, lifeMs: begunMs };
      await this.#sessions.add("sign_in", ownerOf(place), secretOf(state, place, settings), limits);
      return url;
    } catch (error) {
      throw this.#refusalOf(error, settings);
    }
  }

  /** Finishes a sign-in with the answer of the issuer, and starts a session of the page. */
  async finish(query: string, place: SignInPlace): Promise<NewSession> {
    const { settings, issuer } = this.#require();
    const state = stateIn(query);
    if (state === null) throw signInFailed("the answer has no state, or more than one");
    if (!(await this.#sessions.useUp("sign_in", secretOf(state, place, settings)))) {
      throw signInFailed("no sign-in of this page has begun with this state, or it was finished before");
    }
    try {
      const answer = await issuer.redeem(query, this.#begun(state, place, settings));
      const { identity, refreshToken, problem } = answer;
      if (problem !== null) this.#deps.logger.warn({ reason: problem }, "the userinfo endpoint was not read");
      const person = await this.#people.admit(identity, place.listener, settings);
      return await this.#start(person, place, refreshToken, identity.authenticatedMs);
    } catch (error) {
      throw this.#refusalOf(error, settings);
    }
  }

  async operatorOf(session: SessionRow, secrets: SessionSecrets): Promise<OperatorIdentity | null> {
    const configured = this.#configured;
    const person = await this.#deps.store.person(session.owner);
    // The issuer of now gets no token of the issuer before.
    if (configured === null || person === null || this.roleNow(person) === null) return null;
    const now = await this.#checkAgain(session, secrets, person, configured);
    const role = now && this.roleNow(now);
    if (now === null || role === null) return null;
    const { authenticatedMs, createdMs } = session;
    const isStale = this.#deps.store.times().nowMs - (authenticatedMs ?? createdMs) > freshMs;
    return { actor: { by: `person:${now.id}`, role, isStale }, person: now };
  }

  async revokeToken(session: SessionRow, secrets: SessionSecrets): Promise<void> {
    const { issuer } = this.#configured ?? {};
    try {
      const token = await this.#sessions.refreshTokenOf(session, secrets);
      if (token !== null) await issuer?.revoke(token);
    } catch (error) {
      const fields = { person: session.owner, reason: reasonOf(error) };
      this.#deps.logger.warn(fields, "the refresh token of a session was not revoked at the issuer");
    }
  }

  async roleOf(id: string): Promise<OperatorRole | null> {
    const person = await this.#deps.store.person(id);
    return person && this.roleNow(person);
  }

  /** Returns the role of a person by the present configuration. Null: none. */
  roleNow(person: PersonRow): OperatorRole | null {
    return this.#configured && roleNow(person, this.#configured.settings, this.#deps.store.times().nowMs);
  }

  async operatorsAmong(ids: readonly string[]): Promise<ReadonlySet<string>> {
    const people = await this.#deps.store.people(ids);
    return new Set(people.filter((person) => this.roleNow(person) !== null).map(({ id }) => id));
  }

  async holdersAmong(ids: readonly string[]): Promise<readonly FoundHolder[]> {
    const { atMs } = this.#deps.store.times();
    const found = await this.#deps.store.findHolders(ids);
    return found.filter(
      ({ person, account }) =>
        person.suspendedMs === null && this.#isAdmitted(person) && !isClosedAt(account, atMs),
    );
  }

  /** Invited people need no issuer. */
  #isAdmitted({ issuer }: PersonRow): boolean {
    if (issuer === invitationIssuer) return true;
    return this.#configured !== null && isSameIssuer(issuer, this.#configured.settings.issuer);
  }

  /** Suspends the accounts of people whom no rule has matched for long. For a job. */
  async lapse(isStopped: () => boolean): Promise<void> {
    if (this.#configured !== null) await this.#people.lapse(this.#configured.settings, isStopped);
  }

  async #start(
    person: PersonRow,
    { listener, page }: SignInPlace,
    refreshToken: string | null,
    authenticatedMs: EpochMs | null,
  ) {
    const isOperator = listener === "operator";
    const started = await this.#sessions.start(listener, person.id, page, {
      authenticatedMs,
      refreshToken: isOperator ? refreshToken : null,
      lifeMs: isOperator && refreshToken === null ? uncheckedLifeMs : undefined,
    });
    const { id, account } = person;
    return { ...started, who: { person: id, role: this.roleNow(person), account } };
  }

  /** Asks the issuer again if an hour has passed. Null: the person has no session any more. */
  async #checkAgain(
    session: SessionRow,
    secrets: SessionSecrets,
    person: PersonRow,
    { settings, issuer }: Configured,
  ): Promise<PersonRow | null> {
    const due = await this.#sessions.takeCheck(session, secrets, checkEveryMs);
    if (due === null) return person;
    const { logger } = this.#deps;
    try {
      const keep = (token: string) => this.#sessions.reseal(session, secrets, token);
      const { identity, problem } = await issuer.refresh(due.refreshToken, person, keep);
      if (problem !== null) logger.warn({ reason: problem }, "the userinfo endpoint was not read");
      return await this.#people.recordCheck(person, identity, settings);
    } catch (error) {
      const reason = reasonOf(error);
      const isNotAdmitted = error instanceof Refusal && error.code === "not_admitted";
      if (!(isPersonRefused(error) || isNotAdmitted)) {
        // A failure of the issuer or the database says nothing about the person.
        await due.putOff(checkAgainMs);
        if (!(isUnusable(error) || error instanceof RejectedAnswerError)) throw error;
        logger.warn({ person: person.id, reason }, "an operator could not be checked at the issuer again");
        return person;
      }
      logger.info(
        { person: person.id, reason },
        "a session is ended: the issuer does not confirm the person",
      );
      await this.#sessions.end(session);
      return null;
    }
  }

  #require(): Configured {
    if (this.#configured === null) throw signInOff();
    return this.#configured;
  }

  /** Returns nonce and verifier. Only the same page and the operator token make them again. */
  #begun(state: string, place: SignInPlace, settings: SignInSettings): BegunSignIn {
    const about = secretOf(state, place, settings);
    return {
      state,
      redirectUri: place.redirectUri,
      nonce: this.#sessions.derive(`nonce ${about}`),
      verifier: this.#sessions.derive(`verifier ${about}`),
    };
  }

  #refusalOf(error: unknown, settings: SignInSettings): unknown {
    if (isUnusable(error)) return issuerUnavailable(settings, reasonOf(error));
    return error instanceof RejectedAnswerError ? signInFailed(reasonOf(error)) : error;
  }
}

/** The issuer is away, or is not set up for this client. Nobody who signs in can help that. */
function isUnusable(error: unknown): boolean {
  return isAway(error) || isClientRefused(error) || error instanceof IssuerMisdescribedError;
}

/** Returns the one `state` of an answer. */
function stateIn(query: string): string | null {
  const states = new URLSearchParams(query).getAll("state");
  const [state] = states;
  return states.length === 1 && state !== undefined && /^[\w-]{43}$/.test(state) ? state : null;
}

/**
 * The secret of the row of a begun sign-in. The parts have no spaces. Another issuer after a
 * reload, another listener and another page have other rows.
 */
function secretOf(
  state: string,
  { listener, page }: SignInPlace,
  { issuer, clientId }: SignInSettings,
): string {
  invariant(!/\s/.test(`${page}${issuer}${clientId}`), "the parts of a secret have no spaces");
  return [state, page, listener, issuer, clientId].join(" ");
}

/** A page has at most 100 sign-ins that have begun. */
function ownerOf({ page }: SignInPlace): string {
  return hash("sha256", page, "hex");
}
