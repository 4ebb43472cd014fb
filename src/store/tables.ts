/**
 * Describes each table with rows of its own type once, for both stores: its columns, their types,
 * and the conversions between a row and the cells of a database. Sums of usage, nodes and stopped
 * requests have statements only.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws. Rows of accounts may be damaged, and are read by account-rows.ts.
 */
import { eventColumns } from "../ledger/events.ts";
import { appliedColumns, planCapColumns } from "../ledger/plan.ts";
import {
  accountColumns,
  chargeColumns,
  grantColumns,
  holdColumns,
  journalColumns,
  keyColumns,
  keyStateFields,
  laterGrantColumns,
  limitColumns,
} from "../ledger/rows.ts";
import { alignments } from "../ledger/windows.ts";
import { auditRecordColumns } from "./audit-report.ts";
import { changeLogColumns } from "./change-log.ts";
import { clockColumns } from "./clock.ts";
import { contactColumns } from "./contacts.ts";
import { deliveryColumns } from "./events.ts";
import { invitationColumns } from "./invitations.ts";
import { linkColumns, seatColumns } from "./links.ts";
import { operatorKeyColumns } from "./operator-keys.ts";
import { factNames, type PersonRow, personColumns } from "./people.ts";
import { sessionColumns } from "./sessions.ts";
import { pick, tableOf } from "./table.ts";
import { wordsCell } from "./words.ts";

export const accountTable = tableOf("account", accountColumns);

export const laterGrantTable = tableOf("later_grant", laterGrantColumns);

/** Identifies a later grant, for deletion. */
export const laterGrantKeyTable = tableOf("later_grant", pick(laterGrantColumns, "account", "seq"));

/** The columns by which a lookup decides the state and the plan of an account. */
export const accountStandingTable = tableOf(
  "account",
  pick(accountColumns, "state", "endsMs", "plan", "nextPlan"),
);

export const holdTable = tableOf("hold", holdColumns);

/** Identifies a hold, for deletion. */
export const holdKeyTable = tableOf("hold", pick(holdColumns, "account", "id"));

export const journalTable = tableOf("journal", journalColumns);

export const chargeTable = tableOf("charge", chargeColumns);

export const grantTable = tableOf("credit_grant", grantColumns);

/** The part of a key that requests change, after the two columns that identify it. */
export const keyStateTable = tableOf("api_key", pick(keyColumns, "account", "id", ...keyStateFields));

export const keyTable = tableOf("api_key", keyColumns, {
  words: ({ name, lastFour }) => wordsCell(name, lastFour),
});

export const contactTable = tableOf("account_contact", contactColumns, {
  words: ({ owner, email, externalId }) => wordsCell(owner, email, externalId),
});

const bucketPlan = { columns: { credits: "credits", every: "text", align: alignments } } as const;

export const planVersionTable = tableOf("plan_version", {
  plan: "text",
  version: "integer",
  createdMs: "ms",
  base: bucketPlan,
  overage: bucketPlan,
  caps: { items: planCapColumns },
  timezone: "text",
  ...limitColumns,
  models: "texts",
});
export type PlanVersionRow = ReturnType<typeof planVersionTable.rowOf>;

export const planFileTable = tableOf("plan_file", appliedColumns);

export const clockTable = tableOf("clock", clockColumns);

/** The table has one row at most. */
export const auditRecordTable = tableOf("audit_record", auditRecordColumns);

export const changeLogTable = tableOf("change_log", changeLogColumns);

export const operatorKeyTable = tableOf("operator_key", operatorKeyColumns);

export const sessionTable = tableOf("session", sessionColumns);

/** Without the number, which the database gives. */
export const eventTable = tableOf("event", eventColumns);

export const deliveryTable = tableOf("event_delivery", deliveryColumns);

export function wordsOfPerson({ name, email, sub }: Pick<PersonRow, "name" | "email" | "sub">): string {
  return wordsCell(name, email, sub);
}

export const personTable = tableOf("person", personColumns, { words: wordsOfPerson });

/** What a sign-in replaces. */
export const personFactsTable = tableOf("person", pick(personColumns, ...factNames));

export const invitationTable = tableOf("invitation", invitationColumns);

export const linkTable = tableOf("link", linkColumns);

export const seatTable = tableOf("link_seat", seatColumns);
