/**
 * The owners of accounts, and the opening of many accounts at once. `planDrafts` decides what a
 * list of drafts changes; the stores read and write in one transaction. Pure.
 *
 * Guarantees that an external id belongs to one account, and that a list with one refused draft
 * changes nothing. No list moves an external id from one account to another.
 */

import type { Columns, RowOf } from "../ledger/columns.ts";
import type { BalancesRefused, OpeningBalances } from "../ledger/opening.ts";
import type { NewKey, OpenOperation } from "../ledger/operations.ts";
import type { Decision } from "../ledger/outcomes.ts";
import type { AccountRow } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";
import { type ChangeLogRow, changeLogRow } from "./change-log.ts";
import { columnOf } from "./table.ts";

const onOrOff = ["on", "off"] as const;

/** The owner of an account, and its id in another system. The ledger does not use them. */
const contactFacts = {
  owner: "text?",
  email: "text?",
  note: "text?",
  /** The id of the account in another system, unique in the installation. */
  externalId: "text?",
  // Kinds of mail about the account. Its people can switch each kind off.
  balanceLowMail: onOrOff,
  balanceExhaustedMail: onOrOff,
  keyExpiringMail: onOrOff,
} as const satisfies Columns;
export interface Contact extends RowOf<typeof contactFacts> {}

/** By the kind of mail, in camel case. */
export type MailChoices = {
  [Kind in "balanceLowMail" | "balanceExhaustedMail" | "keyExpiringMail"]?: Contact[Kind] | undefined;
};

export const contactColumns = {
  account: "text",
  ...contactFacts,
} as const satisfies Columns;
export interface ContactRow extends RowOf<typeof contactColumns> {}

/** Ends links of other addresses than that of the contact for good, even if one comes back. */
export const endOtherLinks = `delete from invitation where not exists (select 1 from account_contact as c
  where c.account = invitation.account and lower(c.email) = invitation.email) and account`;

const contactFields = Object.keys(contactFacts) as (keyof Contact)[];
export const noContact: Contact = {
  ...{ owner: null, email: null, note: null, externalId: null },
  ...{ balanceLowMail: "on", balanceExhaustedMail: "on", keyExpiringMail: "on" },
};

/** An account of a list. */
export interface ListedAccount extends AccountRow {
  contact: Contact;
}

/** An account of a list, with the value that its order compares. */
export interface AccountInOrder extends ListedAccount {
  /** Why the row cannot be read. Null: it can. */
  problem: string | null;
  orderValue: string | number;
}

/** An account to open, or to change if it exists. */
export interface AccountDraft {
  id: string;
  /** Null: the account must exist. The plan of an existing account is not changed. */
  plan: string | null;
  /** Absent fields stay. */
  contact: Partial<Contact>;
  /** Balances that a new account brings along. */
  balances?: OpeningBalances;
  /** The first key of a new account. */
  key: NewKey | null;
}

export interface DraftOptions {
  /** Who opens the accounts. */
  by: string;
  /** Decides, and writes nothing. */
  dryRun: boolean;
  /** Sets the contact of accounts that exist. */
  updatesExisting: boolean;
}

export type DraftOutcome =
  | { kind: "opened" }
  /** `changed`: the contact differs from the contact before. */
  | { kind: "exists"; plan: string; changed: boolean }
  | { kind: "no_account" }
  | { kind: "unknown_plan"; plans: readonly string[] }
  | { kind: "retired_plan" }
  | BalancesRefused
  | { kind: "external_id_used"; account: string };

/** Decides about existing accounts too: the kernel answers `exists` whatever the plan is. */
export function operationsOf(
  drafts: readonly AccountDraft[],
  { by }: Pick<DraftOptions, "by">,
): OpenOperation[] {
  return drafts.map(({ id, plan, balances, key }) => ({
    ...{ kind: "open", account: id, plan: plan ?? "", by },
    ...(balances === undefined ? {} : { balances }),
    ...(key === null ? {} : { firstKey: key }),
  }));
}

