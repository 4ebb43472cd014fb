/** Reads and writes contacts, in the transaction of `putAccounts`. */
import {
  type AccountDraft,
  type ContactRow,
  contactsNamedBy,
  type DraftChanges,
  endOtherLinks,
} from "../contacts.ts";
import { changeLogTable, contactTable } from "../tables.ts";
import type { Connection } from "./connection-pool.ts";
import type { Statement } from "./exchange.ts";
import { arrayLiteral } from "./rows.ts";
import { insertInto } from "./writing.ts";

const insertContacts = insertInto(contactTable);
const insertLogged = insertInto(changeLogTable);

export async function readContacts(
  connection: Connection,
  drafts: readonly AccountDraft[],
): Promise<ContactRow[]> {
  const { accounts, externalIds } = contactsNamedBy(drafts);
  const { rows } = await connection.query({
    text: `select ${contactTable.list()} from account_contact
      where account = any($1::text[]) or external_id = any($2::text[]) order by account for update`,
    values: [arrayLiteral(accounts), arrayLiteral(externalIds)],
  });
  return rows.map((cells) => contactTable.rowOf(cells));
}

export function contactStatements({ contacts, logged }: DraftChanges): Record<string, Statement | null> {
  const accounts = arrayLiteral(contacts.map(({ account }) => account));
  return {
    contactsBefore: {
      text: "delete from account_contact where account = any($1::text[])",
      values: [accounts],
    },
    contacts: insertContacts(contacts),
    otherLinks: { text: `${endOtherLinks} = any($1::text[])`, values: [accounts] },
    logged: insertLogged(logged),
  };
}
