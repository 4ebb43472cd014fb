/**
 * Rows of invitations, and the port to them. An account and an address have one row. It
 * stays until the contact has another address.
 *
 * Guarantees: one exchange of a link succeeds, on all nodes together. A newer link ends the
 * earlier link. An account and an address have one person, however many links they get. Rows
 * contain hashes of codes, never codes.
 */
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EpochMs } from "../units.ts";
import type { ChangeLogRow } from "./change-log.ts";
import type { PersonRow } from "./people.ts";

export const invitationColumns = {
  account: "text",
  /** In lower case. Empty: of the person who has joined by a link, without an address. */
  email: "text",
  /** Hash of the code in the link. */
  hash: "text",
  by: "text",
  /** Elapsed times. */
  createdMs: "ms",
  endsMs: "ms",
  /** The exchange of the link, and its random id. */
  usedMs: "ms?",
  usedBy: "text?",
} as const satisfies Columns;
export interface InvitationRow extends RowOf<typeof invitationColumns> {}

/** The issuer of invited people. No URL of an issuer is this word. */
export const invitationIssuer = "invitation";

interface Exchange {
  hash: string;
  /** Elapsed time. */
  nowMs: EpochMs;
  /** The person that is added unless the account and the address have a person. */
  person: Pick<PersonRow, "id" | "sub">;
}

/** How far the invited person of an account has come. */
export const invitationStateColumns = {
  account: "text",
  /** Of the latest link. An elapsed time. */
  endsMs: "ms",
  /** A link was used. */
  hasCome: "boolean",
  /** A request of the account has finished. */
  hasUsed: "boolean",
} as const satisfies Columns;
export interface InvitationState extends RowOf<typeof invitationStateColumns> {}

export interface InvitationStore {
  /**
   * Adds a link, in the place of the one before. Returns false unless the account is open, and the
   * address is that of its contact.
   */
  add(row: Omit<InvitationRow, "usedMs" | "usedBy">, change: ChangeLogRow): Promise<boolean>;
  /** Whether the account and the address had a link since the contact has this address. */
  wasInvited(account: string, email: string): Promise<boolean>;
  /** Returns the states of those of the accounts that have an invitation. */
  states(accounts: readonly string[]): Promise<InvitationState[]>;
  /** Returns the person of the account and the address. Null: no link of theirs was exchanged. */
  personOf(account: string, email: string): Promise<PersonRow | null>;
  /**
   * Uses a link up, and returns its person. Null: the link is unknown, was used, replaced, or has
   * ended; the account is closed; its contact has another address; or the person is suspended.
   * `change`: a new person has the account.
   */
  exchange(exchange: Exchange, change: (account: string) => ChangeLogRow): Promise<PersonRow | null>;
}
