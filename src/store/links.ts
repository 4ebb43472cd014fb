/**
 * Rows of links, by which many people join, and of their seats. `planSeat` decides whether
 * somebody gets a seat; `putAccount` writes it in the commit that opens the account. Pure, apart
 * from the port.
 *
 * Guarantees that a link has at most its seats, that somebody takes one of them once, and that a
 * refused seat changes nothing. Rows contain hashes of codes, never codes.
 */
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { Refused } from "../ledger/refusals.ts";
import type { AccountState } from "../ledger/rows.ts";
import type { Times } from "../ledger/snapshot.ts";
import type { EpochMs } from "../units.ts";
import type { ChangeLogRow } from "./change-log.ts";
import type { ServiceEvent } from "./events.ts";
import { type InvitationRow, invitationIssuer } from "./invitations.ts";
import { newPerson, type PersonRow } from "./people.ts";
import { linkChange } from "./person-changes.ts";
import { inLowerCase } from "./sql.ts";

export const linkColumns = {
  /** `link_` and 16 hexadecimal digits. */
  id: "text",
  name: "text",
  plan: "text",
  seats: "integer",
  /** Seats with an account. A closed account frees none. */
  taken: "integer",
  /** The domain of the addresses that may join, in lower case. */
  domain: "text?",
  /** When its accounts close. The times of a link are ledger times: people have typed them. */
  accountsEndMs: "ms?",
  /** Of the code. */
  hash: "text",
  by: "text",
  createdMs: "ms",
  endsMs: "ms",
  /** An operator has ended it. */
  endedMs: "ms?",
} as const satisfies Columns;
export interface LinkRow extends RowOf<typeof linkColumns> {}

export const seatColumns = {
  link: "text",
  /** Who has it: the hash of a join id, or an address as `addressKey` has it. */
  joiner: "text",
  /** Of the code in the mail, until it is used. Null also if there was no mail. */
  hash: "text?",
  /** What was typed, until the account is opened. */
  name: "text?",
  email: "text?",
  /** Elapsed times. */
  askedMs: "ms",
  /** The end of the mailed code. */
  endsMs: "ms?",
  account: "text?",
  person: "text?",
  joinedMs: "ms?",
} as const satisfies Columns;
export interface SeatRow extends RowOf<typeof seatColumns> {}

const linkPrefix = "link:";

/** Returns the actor that opens accounts of a link. `%`: a pattern of all of them, for SQL. */
export function byLink(id: string): string {
  return linkPrefix + id;
}

/** Whether the person came by a link, and so has typed their name. */
export function isNameTyped({ accountBy }: Pick<PersonRow, "accountBy">): boolean {
  return accountBy?.startsWith(linkPrefix) ?? false;
}

/** Whether nobody can join any more. */
export function hasEnded({ endedMs, endsMs }: LinkRow, atMs: EpochMs): boolean {
  return endedMs !== null || endsMs <= atMs;
}

/**
 * Returns an address as it is compared: in lower case, and without `+suffix`, which mail servers
 * ignore. The domain follows the last `@`.
 */
export function addressKey(email: string): string {
  const at = email.lastIndexOf("@");
  const name = email.slice(0, at);
  const plus = name.indexOf("+");
  return inLowerCase((plus > 0 ? name.slice(0, plus) : name) + email.slice(at));
}

/** Of an account that is to be opened. */
export interface SeatDraft extends Pick<SeatRow, "link" | "joiner"> {
  /** Of the code of the link, or of the mailed one. */
  hash: string;
  isMailed: boolean;
  person: Pick<PersonRow, "id" | "sub">;
}

/** The rows that a seat depends on, read under their locks. */
export interface FoundSeat {
  link: LinkRow | null;
  seat: SeatRow | null;
}

export type SeatRefused = Refused<
  "invalid_link" | "link_ended" | "link_full" | "already_joined" | "invalid_invitation"
>;

/** What is written with the account. */
export interface SeatChange {
  seat: SeatRow;
  person: PersonRow;
  /** For ways back by mail. */
  invitation: InvitationRow | null;
  logged: ChangeLogRow;
  /** Null: seats are left. */
  full: ServiceEvent | null;
}

interface Joining {
  account: string;
  owner: string | null;
  email: string | null;
  draft: SeatDraft;
}

