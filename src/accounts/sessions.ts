/**
 * Sessions of browsers: a random secret in a cookie, another one that only the page holds, and a
 * row in the database for both together.
 *
 * The hash of a row is keyed with the operator token. So another token ends all sessions and
 * codes, and somebody who can read or write the database can neither use, make nor guess any of
 * them. Every check reads the row again: signing out counts on all nodes at once.
 *
 * A refresh token of an issuer is encrypted with both secrets of its session and the operator
 * token, so only a request of the session can use it.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from "node:crypto";
import type { SessionKind, SessionRow } from "../store/sessions.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";

/** A session ends after this time without a request. */
const sessionIdleMs = 2 * 3_600_000;
/** A session ends after this time in any case. */
export const sessionLifeMs = 12 * 3_600_000;
/** A use of a session is recorded if the last record is older. */
const usedEveryMs = 60_000;

const secretBytes = 32;

/** The secrets of a request with a session. One is worth nothing without the other. */
export interface SessionSecrets {
  /** Every server of the host gets it from the browser, whatever its port. */
  cookie: string;
  /** Only pages of the same origin can read it, and an origin has one port. */
  page: string;
}

export interface NewSession {
  /** For the cookie. It is stored nowhere. */
  cookie: string;
  session: SessionRow;
  /** The owner, for the log. */
  who?: { account: string; keyId: string } | { person: string; role: string | null; account: string | null };
}

interface StartOptions {
  /** The session ends at this ledger time at the latest. */
  endsMs?: EpochMs | undefined;
  /** The session ends after this time at the latest. */
  lifeMs?: number | undefined;
  /** Stored encrypted. */
  refreshToken?: string | null;
  /** When the person has signed in at the issuer. */
  authenticatedMs?: EpochMs | null;
}

/** A check of a person at the issuer, which this request makes. */
interface DueCheck {
  refreshToken: string;
  putOff(retryMs: number): Promise<void>;
}

const sealing = { algorithm: "aes-256-gcm", nonceBytes: 12, tagBytes: 16 } as const;

interface SessionLimits {
  idleMs: number;
  lifeMs: number;
}

export type SessionDatabase = Pick<
  Store,
  "addSession" | "sessions" | "useSession" | "endSession" | "claimCheck" | "sealSession" | "times"
>;

export class Sessions {
  readonly #store: SessionDatabase;
  readonly #token: string;
  readonly #onError: (error: unknown) => void;
  /** Hashes of sessions whose use is being recorded. */
  readonly #recording = new Set<string>();

  /** `onError`: a use could not be recorded, so the session may end earlier. */
  constructor(store: SessionDatabase, token: string, onError: (error: unknown) => void) {
    this.#store = store;
    this.#token = token;
    this.#onError = onError;
  }

