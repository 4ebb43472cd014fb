/** The statements on invitations, once for both stores. */
import { logIf } from "./change-log-queries.ts";
import { type InvitationStore, invitationIssuer, invitationStateColumns } from "./invitations.ts";
import { byLink } from "./links.ts";
import type { PersonRow } from "./people.ts";
import type { SqlConnections } from "./queries.ts";
import { hasNotCome, hasUsed, inLowerCase, isOpenAccount, lockAccount, type SqlDialect } from "./sql.ts";
import { tableOf } from "./table.ts";
import { invitationTable, personTable } from "./tables.ts";

const stateTable = tableOf("state of an invitation", invitationStateColumns);

const ofInvitation = `p.issuer = '${invitationIssuer}'`;

export function invitationQueriesOn({ find, write }: SqlConnections, dialect: SqlDialect): InvitationStore {
  const p = dialect.parameter;
  const text = (n: number) => `cast(${p(n)} as text)`;
  const whole = (n: number) => `cast(${p(n)} as bigint)`;
  /** Person `p` of the account has the address. Empty: they joined by a link, without one. */
  const isInvited = (account: string, email: string) => `${ofInvitation} and p.account = ${account}
    and case ${email} when '' then p.email is null and p.erased_ms is null and p.account_by like '${byLink("%")}'
      else lower(p.email) = ${email} end`;
  /** The account is open, and the address is that of its contact. */
  const isOpen = (account: string, email: string, ledgerMs: string) => `exists (
    select 1 from account_contact c join account a on a.id = c.account
    where c.account = ${account} and coalesce(lower(c.email), '') = ${email}
      and ${isOpenAccount(ledgerMs)}
      and (${email} <> '' or exists (select 1 from person p where ${isInvited(account, email)})))`;
  const add = `insert into invitation (${invitationTable.list()})
    select ${text(1)}, ${text(2)}, ${text(3)}, ${text(4)}, ${whole(5)}, ${whole(6)},
      cast(null as bigint), cast(null as text)
    where ${isOpen(text(1), text(2), whole(7))}
    on conflict (account, email) do update set hash = excluded.hash, by = excluded.by,
      created_ms = excluded.created_ms, ends_ms = excluded.ends_ms, used_ms = null, used_by = null
    returning hash`;
  // The insert may have waited for an erase, which has removed the contact.
  const unlessOpen = `delete from invitation where hash = ${p(1)}
    and not ${isOpen("invitation.account", "invitation.email", p(2))}`;
  const isSuspended = `exists (select 1 from person p
    where ${isInvited("invitation.account", "invitation.email")} and p.suspended_ms is not null)`;
  // Another exchange that waits for the account finds the link used.
  const use = `update invitation set used_ms = ${p(1)}, used_by = ${p(2)}
    where hash = ${p(3)} and used_ms is null and ends_ms > ${p(1)}
      and ${isOpen("invitation.account", "invitation.email", p(4))} and not ${isSuspended}
    returning account, email`;
  const isThis = `i.hash = ${p(1)} and i.used_by = ${p(2)}`;
  // Does nothing if they have a person.
  const addPerson = `insert into person
      (id, issuer, sub, name, email, email_verified, seen_ms, account, account_by, created_ms, words)
    select ${text(2)}, '${invitationIssuer}', ${text(3)}, c.owner, c.email, false, ${whole(4)}, i.account,
      '${invitationIssuer}', ${whole(4)}, c.words
    from account_contact c join invitation i on i.account = c.account and i.email = lower(c.email)
    where ${isThis}
    on conflict do nothing`;
  const see = `update person set seen_ms = ${p(3)} where id in (
    select p.id from invitation i join person p on ${isInvited("i.account", "i.email")} where ${isThis})`;
  const known = `select ${personTable.list("p")} from person p where ${isInvited(p(1), text(2))}`;

  const states = `select i.account, i.ends_ms, not (${hasNotCome}), ${hasUsed("i.account")} from invitation i
    where i.account in (select e.value ->> 0 from ${dialect.items(p(1))})`;

  async function personOf(account: string, email: string): Promise<PersonRow | null> {
    const [cells] = await find("service", { text: known, values: [account, inLowerCase(email)] });
    return cells === undefined ? null : personTable.rowOf(cells);
  }

  return {
    personOf,

    async add({ account, email, hash, by, createdMs, endsMs }, change) {
      const values = [account, inLowerCase(email), hash, by, createdMs, endsMs, dialect.ledgerMs()];
      const isAdded = (bound: (value: string) => string) =>
        `select 1 from invitation where hash = ${bound(hash)}`;
      const stays = { text: unlessOpen, values: [hash, dialect.ledgerMs()] };
      await write({ text: add, values }, stays, logIf(change, isAdded, dialect));
      const text = `select 1 from invitation where hash = ${p(1)}`;
      return (await find("service", { text, values: [hash] })).length === 1;
    },

    async states(accounts) {
      const values = [JSON.stringify(accounts.map((account) => [account]))];
      const rows = await find("lists", { text: states, values });
      return rows.map((cells) => stateTable.rowOf(cells));
    },

    async wasInvited(account, email) {
      const text = `select 1 from invitation where account = ${p(1)} and email = ${p(2)}`;
      return (await find("service", { text, values: [account, inLowerCase(email)] })).length === 1;
    },

    async exchange({ hash, nowMs, person: { id, sub } }, change) {
      const text = `select account from invitation where hash = ${p(1)}`;
      const [cells] = await find("service", { text, values: [hash] });
      if (cells === undefined) return null;
      const account = String(cells[0]);
      const isNew = (bound: (value: string) => string) => `select 1 from person where id = ${bound(id)}`;
      const [row] = await write(
        lockAccount(account, dialect),
        { text: use, values: [nowMs, id, hash, dialect.ledgerMs()] },
        { text: addPerson, values: [hash, id, sub, nowMs] },
        { text: see, values: [hash, id, nowMs] },
        logIf(change(account), isNew, dialect),
      );
      return row === undefined ? null : await personOf(String(row[0]), String(row[1]));
    },
  };
}
