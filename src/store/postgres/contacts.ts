/** Reads and writes contacts, in the transaction of `putAccount`. */
import { type AccountDraft, type ContactRow, type DraftChange, endOtherLinks } from "../contacts.ts";
import { changeLogTable, contactTable } from "../tables.ts";
import type { Connection } from "./connection-pool.ts";
import type { Statement } from "./exchange.ts";
import { insertInto } from "./writing.ts";

const insertContacts = insertInto(contactTable);
const insertLogged = insertInto(changeLogTable);

/** Reads the contact of the account, and that with its external id. */
export async function readContacts(
  connection: Connection,
  { id, contact }: AccountDraft,
): Promise<ContactRow[]> {
  const { rows } = await connection.query({
    text: `select ${contactTable.list()} from account_contact
      where account = $1 or external_id = $2 order by account for update`,
    values: [id, contact.externalId ?? null],
  });
  return rows.map((cells) => contactTable.rowOf(cells));
}

export function contactStatements({ contact, logged }: DraftChange): Record<string, Statement | null> {
  if (contact === null || logged === null) return {};
  const values = [contact.account];
  return {
    contactBefore: { text: "delete from account_contact where account = $1", values },
    contact: insertContacts([contact]),
    otherLinks: { text: `${endOtherLinks} = $1`, values },
    logged: insertLogged([logged]),
  };
}