/** The rows to read: the contacts of these accounts, and those with these external ids. */
export function contactsNamedBy(drafts: readonly AccountDraft[]): {
  accounts: string[];
  externalIds: string[];
} {
  return {
    accounts: drafts.map(({ id }) => id),
    externalIds: drafts.flatMap(({ contact }) => contact.externalId ?? []),
  };
}

export interface DraftChanges {
  outcomes: DraftOutcome[];
  /** False: a draft was refused, or nothing is to be written. */
  isWritten: boolean;
  /** Contacts to write in place of the contacts of the same accounts. */
  contacts: ContactRow[];
  /** Who changed these contacts, and how. */
  logged: ChangeLogRow[];
}

/** `decisions` are those of `operationsOf`, and `known` the rows of `contactsNamedBy`. */
export function planDrafts(
  drafts: readonly AccountDraft[],
  decisions: readonly Decision[],
  known: readonly ContactRow[],
  { by, dryRun, updatesExisting, atMs }: DraftOptions & { atMs: EpochMs },
): DraftChanges {
  const before = new Map(known.map((row) => [row.account, row]));
  const after = new Map(before);
  const outcomes = drafts.map((draft, n): DraftOutcome => {
    const outcome = outcomeOf(draft, decisions[n]);
    const isNew = outcome.kind === "opened";
    if (!isNew && (outcome.kind !== "exists" || !updatesExisting)) return outcome;
    const row = { account: draft.id, ...noContact, ...before.get(draft.id), ...draft.contact };
    if (!isSame(row, before.get(draft.id))) after.set(draft.id, row);
    return isNew ? outcome : { ...outcome, changed: after.get(draft.id) !== before.get(draft.id) };
  });
  const holders = Map.groupBy([...known, ...after.values()], ({ externalId }) => externalId);
  const checked = outcomes.map((outcome, n): DraftOutcome => {
    const { id = "", contact } = drafts[n] ?? {};
    const sharing = holders.get(contact?.externalId ?? null) ?? [];
    const other = sharing.find(({ account }) => account !== id);
    if (contact?.externalId == null || other === undefined || !isWritable(outcome)) return outcome;
    return { kind: "external_id_used", account: other.account };
  });
  const contacts = [...after.values()].filter((row) => row !== before.get(row.account));
  return {
    outcomes: checked,
    isWritten: !dryRun && checked.every(isWritable),
    contacts,
    logged: contacts.map((row) => loggedContact(before.get(row.account), row, { by, atMs })),
  };
}

/** Only the fields that differ. */
function loggedContact(
  known: ContactRow | undefined,
  row: ContactRow,
  who: { by: string; atMs: EpochMs },
): ChangeLogRow {
  const { account } = row;
  const before = known ?? { account, ...noContact };
  const fields = contactFields.filter((field) => before[field] !== row[field]);
  const partOf = (contact: Contact) =>
    Object.fromEntries(fields.map((field) => [columnOf(field), contact[field]]));
  return changeLogRow({ ...who, kind: "contact", account, before: partOf(before), after: partOf(row) });
}

function isWritable({ kind }: DraftOutcome): boolean {
  return kind === "opened" || kind === "exists";
}

function outcomeOf({ plan }: AccountDraft, decision: Decision | undefined): DraftOutcome {
  switch (decision?.kind) {
    case "opened":
      return { kind: "opened" };
    case "exists":
      return { kind: "exists", plan: decision.plan, changed: false };
    case "unknown_plan":
      return plan === null ? { kind: "no_account" } : decision;
    case "retired_plan":
      return { kind: "retired_plan" };
    case "balances_refused":
      return { kind: "balances_refused", faults: decision.faults };
    default:
      throw new Error(`an opening is not decided as ${decision?.kind}`);
  }
}

function isSame(row: ContactRow, before: ContactRow = { account: row.account, ...noContact }): boolean {
  return contactFields.every((field) => row[field] === before[field]);
}
