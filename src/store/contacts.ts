/**
 * The owners of accounts. `planDraft` decides what the draft of an account changes; the stores
 * read and write in one transaction. Pure.
 *
 * Guarantees that an external id belongs to one account, and that a refused draft changes nothing.
 */

import type { Columns, RowOf } from "../ledger/columns.ts";
import type { OpeningCredits, OpenOperation, StateOperation } from "../ledger/operations.ts";
import type { Decision, PlanRefused } from "../ledger/outcomes.ts";
import type { Refused } from "../ledger/refusals.ts";
import type { AccountRow } from "../ledger/rows.ts";
import type { Times } from "../ledger/snapshot.ts";
import type { EpochMs } from "../units.ts";
import { type ChangeLogRow, changeLogRow } from "./change-log.ts";
import { type FoundSeat, planSeat, type SeatChange, type SeatDraft, type SeatRefused } from "./links.ts";
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
  balanceCapMail: onOrOff,
  balanceExhaustedMail: onOrOff,
  keyExpiringMail: onOrOff,
} as const satisfies Columns;
export interface Contact extends RowOf<typeof contactFacts> {}

/** By the kind of mail, in camel case. */
export type MailChoices = {
  [Kind in "balanceLowMail" | "balanceCapMail" | "balanceExhaustedMail" | "keyExpiringMail"]?:
    | Contact[Kind]
    | undefined;
};

export const contactColumns = {
  account: "text",
  ...contactFacts,
} as const satisfies Columns;
export interface ContactRow extends RowOf<typeof contactColumns> {}

/** Ends links of other addresses than that of the contact for good, even if one comes back. */
export const endOtherLinks = `delete from invitation where not exists (select 1 from account_contact as c
  where c.account = invitation.account and coalesce(lower(c.email), '') = invitation.email) and account`;

const contactFields = Object.keys(contactFacts) as (keyof Contact)[];
export const noContact: Contact = {
  owner: null,
  email: null,
  note: null,
  externalId: null,
  balanceLowMail: "on",
  balanceCapMail: "on",
  balanceExhaustedMail: "on",
  keyExpiringMail: "on",
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
  /**
   * Null: the account must exist, and gets the contact. Otherwise one that exists stays as it is.
   */
  plan: string | null;
  /** Absent fields stay. */
  contact: Partial<Contact>;
  /** Of a new account. */
  additional?: OpeningCredits | undefined;
  /** When a new account closes. */
  endsMs?: EpochMs | null | undefined;
  /**
   * The seat of a link that a new account takes. Without it the account is not opened, and one
   * that exists stays as it is.
   */
  seat?: SeatDraft | undefined;
}

export interface DraftOptions {
  /** Who opens or changes the account. */
  by: string;
  /** Decides, and writes nothing. */
  dryRun: boolean;
}

export type DraftOutcome =
  | { kind: "opened" }
  | { kind: "exists" }
  | PlanRefused
  | SeatRefused
  | Refused<"account_not_found" | "external_id_used" | "payment_used">;

/** Decides about an existing account too: the kernel answers `exists` whatever the plan is. */
export function operationsOf(
  { id, plan, additional, endsMs = null }: AccountDraft,
  { by }: Pick<DraftOptions, "by">,
): (OpenOperation | StateOperation)[] {
  const opening = { kind: "open", account: id, plan: plan ?? "", additional, by } as const;
  if (endsMs === null) return [opening];
  const to = { kind: "end", endsMs } as const;
  return [opening, { kind: "state", account: id, op: `end of ${id}`, to, by }];
}

export interface DraftChange {
  outcome: DraftOutcome;
  /** False: the draft was refused, or is only tried. */
  isWritten: boolean;
  /** To write in place of the contact of the account. Null: it stays. */
  contact: ContactRow | null;
  /** Who changed the contact, and how. */
  logged: ChangeLogRow | null;
  /** To write with the account. Null: it takes no seat. */
  seat: SeatChange | null;
}

/**
 * `decision` is that of the first of `operationsOf`. `known` has the contact of the account and
 * that with its external id, and `found` what its seat depends on.
 */
export function planDraft(
  draft: AccountDraft,
  decision: Decision | undefined,
  { known, found }: { known: readonly ContactRow[]; found: FoundSeat | null },
  { by, dryRun, nowMs, atMs }: DraftOptions & Times,
): DraftChange {
  const { id: account, contact } = draft;
  const nothing = { contact: null, logged: null, seat: null };
  const refused = (outcome: DraftOutcome) => ({ outcome, isWritten: false, ...nothing });
  const outcome = outcomeOf(draft, decision);
  const { kind } = outcome;
  if (kind !== "opened" && kind !== "exists") return refused(outcome);
  if (kind === "exists" && isOnlyNew(draft)) return refused(outcome);
  const { externalId = null } = contact;
  const other = known.find((row) => row.account !== account && row.externalId === externalId);
  if (externalId !== null && other !== undefined)
    return refused({ kind: "external_id_used", externalId, account: other.account });
  const isWritten = !dryRun;
  const before = known.find((row) => row.account === account) ?? { account, ...noContact };
  const row = { ...before, ...contact };
  const { owner, email } = row;
  const seat =
    draft.seat && found && planSeat({ account, owner, email, draft: draft.seat }, found, { nowMs, atMs });
  if (seat != null && "kind" in seat) return refused(seat);
  const planned = { outcome, isWritten, seat: seat ?? null };
  const isKept = contactFields.every((field) => row[field] === before[field]);
  if (isKept || (kind === "exists" && draft.plan !== null))
    return { ...planned, contact: null, logged: null };
  return { ...planned, contact: row, logged: loggedContact(before, row, { by, atMs }) };
}

/** Whether the draft has what only an account that it opens gets. */
function isOnlyNew({ seat, endsMs = null }: AccountDraft): boolean {
  return seat !== undefined || endsMs !== null;
}

/** Only the fields that differ. */
function loggedContact(
  before: ContactRow,
  row: ContactRow,
  who: { by: string; atMs: EpochMs },
): ChangeLogRow {
  const { account } = row;
  const fields = contactFields.filter((field) => before[field] !== row[field]);
  const partOf = (contact: Contact) =>
    Object.fromEntries(fields.map((field) => [columnOf(field), contact[field]]));
  return changeLogRow({ ...who, kind: "contact", account, before: partOf(before), after: partOf(row) });
}

function outcomeOf({ id, plan }: AccountDraft, decision: Decision | undefined): DraftOutcome {
  switch (decision?.kind) {
    case "opened":
    case "retired_plan":
    case "payment_used":
      return decision;
    case "exists":
      return { kind: "exists" };
    case "unknown_plan":
      return plan === null ? { kind: "account_not_found", account: id } : decision;
    default:
      throw new Error(`an opening is not decided as ${decision?.kind}`);
  }
}
