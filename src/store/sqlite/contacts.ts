/** Reads and writes contacts, in the transaction of `putAccount`. */
import type { DatabaseSync } from "node:sqlite";
import { type AccountDraft, type ContactRow, type DraftChange, endOtherLinks } from "../contacts.ts";
import { changeLogTable, contactTable } from "../tables.ts";
import { insertInto, Query } from "./query.ts";

/** Reads the contact of the account, and that with its external id. */
export function readContacts(db: DatabaseSync, { id, contact }: AccountDraft): ContactRow[] {
  const query = new Query(db, contactTable, "where account = ? or external_id = ?");
  return query.all(id, contact.externalId ?? null);
}

export function writeContact(db: DatabaseSync, { contact, logged }: DraftChange): void {
  if (contact === null || logged === null) return;
  const { account } = contact;
  db.prepare("delete from account_contact where account = ?").run(account);
  insertInto(db, contactTable)(contact);
  db.prepare(`${endOtherLinks} = ?`).run(account);
  insertInto(db, changeLogTable)(logged);
}
