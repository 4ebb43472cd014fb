/** Reads and writes contacts, in the transaction of `putAccounts`. */
import type { DatabaseSync } from "node:sqlite";
import {
  type AccountDraft,
  type ContactRow,
  contactsNamedBy,
  type DraftChanges,
  endOtherLinks,
} from "../contacts.ts";
import { changeLogTable, contactTable } from "../tables.ts";
import { insertInto, Query } from "./query.ts";

export function readContacts(db: DatabaseSync, drafts: readonly AccountDraft[]): ContactRow[] {
  const { accounts, externalIds } = contactsNamedBy(drafts);
  const among = (n: number) => `(select value from json_each(?${n}))`;
  const query = new Query(db, contactTable, `where account in ${among(1)} or external_id in ${among(2)}`);
  return query.all(JSON.stringify(accounts), JSON.stringify(externalIds));
}

export function writeContacts(db: DatabaseSync, { contacts, logged }: DraftChanges): void {
  const remove = db.prepare("delete from account_contact where account = ?");
  for (const { account } of contacts) remove.run(account);
  const insert = insertInto(db, contactTable);
  for (const row of contacts) insert(row);
  const endLinks = db.prepare(`${endOtherLinks} = ?`);
  for (const { account } of contacts) endLinks.run(account);
  const log = insertInto(db, changeLogTable);
  for (const row of logged) log(row);
}