  /** Starts a session of the page with this secret. */
  async start(
    kind: SessionKind,
    owner: string,
    page: string,
    { endsMs = Number.POSITIVE_INFINITY, lifeMs = sessionLifeMs, ...options }: StartOptions = {},
  ): Promise<NewSession> {
    const cookie = randomBytes(secretBytes).toString("base64url");
    const { atMs } = this.#store.times();
    const life = Math.max(1, Math.min(endsMs - atMs, lifeMs, sessionLifeMs));
    const { refreshToken = null, authenticatedMs = null } = options;
    const limits = { idleMs: sessionIdleMs, lifeMs: life };
    const row = { ...this.#rowOf(kind, owner, oneOf({ cookie, page }), limits), authenticatedMs };
    const session: SessionRow =
      refreshToken === null
        ? row
        : { ...row, sealed: this.#seal({ cookie, page }, refreshToken), checkedMs: row.createdMs };
    await this.#store.addSession(session);
    return { cookie, session };
  }

  /** Adds the row of a secret. */
  async add(kind: SessionKind, owner: string, secret: string, limits: SessionLimits): Promise<SessionRow> {
    const row = this.#rowOf(kind, owner, secret, limits);
    await this.#store.addSession(row);
    return row;
  }

  #rowOf(kind: SessionKind, owner: string, secret: string, { idleMs, lifeMs }: SessionLimits): SessionRow {
    const { nowMs } = this.#store.times();
    return {
      hash: this.#hash(kind, secret),
      kind,
      owner,
      idleMs,
      createdMs: nowMs,
      usedMs: nowMs,
      endsMs: nowMs + lifeMs,
      endedMs: null,
      sealed: null,
      checkedMs: null,
      authenticatedMs: null,
    };
  }

  /**
   * Returns the refresh token of a session that was last checked longer ago than `everyMs`. Of
   * several requests at the same time, one gets it. Null: there is nothing to check.
   */
  async takeCheck(
    { hash, sealed, checkedMs }: SessionRow,
    secrets: SessionSecrets,
    everyMs: number,
  ): Promise<DueCheck | null> {
    const { nowMs } = this.#store.times();
    if (sealed === null || checkedMs === null || nowMs - checkedMs < everyMs) return null;
    if (!(await this.#store.claimCheck(hash, checkedMs, nowMs))) return null;
    return {
      refreshToken: this.#unseal(secrets, sealed),
      // The check was not possible, and is due again after this time.
      putOff: async (retryMs) => void (await this.#store.claimCheck(hash, nowMs, nowMs - everyMs + retryMs)),
    };
  }

  /** Replaces the refresh token of a session. */
  async reseal({ hash }: SessionRow, secrets: SessionSecrets, refreshToken: string): Promise<void> {
    await this.#store.sealSession(hash, this.#seal(secrets, refreshToken));
  }

  /** Returns the present refresh token of a session, which may have ended. Null: none. */
  async refreshTokenOf({ hash }: SessionRow, secrets: SessionSecrets): Promise<string | null> {
    const [row] = await this.#store.sessions([hash]);
    return row?.sealed == null ? null : this.#unseal(secrets, row.sealed);
  }

  #seal(secrets: SessionSecrets, text: string): string {
    const nonce = randomBytes(sealing.nonceBytes);
    const cipher = createCipheriv(sealing.algorithm, this.#sealingKey(secrets), nonce);
    const encrypted = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString("base64");
  }

  /** Throws if somebody has changed the text. */
  #unseal(secrets: SessionSecrets, sealed: string): string {
    const bytes = Buffer.from(sealed, "base64");
    const { algorithm, nonceBytes, tagBytes } = sealing;
    const decipher = createDecipheriv(algorithm, this.#sealingKey(secrets), bytes.subarray(0, nonceBytes));
    decipher.setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes));
    const encrypted = bytes.subarray(nonceBytes + tagBytes);
    return Buffer.concat([decipher.update(encrypted), decipher.final()]).toString("utf8");
  }

  #sealingKey(secrets: SessionSecrets): Buffer {
    return createHmac("sha256", this.#token)
      .update(`refresh token ${oneOf(secrets)}`)
      .digest();
  }

  /** Derives a secret from the operator token. The same text has the same secret on all nodes. */
  derive(text: string): string {
    return createHmac("sha256", this.#token).update(`derived ${text}`).digest("base64url");
  }

  /** Returns the session with these secrets. Null if there is none, or if it has ended. */
  async find(kind: SessionKind, secrets: SessionSecrets): Promise<SessionRow | null> {
    const [row] = await this.current([this.#hash(kind, oneOf(secrets))]);
    return row ?? null;
  }

  /** Returns the rows with these hashes that have not ended. */
  async current(hashes: readonly string[]): Promise<SessionRow[]> {
    const rows = await this.#store.sessions(hashes);
    const { nowMs } = this.#store.times();
    return rows.filter((row) => isValid(row, nowMs));
  }

  /**
   * Returns the session after a use. The use is recorded about once a minute, and the caller does
   * not wait for that.
   */
  use<S extends SessionRow>(session: S): S {
    const { hash, usedMs } = session;
    const { nowMs } = this.#store.times();
    if (nowMs - usedMs < usedEveryMs) return session;
    if (!this.#recording.has(hash)) {
      this.#recording.add(hash);
      this.#store
        .useSession(hash, nowMs)
        .catch(this.#onError)
        .finally(() => this.#recording.delete(hash));
    }
    return { ...session, usedMs: nowMs };
  }

  /** Ends a session on all nodes. */
  async end({ hash }: SessionRow): Promise<void> {
    await this.#store.endSession(hash, this.#store.times().nowMs);
  }

  /** Ends the row with this secret. Returns false if it is unknown or has ended. */
  async useUp(kind: SessionKind, secret: string): Promise<boolean> {
    return await this.#store.endSession(this.#hash(kind, secret), this.#store.times().nowMs);
  }

  /** The kind is part of the hash: a secret of another kind has another row. */
  #hash(kind: SessionKind, secret: string): string {
    return createHmac("sha256", this.#token).update(`${kind} ${secret}`).digest("hex");
  }
}

/** Returns the secret of a row. The parts have no spaces. */
function oneOf({ cookie, page }: SessionSecrets): string {
  return `${cookie} ${page}`;
}

function isValid({ usedMs, idleMs, endsMs, endedMs }: SessionRow, nowMs: EpochMs): boolean {
  return endedMs === null && nowMs < endsMs && nowMs < usedMs + idleMs;
}

/** The session ends then unless it is used before. */
export function idleEndMs({ usedMs, idleMs, endsMs }: SessionRow): EpochMs {
  return Math.min(usedMs + idleMs, endsMs);
}
