/**
 * Sessions of operators: what a browser has in place of the operator token, and the one-time codes
 * of links that become a session.
 *
 * The hash of a row is keyed with the operator token. So another token ends all sessions and
 * codes, and somebody who can read or write the database can neither use, make nor guess any of
 * them. Every check reads the row again: signing out counts on all nodes at once.
 */
import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import type { SessionKind, SessionRow } from "../store/sessions.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { OperatorRefusal } from "./refusals.ts";

/** A session ends after this time without a request. */
const sessionIdleMs = 2 * 3_600_000;
/** A session ends after this time in any case. */
export const sessionLifeMs = 12 * 3_600_000;
/** A code can be used for this time. */
const codeLifeMs = 5 * 60_000;
/** A use of a session is recorded if the last record is older. */
const usedEveryMs = 60_000;
/** Nodes differ by less. A row from further ahead was made by a wrong clock. */
const aheadMsMax = 60_000;

const secretBytes = 32;
/** 128 bits, in a link that people may copy by hand. */
const codeBytes = 16;
const owner = "operator";

export interface NewSession {
  /** For the cookie. It is stored nowhere. */
  secret: string;
  session: SessionRow;
}

export interface NewCode {
  code: string;
  expiresMs: EpochMs;
}

type SessionDatabase = Pick<Store, "addSession" | "sessions" | "useSession" | "endSession" | "nowMs">;

export class OperatorSessions {
  readonly #store: SessionDatabase;
  readonly #token: string;
  readonly #tokenDigest: Buffer;
  readonly #onError: (error: unknown) => void;
  /** Hashes of sessions whose use is being recorded. */
  readonly #recording = new Set<string>();

  /** `onError`: a use could not be recorded, so the session may end earlier. */
  constructor(store: SessionDatabase, token: string, onError: (error: unknown) => void) {
    this.#store = store;
    this.#token = token;
    this.#tokenDigest = digest(token);
    this.#onError = onError;
  }

  /**
   * Compares digests, so that the time taken reveals neither the length nor the content of the
   * token.
   */
  isToken(given: string): boolean {
    return timingSafeEqual(digest(given), this.#tokenDigest);
  }

  /** Starts a session. Throws a refusal if this is not the operator token. */
  async startByToken(given: string): Promise<NewSession> {
    if (!this.isToken(given)) throw wrongToken();
    return await this.#start();
  }

  /** Starts a session by a code, which is used up. Throws a refusal if it is not valid. */
  async startByCode(code: string): Promise<NewSession> {
    const used = await this.#store.endSession(this.#hash("operator_code", code), this.#store.nowMs());
    if (used) return await this.#start();
    throw new OperatorRefusal(
      "invalid_code",
      "This sign-in link is unknown, was used before, or is older than 5 minutes. The command inkwell console prints a new one.",
    );
  }

  async newCode(): Promise<NewCode> {
    const code = randomBytes(codeBytes).toString("base64url");
    const row = await this.#add("operator_code", code, { idleMs: codeLifeMs, lifeMs: codeLifeMs });
    return { code, expiresMs: row.endsMs };
  }

  /** Returns the session with this secret. Null if there is none, or if it has ended. */
  async find(secret: string): Promise<SessionRow | null> {
    const [row] = await this.#store.sessions([this.#hash("operator", secret)]);
    return row !== undefined && isValid(row, this.#store.nowMs()) ? row : null;
  }

  /**
   * Returns the session after a use. The use is recorded about once a minute, and the caller does
   * not wait for that.
   */
  use(session: SessionRow): SessionRow {
    const { hash: id, usedMs } = session;
    const nowMs = this.#store.nowMs();
    if (nowMs - usedMs < usedEveryMs) return session;
    if (!this.#recording.has(id)) {
      this.#recording.add(id);
      this.#store
        .useSession(id, nowMs)
        .catch(this.#onError)
        .finally(() => this.#recording.delete(id));
    }
    return { ...session, usedMs: nowMs };
  }

  /** Returns which of the sessions have not ended. */
  async valid(hashes: readonly string[]): Promise<Set<string>> {
    const rows = await this.#store.sessions(hashes);
    const nowMs = this.#store.nowMs();
    return new Set(rows.filter((row) => isValid(row, nowMs)).map(({ hash }) => hash));
  }

  /** Ends a session on all nodes. */
  async end({ hash }: SessionRow): Promise<void> {
    await this.#store.endSession(hash, this.#store.nowMs());
  }

  async #start(): Promise<NewSession> {
    const secret = randomBytes(secretBytes).toString("base64url");
    const row = await this.#add("operator", secret, { idleMs: sessionIdleMs, lifeMs: sessionLifeMs });
    return { secret, session: row };
  }

  async #add(
    kind: SessionKind,
    secret: string,
    { idleMs, lifeMs }: { idleMs: number; lifeMs: number },
  ): Promise<SessionRow> {
    const nowMs = this.#store.nowMs();
    const row = {
      ...{ hash: this.#hash(kind, secret), kind, owner, idleMs },
      ...{ createdMs: nowMs, usedMs: nowMs, endsMs: nowMs + lifeMs, endedMs: null },
    };
    await this.#store.addSession(row);
    return row;
  }

  /** The kind is part of the hash: a secret of another kind has another row. */
  #hash(kind: SessionKind, secret: string): string {
    return createHmac("sha256", this.#token).update(`${kind} ${secret}`).digest("hex");
  }
}

export function wrongToken(): OperatorRefusal {
  return new OperatorRefusal("invalid_operator_token", "This is not the operator token of this service.");
}

function isValid({ createdMs, usedMs, idleMs, endsMs, endedMs }: SessionRow, nowMs: EpochMs): boolean {
  const isFromNow = createdMs <= nowMs + aheadMsMax;
  return isFromNow && endedMs === null && nowMs < endsMs && nowMs < usedMs + idleMs;
}

/** The session ends then unless it is used before. */
export function idleEndMs({ usedMs, idleMs, endsMs }: SessionRow): EpochMs {
  return Math.min(usedMs + idleMs, endsMs);
}

function digest(text: string): Buffer {
  return hash("sha256", text, "buffer");
}
