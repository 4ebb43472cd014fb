/**
 * Rows of people, and the port to them. A person is known by the issuer of their sign-in and by
 * the `sub` that it gives them, and never by a name or an e-mail address.
 *
 * Guarantees that an issuer's `sub` has one row, that a row is never deleted, and that no sign-in
 * links an account to which a person was ever linked. The row of an erased person names nobody.
 */
import { randomBytes } from "node:crypto";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { PlanVersion } from "../ledger/plan.ts";
import type { AccountState } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";
import type { ChangeLogRow } from "./change-log.ts";

/** What a sign-in, or a front end, finds out about a person. Each sign-in replaces it. */
const personFacts = {
  /** As the issuer spells them, for people to read. No rule compares the name. */
  name: "text?",
  email: "text?",
  /** The issuer has confirmed the address itself. */
  emailVerified: "boolean",
  /** The role that a rule gave last, and its condition, as far as sign-ins could decide. */
  roleRule: "text?",
  /** The last time at which a rule gave a role. */
  roleMatchedMs: "ms?",
  /** The last time at which a rule gave the account its plan. */
  accountMatchedMs: "ms?",
  /** The last sign-in, matching or not, or the last time that a front end changed the name. */
  seenMs: "ms",
} as const satisfies Columns;
export interface PersonFacts extends RowOf<typeof personFacts> {}

export const personColumns = {
  /** `person_` and 16 hexadecimal digits. */
  id: "text",
  issuer: "text",
  sub: "text",
  ...personFacts,
  account: "text?",
  /** `rule`, `email`, `invitation`, or the operator who linked the account. */
  accountBy: "text?",
  /** When a rule suspended the account, until a rule matches again. */
  lapsedMs: "ms?",
  /** An operator has suspended the person since then. */
  suspendedMs: "ms?",
  /** The data of the person was erased then. The `sub` is a pseudonym since. */
  erasedMs: "ms?",
  createdMs: "ms",
} as const satisfies Columns;
export interface PersonRow extends RowOf<typeof personColumns> {}

export const factNames = Object.keys(personFacts) as (keyof PersonFacts)[];

const erasedPrefix = "erased:";

/** Returns the `sub` of an erased person. Nobody who has it reaches the account. */
export function erasedSub(id: string): string {
  return erasedPrefix + id;
}

/** Whether a `sub` is reserved: a person with it would keep somebody else from being erased. */
export function isErasedSub(sub: string): boolean {
  return sub.startsWith(erasedPrefix);
}

/** Returns the row of a person who is not stored yet, and has no account. */
export function newPerson(
  { issuer, sub, name = null, email = null, emailVerified = false }: NewPerson,
  nowMs: EpochMs,
): PersonRow {
  return {
    id: `person_${randomBytes(8).toString("hex")}`,
    issuer,
    sub,
    name,
    email,
    emailVerified,
    roleRule: null,
    roleMatchedMs: null,
    accountMatchedMs: null,
    seenMs: nowMs,
    account: null,
    accountBy: null,
    lapsedMs: null,
    suspendedMs: null,
    erasedMs: null,
    createdMs: nowMs,
  };
}

type NewPerson = Pick<PersonRow, "issuer" | "sub"> &
  Partial<Pick<PersonRow, "name" | "email" | "emailVerified">>;

/** Returns the name of the account that is opened for a person. It follows from their id. */
export function accountOfPerson({ id }: Pick<PersonRow, "id">): string {
  return id.replace("person_", "p-");
}

const idPattern = /^person_[0-9a-f]{16}$/;

/** Whether an owner of a session is a person. */
export function isPersonId(text: string): boolean {
  return idPattern.test(text);
}

interface PeopleQuery {
  /** People after this id, in the order of ids. */
  after?: string | undefined;
  /** The people of this account. */
  account?: string | undefined;
  /** The beginning of an id, or words that begin words of a name or an address. */
  search?: string | undefined;
  /** Without erased people. */
  isPresent?: true | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

/** A person with their account, and the newest version of its plan. */
export interface FoundHolder {
  person: PersonRow;
  /** Closed from `endsMs` on, whatever its state, and if its row cannot be read. */
  account: { id: string; state: AccountState; endsMs: EpochMs | null };
  /** Null if the database has no version of it. */
  plan: PlanVersion | null;
  /** Why there is no plan. Null: there is one. */
  problem: string | null;
}

interface AccountLink {
  account: string;
  by: string;
  /** The rules give no other person this account. */
  isFirst: boolean;
}

export interface PeopleStore {
  person(id: string): Promise<PersonRow | null>;
  /** Finds people by their ids, in any order. */
  people(ids: readonly string[]): Promise<PersonRow[]>;
  personOf(issuer: string, sub: string): Promise<PersonRow | null>;
  /** Finds a person who has an account. */
  findHolder(issuer: string, sub: string): Promise<FoundHolder | null>;
  /** Finds those of the people who have an account, in any order. */
  findHolders(ids: readonly string[]): Promise<FoundHolder[]>;
  listPeople(query: PeopleQuery): Promise<PersonRow[]>;
  /** Adds the row, unless its issuer and `sub` have one. Returns the row that they have. */
  addPerson(row: PersonRow): Promise<PersonRow>;
  /**
   * Returns false if the person is erased, or another sign-in has recorded something since `read`
   * was. `change`: of the role. Two sign-ins that record the same one have the same id.
   */
  setPersonFacts(read: PersonRow, facts: PersonFacts, change: ChangeLogRow | null): Promise<boolean>;
  /**
   * Links an account to a person who has none. Returns false if the person has one or is erased,
   * or if `isFirst` and a person was linked to the account before.
   */
  linkPerson(id: string, link: AccountLink, change: ChangeLogRow): Promise<boolean>;
  /** Records when a rule suspended the account of a person. Null: it matches again. */
  setPersonLapsed(id: string, atMs: EpochMs | null): Promise<void>;
  /**
   * Suspends a person, or ends that (null). Returns false if the person is as wanted already, or
   * erased.
   */
  setPersonSuspended(id: string, atMs: EpochMs | null, change: ChangeLogRow): Promise<boolean>;
  /**
   * Erases in one transaction what names a person: `sub`, name, e-mail, role, sessions,
   * invitations, seats of links, and the values of the changes of the person. Also contact, all
   * invitations, the values of all changes, and the answers of receivers of events of the person's
   * account, unless another person who is not erased has it. The account that is opened for the
   * person counts as theirs before it is linked.
   *
   * A repetition erases what has come since. Returns false if nobody has the id.
   */
  erasePerson(id: string, nowMs: EpochMs, change: ChangeLogRow): Promise<boolean>;
  /**
   * Gives a person another issuer and `sub`. Returns false if the person does not have `from`, is
   * erased, or if another person has the new ones.
   */
  movePerson(
    id: string,
    from: string,
    to: { issuer: string; sub: string },
    change: ChangeLogRow,
  ): Promise<boolean>;
  /** Finds up to two people of an issuer who have this verified e-mail address. */
  peopleWithEmail(issuer: string, email: string): Promise<PersonRow[]>;
  /**
   * Lists people whose account a rule opened, has not suspended, and has last matched before that
   * time.
   */
  peopleToLapse(beforeMs: EpochMs, limit: number): Promise<PersonRow[]>;
  /** Finds up to two accounts that are not closed and have this contact address. */
  openAccountsWithEmail(email: string): Promise<string[]>;
}
