/**
 * Rows of sessions and one-time codes, and the port to them.
 *
 * Guarantees that a row ends once, even if several nodes try at the same time, and that an owner
 * has at most `rowsPerOwnerMax` rows of a kind. Rows contain hashes, never secrets.
 */
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";

/**
 * `operator_code` is the code of a link that becomes a session of an operator, `sign_in` a sign-in
 * that has begun at an issuer.
 */
const sessionKinds = ["operator", "operator_code", "portal", "sign_in"] as const;
export type SessionKind = (typeof sessionKinds)[number];

export const sessionColumns = {
  /** Of the secret, in lower-case hex. */
  hash: "text",
  kind: sessionKinds,
  /** `operator`, the SHA-256 of a key's secret, the id of a person, or the page of a sign-in. */
  owner: "text",
  createdMs: "ms",
  /** Written at most once a minute. */
  usedMs: "ms",
  /** The session ends if it is not used for this time. */
  idleMs: "integer",
  /** The session ends at this time in any case. */
  endsMs: "ms",
  /** Set by signing out, and when a code is used. */
  endedMs: "ms?",
  /** The refresh token of a person's session, encrypted with both of its secrets. */
  sealed: "text?",
  /** When the issuer was last asked about the person. */
  checkedMs: "ms?",
  /** When the person has signed in at the issuer, as it says. Null: it does not say. */
  authenticatedMs: "ms?",
} as const satisfies Columns;
export interface SessionRow extends RowOf<typeof sessionColumns> {}

/** The newest stay. A client that signs in again and again cannot fill the database. */
export const rowsPerOwnerMax = 100;

export interface SessionStore {
  /** Removes the oldest rows of the owner and kind beyond the limit first. */
  addSession(row: SessionRow): Promise<void>;
  /** Finds rows by their hashes, in any order. Unknown hashes have no row. */
  sessions(hashes: readonly string[]): Promise<SessionRow[]>;
  /** Lists the sessions of a person, a key or the operator token, the newest first. */
  sessionsOf(owner: string): Promise<SessionRow[]>;
  /** Records a use. Earlier times and ended rows change nothing. */
  useSession(hash: string, atMs: EpochMs): Promise<void>;
  /** Ends a row. Returns false if it does not exist, or has ended or expired already. */
  endSession(hash: string, atMs: EpochMs): Promise<boolean>;
  /**
   * Records that the issuer is asked again. Returns false if somebody else has recorded it since
   * `seenMs`: of several requests at the same time, one asks.
   */
  claimCheck(hash: string, seenMs: EpochMs | null, atMs: EpochMs): Promise<boolean>;
  /** Replaces the encrypted refresh token. */
  sealSession(hash: string, sealed: string | null): Promise<void>;
  /** Removes the rows that have not been used for their idle limit. */
  removeSessions(atMs: EpochMs): Promise<void>;
}
