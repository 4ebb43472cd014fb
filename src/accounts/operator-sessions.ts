/**
 * Sessions of operators: what a browser has in place of the operator token, and the one-time codes
 * of links that become a session.
 */
import { hash, randomBytes, timingSafeEqual } from "node:crypto";
import { owner as roleOwner } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { isPersonId } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import type { EpochMs } from "../units.ts";
import { type NewSession, type SessionDatabase, type SessionSecrets, Sessions } from "./sessions.ts";
import { noIssuerPeople, type OperatorIdentity, type SignedInPeople } from "./signed-in-people.ts";

/** A code can be used for this time. */
const codeLifeMs = 5 * 60_000;
/** 128 bits, in a link that people may copy by hand. */
const codeBytes = 16;
const owner = "operator";

/** A session, and what it may do as of this request. */
export interface OperatorSession extends SessionRow, OperatorIdentity {}

/** The session of somebody who signed in with the operator token. */
const tokenOwner: OperatorIdentity = { actor: roleOwner, person: null };

export interface NewCode {
  code: string;
  expiresMs: EpochMs;
}

export class OperatorSessions {
  readonly #sessions: Sessions;
  readonly #tokenDigest: Buffer;
  readonly #people: SignedInPeople;

  /** `onError`: a use could not be recorded, so the session may end earlier. */
  constructor(
    store: SessionDatabase,
    token: string,
    onError: (error: unknown) => void,
    people: SignedInPeople = noIssuerPeople,
  ) {
    this.#sessions = new Sessions(store, token, onError);
    this.#people = people;
    this.#tokenDigest = hash("sha256", token, "buffer");
  }

  /**
   * Compares digests, so that the time taken reveals neither the length nor the content of the
   * token.
   */
  isToken(given: string): boolean {
    return timingSafeEqual(hash("sha256", given, "buffer"), this.#tokenDigest);
  }

  /** Starts a session of a page. Throws a refusal if this is not the operator token. */
  async startByToken(given: string, page: string): Promise<NewSession> {
    if (!this.isToken(given)) throw wrongToken();
    return await this.#sessions.start("operator", owner, page);
  }

  /** Starts a session of a page by a code, which is used up. Throws a refusal for another code. */
  async startByCode(code: string, page: string): Promise<NewSession> {
    if (await this.#sessions.useUp("operator_code", code))
      return await this.#sessions.start("operator", owner, page);
    throw new Refusal(
      "invalid_code",
      `This sign-in link is unknown, was used before, or is older than 5 minutes. Enter the operator token, or print another link with: ${inkwell("console")}`,
    );
  }

  async newCode(): Promise<NewCode> {
    const code = randomBytes(codeBytes).toString("base64url");
    const limits = { idleMs: codeLifeMs, lifeMs: codeLifeMs };
    const { endsMs } = await this.#sessions.add("operator_code", owner, code, limits);
    return { code, expiresMs: endsMs };
  }

  /** Returns the session with these secrets. Null if there is none, or if it has ended. */
  async find(secrets: SessionSecrets): Promise<OperatorSession | null> {
    const row = await this.#sessions.find("operator", secrets);
    if (row === null) return null;
    const identity = isPersonId(row.owner) ? await this.#people.operatorOf(row, secrets) : tokenOwner;
    return identity && { ...row, ...identity };
  }

  /** Returns the session after a use. */
  use(session: OperatorSession): OperatorSession {
    return this.#sessions.use(session);
  }

  /** Returns which of the sessions have not ended. */
  async valid(hashes: readonly string[]): Promise<ReadonlySet<string>> {
    const rows = await this.#sessions.current(hashes);
    const ids = rows.map(({ owner: each }) => each).filter(isPersonId);
    const operators = ids.length === 0 ? new Set() : await this.#people.operatorsAmong(ids);
    const valid = rows.filter(({ owner: each }) => !isPersonId(each) || operators.has(each));
    return new Set(valid.map(({ hash }) => hash));
  }

  /** Ends a session on all nodes. */
  async end(session: SessionRow): Promise<void> {
    await this.#sessions.end(session);
  }
}

export function wrongToken(): Refusal {
  return new Refusal("invalid_operator_token", "This is not the operator token of this service.");
}
