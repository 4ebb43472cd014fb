/**
 * Sessions of the portal: what a browser has in place of an API key, and sessions of people.
 *
 * A session belongs to one secret of one key, and has the key's rights, or to a person. The key or
 * the person, and the state of the account, are read again with each use. So a session ends with
 * its key: revoked, expired or rotated; with the access of its person; and with its account.
 */
import { Refusal } from "../errors.ts";
import { isClosedAt, type KeyRow, works } from "../ledger/rows.ts";
import { limits } from "../limits/limits.ts";
import { TokenBucket } from "../limits/token-bucket.ts";
import { isPersonId, type PersonRow } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import type { FoundKey, Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { findUsableKey, hashKey, invalidKey, keyCallerOf, secretWith } from "./keys.ts";
import type { Viewer } from "./portal-viewer.ts";
import { type NewSession, type SessionDatabase, type SessionSecrets, Sessions } from "./sessions.ts";
import { noIssuerPeople, type SignedInPeople } from "./signed-in-people.ts";

/** A session with its key or person, and the account, as they are now. It is not closed. */
export type PortalSession = SessionRow & Viewer;

type PortalSessionDatabase = SessionDatabase & Pick<Store, "findKey" | "findKeys">;

export class PortalSessions {
  readonly #store: PortalSessionDatabase;
  readonly #sessions: Sessions;
  readonly #people: SignedInPeople;
  /** Sign-ins by key or person. Each writes rows. */
  readonly #starts = new TokenBucket(limits.keySignIns);

  /** `onError`: a use could not be recorded, so the session may end earlier. */
  constructor(
    store: PortalSessionDatabase,
    token: string,
    onError: (error: unknown) => void,
    people: SignedInPeople = noIssuerPeople,
  ) {
    this.#store = store;
    this.#people = people;
    this.#sessions = new Sessions(store, token, onError);
  }

  /**
   * Starts a session of a page. Throws a refusal if this is not the present secret of a usable
   * key. An old secret still authenticates requests for a while, but must not rotate the key
   * again. An account that cannot be read is refused as in requests.
   */
  async startByKey(given: string, page: string): Promise<NewSession> {
    const { atMs } = this.#store.times();
    const found = await findUsableKey(this.#store, given, atMs);
    if (secretWith(hashKey(given), found.key) !== "present") {
      throw invalidKey("This API key was replaced by a new one. Sign in with the new one.");
    }
    keyCallerOf(found);
    if (isClosedAt(found.account, atMs)) {
      throw new Refusal(
        "account_suspended",
        "The account of this API key is closed. Ask the operator of this service.",
      );
    }
    const { account, id: keyId } = found.key;
    this.#countStart(keyId, "key");
    return { ...(await this.startFor(found.key, page)), who: { account, keyId } };
  }

  /** Starts a session of the key's present secret, also after its rotation by another session. */
  async startFor({ hash, expiresMs }: KeyRow, page: string): Promise<NewSession> {
    return await this.#sessions.start("portal", hash, page, { endsMs: expiresMs ?? undefined });
  }

  /** Starts a session of a person whose invitation the page has exchanged. */
  async startOfPerson({ id, account }: PersonRow, page: string): Promise<NewSession> {
    this.#countStart(id, "person");
    return { ...(await this.#sessions.start("portal", id, page)), who: { person: id, role: null, account } };
  }

  #countStart(id: string, who: string): void {
    const seconds = Math.ceil(this.#starts.take(id) / 1000);
    if (seconds === 0) return;
    throw new Refusal(
      "too_many_sign_ins",
      `This ${who} has signed in too often within a minute. Try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }

  /** Returns the session with these secrets. Null if there is none, or if it has ended. */
  async find(secrets: SessionSecrets): Promise<PortalSession | null> {
    const row = await this.#sessions.find("portal", secrets);
    if (row !== null && isPersonId(row.owner)) {
      const [holder] = await this.#people.holdersAmong([row.owner]);
      return holder === undefined ? null : { ...row, ...holder };
    }
    const found = row && (await this.#store.findKey(row.owner));
    return found && isUsable(found, row.owner, this.#store.times().atMs) ? { ...row, ...found } : null;
  }

  /** Returns the session after a use. */
  use(session: PortalSession): PortalSession {
    return this.#sessions.use(session);
  }

  /** Returns which of the sessions have not ended. */
  async valid(hashes: readonly string[]): Promise<ReadonlySet<string>> {
    const rows = await this.#sessions.current(hashes);
    const owners = [...new Set(rows.map(({ owner }) => owner))];
    const found = await this.#store.findKeys(owners.filter((owner) => !isPersonId(owner)));
    const people = owners.filter(isPersonId);
    const holders = people.length === 0 ? [] : await this.#people.holdersAmong(people);
    const { atMs } = this.#store.times();
    const keys = found.filter((each) => isUsable(each, each.key.hash, atMs)).map(({ key }) => key.hash);
    const usable = new Set([...keys, ...holders.map(({ person }) => person.id)]);
    return new Set(rows.filter(({ owner }) => usable.has(owner)).map(({ hash }) => hash));
  }

  /** Ends a session on all nodes. */
  async end(session: SessionRow): Promise<void> {
    await this.#sessions.end(session);
  }
}

/** Whether a session of this secret of the key goes on. */
export function isUsable({ key, account }: FoundKey, secretHash: string, atMs: EpochMs): boolean {
  const isPresent = secretWith(secretHash, key) === "present";
  return isPresent && works(key, atMs) && !isClosedAt(account, atMs);
}