export function planSeat(
  { account, owner, email, draft }: Joining,
  { link, seat }: FoundSeat,
  times: Times,
): SeatChange | SeatRefused {
  const { nowMs, atMs } = times;
  const { joiner, hash, isMailed } = draft;
  if (link === null) return { kind: "invalid_link" };
  if (isMailed) {
    if (seat?.hash !== hash || seat.account !== null || (seat.endsMs ?? 0) <= nowMs)
      return { kind: "invalid_invitation" };
  } else {
    if (link.hash !== hash) return { kind: "invalid_link" };
    if (seat !== null) return { kind: "already_joined" };
  }
  if (hasEnded(link, atMs)) return { kind: "link_ended" };
  if (link.taken >= link.seats) return { kind: "link_full" };
  const { id, sub } = draft.person;
  const by = byLink(link.id);
  const taken = link.taken + 1;
  const person = {
    ...newPerson({ issuer: invitationIssuer, sub, name: owner, email }, nowMs),
    id,
    account,
    accountBy: by,
  };
  const invitation = {
    account,
    email: inLowerCase(email ?? ""),
    hash,
    by,
    createdMs: seat?.askedMs ?? nowMs,
    endsMs: seat?.endsMs ?? nowMs,
    usedMs: nowMs,
    usedBy: id,
  };
  return {
    seat: {
      link: link.id,
      joiner,
      hash: null,
      name: null,
      email: null,
      askedMs: seat?.askedMs ?? nowMs,
      endsMs: null,
      account,
      person: id,
      joinedMs: nowMs,
    },
    person,
    invitation: isMailed ? invitation : null,
    logged: linkChange(id, account, { by, atMs }),
    full: taken < link.seats ? null : fullEvent(link, atMs),
  };
}

/** A link is full again after it got more seats. */
function fullEvent({ id, name, seats }: LinkRow, atMs: EpochMs): ServiceEvent {
  const data = { link: id, name, seats };
  return { type: "link.full", atMs, data, account: null, cause: `link.full:${id}:${seats}` };
}

interface SeatCounts {
  /** Mailed, and not used yet. */
  waiting: number;
  joined: number;
  /** Accounts with a finished request. */
  used: number;
}

/** An account that somebody has opened by a link. */
export interface LinkAccount extends RowOf<typeof joinedColumns> {
  state: AccountState;
}

export const joinedColumns = {
  account: "text",
  person: "text",
  /** As the person has typed it, or null if the person is erased. */
  name: "text?",
  joinedMs: "ms",
  hasUsed: "boolean",
} as const satisfies Columns;

interface LinksQuery {
  /** Links after this one, newest first. */
  after?: Pick<LinkRow, "createdMs" | "id"> | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

/** What an operator can change. */
export type LinkSettings = Pick<LinkRow, "name" | "seats" | "endsMs">;

export interface LinkStore {
  /** Returns false, and changes nothing, if the id is used. */
  add(row: LinkRow, change: ChangeLogRow): Promise<boolean>;
  link(id: string): Promise<LinkRow | null>;
  /** Finds the link whose code has this hash. */
  withCode(hash: string): Promise<LinkRow | null>;
  /** Lists links, newest first. */
  list(query: LinksQuery): Promise<LinkRow[]>;
  /** Returns false unless the link is as read, has not been ended, and has no more taken seats. */
  set(read: LinkRow, settings: LinkSettings, change: ChangeLogRow): Promise<boolean>;
  /**
   * Replaces the code, and ends the mailed codes that wait. Returns false if the link is unknown
   * or has been ended.
   */
  rotate(id: string, hash: string, change: ChangeLogRow): Promise<boolean>;
  /** Returns false if the link is unknown or was ended before. */
  end(id: string, atMs: EpochMs, change: ChangeLogRow): Promise<boolean>;
  /**
   * Adds a mailed code, in the place of the one before. Returns false if the seat has an account.
   */
  ask(seat: SeatRow): Promise<boolean>;
  seat(link: string, joiner: string): Promise<SeatRow | null>;
  /** Lists the seats of a person, and requests with their address that wait, by link. */
  seatsOf(person: Pick<PersonRow, "id" | "email">): Promise<SeatRow[]>;
  /** Finds the seat whose mailed code has this hash. */
  seatWithCode(hash: string): Promise<SeatRow | null>;
  counts(id: string, nowMs: EpochMs): Promise<SeatCounts>;
  /** Lists accounts of a link after this one, in the order of their ids. */
  accounts(id: string, page: { after?: string | undefined; limit: number }): Promise<LinkAccount[]>;
  /** Finds up to two accounts that are not closed, and whose contact has this `addressKey`. */
  accountsWithAddress(key: string): Promise<string[]>;
  /** Deletes seats whose mailed codes have ended. */
  removeWaiting(nowMs: EpochMs): Promise<void>;
}
