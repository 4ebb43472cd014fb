/** The statements on people, once for both stores. */
import { invariant } from "../errors.ts";
import { logIf } from "./change-log-queries.ts";
import { Conditions } from "./conditions.ts";
import { beginsWith, hasWords, withPrefix } from "./findings.ts";
import type { KeptPlans } from "./kept-plans.ts";
import { addressKey, byLink } from "./links.ts";
import { accountOfPerson, erasedSub, type FoundHolder, type PeopleStore, type PersonRow } from "./people.ts";
import { accountCells, accountIn, type SqlConnections } from "./queries.ts";
import { inLowerCase, insertOnce, isOpenAccount, lockAccount, parametersOf, type SqlDialect } from "./sql.ts";
import type { Value } from "./table.ts";
import { personFactsTable, personTable, wordsOfPerson } from "./tables.ts";

export function peopleQueriesOn(
  { find, write }: SqlConnections,
  dialect: SqlDialect,
  plans: KeptPlans,
): PeopleStore {
  const p = dialect.parameter;
  const columns = personTable.list();
  const rowsOf = (rows: readonly (readonly unknown[])[]) => rows.map((cells) => personTable.rowOf(cells));
  const factColumns = personFactsTable.columns.map(({ name }) => name);
  const set = [...factColumns, "words"].map((name, index) => `${name} = ${p(index + 1)}`);
  const idAt = set.length + 1;
  const asRead = factColumns.map((name, index) => `${name} is not distinct from ${p(idAt + 1 + index)}`);
  const setFacts = `update person set ${set.join(", ")}
    where id = ${p(idAt)} and erased_ms is null and ${asRead.join(" and ")} returning id`;
  const link = `update person set account = ${p(1)}, account_by = ${p(2)}
    where id = ${p(3)} and account is null and erased_ms is null`;
  const suspend = `update person set suspended_ms = ${p(1)} where id = ${p(2)} and suspended_ms is null
    returning id`;
  const resume = `update person set suspended_ms = null where id = ${p(1)} and suspended_ms is not null
    and erased_ms is null returning id`;
  const move = `update person set issuer = ${p(1)}, sub = ${p(2)} where id = ${p(3)} and issuer = ${p(4)}
    and erased_ms is null and not exists (select 1 from person where issuer = ${p(1)} and sub = ${p(2)}) returning id`;
  const lapsing = `select ${columns} from person where account_by = 'rule' and lapsed_ms is null
    and account_matched_ms < ${p(1)} order by account_matched_ms limit ${p(2)}`;
  const withEmail = `select c.account from account_contact as c join account as a on a.id = c.account
    where lower(c.email) = ${p(1)} and ${isOpenAccount(p(2))}
    order by c.account limit 2`;

  const erase = `update person set sub = ${p(3)}, name = null, email = null, words = '',
    email_verified = false, role_rule = null, role_matched_ms = null,
    suspended_ms = coalesce(suspended_ms, ${p(2)}), erased_ms = coalesce(erased_ms, ${p(2)})
    where id = ${p(1)}`;
  const namesAccount = `a.id = (select account from person where id = ${p(1)}) or a.id = ${p(2)}`;
  // Of two people of an account who are erased at the same time, the second one waits here, and
  // then sees that it is the last one. Nobody changes the contact meanwhile.
  const lockAccounts = `select a.id from account as a where ${namesAccount} order by a.id${dialect.forUpdate}`;
  const ownAccounts = `select a.id from account as a where (${namesAccount}) and not exists (
      select 1 from person as o where o.account = a.id and o.id <> ${p(1)} and o.erased_ms is null)`;
  const noValues = "update change_log set before = null, after = null";
  const eraseOwnValues = `${noValues} where subject = ${p(1)} and id <> ${p(2)}`;
  const eraseAccountValues = `${noValues} where account in (${ownAccounts})`;
  const eraseAnswers = `update event_delivery set answer = null
    where account in (${ownAccounts}) and answer is not null`;
  // Before the address is erased.
  const endLinks = `delete from invitation where (account, email) in (
      select account, coalesce(lower(email), '') from person where id = ${p(1)} and account is not null
        and (email is not null or account_by like '${byLink("%")}'))`;
  // The seats of the person, and requests with the address that wait for their mailed codes.
  const eraseSeats = `update link_seat set joiner = ${p(2)} where person = ${p(1)}`;
  const forgetSeats = `delete from link_seat where account is null and joiner = ${p(1)}`;
  const endSessions = `delete from session where kind in ('operator', 'portal') and owner = ${p(1)}`;

  async function personOf(issuer: string, sub: string): Promise<PersonRow | null> {
    const text = `select ${columns} from person where issuer = ${p(1)} and sub = ${p(2)}`;
    return rowsOf(await find("lookups", { text, values: [issuer, sub] }))[0] ?? null;
  }

  async function people(ids: readonly string[]): Promise<PersonRow[]> {
    if (ids.length === 0) return [];
    const text = `select ${columns} from person where id in (${parametersOf(ids, p)})`;
    return rowsOf(await find("lookups", { text, values: ids }));
  }

  async function holders(condition: string, values: readonly string[]): Promise<FoundHolder[]> {
    const text = `select ${personTable.list("p")}, ${accountCells}
      from person as p join account as a on a.id = p.account where ${condition}`;
    const rows = await find("lookups", { text, values });
    const context = { plans, atMs: dialect.ledgerMs() };
    return await Promise.all(
      rows.map(async (cells): Promise<FoundHolder> => {
        const person = personTable.rowOf(cells);
        const { account, ...rest } = await accountIn(cells, personTable.columns.length, context);
        return { person, account: { id: String(person.account), ...account }, ...rest };
      }),
    );
  }

  return {
    personOf,
    people,

    async findHolder(issuer, sub) {
      const [holder] = await holders(`p.issuer = ${p(1)} and p.sub = ${p(2)}`, [issuer, sub]);
      return holder ?? null;
    },

    async findHolders(ids) {
      if (ids.length === 0) return [];
      return await holders(`p.id in (${parametersOf(ids, p)})`, ids);
    },

    async person(id) {
      return (await people([id]))[0] ?? null;
    },

    async listPeople({ after, account, search, isPresent, limit }) {
      const conditions = new Conditions(p).and("id > ?", after).and("account = ?", account);
      if (search !== undefined) {
        const begins = beginsWith(conditions, "id", withPrefix("person_", inLowerCase(search)));
        conditions.always(`(${begins} or ${hasWords(conditions, search)})`);
      }
      if (isPresent) conditions.always("erased_ms is null");
      const { sql, values } = conditions.page("id", limit);
      return rowsOf(await find("service", { text: `select ${columns} from person${sql}`, values }));
    },

    async addPerson(row) {
      await write(insertOnce(personTable, row, p));
      const present = await personOf(row.issuer, row.sub);
      invariant(present !== null, "a person who was added is there");
      return present;
    },

    async setPersonFacts(read, facts, change) {
      const { id } = read;
      const isSet = (bound: (value: Value) => string) =>
        `select 1 from person where id = ${bound(id)} and erased_ms is null and seen_ms = ${bound(facts.seenMs)}
          and role_rule is not distinct from ${bound(facts.roleRule)}`;
      const log = change === null ? [] : [logIf(change, isSet, dialect)];
      const set = [...personFactsTable.valuesOf(facts), wordsOfPerson({ ...read, ...facts })];
      const values = [...set, id, ...personFactsTable.valuesOf(read)];
      return (await write({ text: setFacts, values }, ...log)).length === 1;
    },

    async linkPerson(id, { account, by, isFirst }, change) {
      const first = ` and not exists (select 1 from person where account = ${p(1)})`;
      const text = `${link}${isFirst ? first : ""} returning id`;
      const isLinked = (bound: (value: Value) => string) =>
        `select 1 from person where id = ${bound(id)} and account = ${bound(account)}`;
      const log = logIf(change, isLinked, dialect);
      return (
        (await write(lockAccount(account, dialect), { text, values: [account, by, id] }, log)).length === 1
      );
    },

    async setPersonLapsed(id, atMs) {
      await write({ text: `update person set lapsed_ms = ${p(1)} where id = ${p(2)}`, values: [atMs, id] });
    },

    async setPersonSuspended(id, atMs, change) {
      const set = atMs === null ? { text: resume, values: [id] } : { text: suspend, values: [atMs, id] };
      const isSet = (bound: (value: Value) => string) =>
        `select 1 from person where id = ${bound(id)} and suspended_ms is not distinct from ${bound(atMs)}`;
      return (await write(set, logIf(change, isSet, dialect))).length === 1;
    },

    async erasePerson(id, nowMs, change) {
      const isErased = (bound: (value: Value) => string) =>
        `select 1 from person where id = ${bound(id)} and erased_ms is not null`;
      const values = [id, accountOfPerson({ id })];
      const [read] = await people([id]);
      const address = read?.email == null ? [] : [addressKey(read.email)];
      const found = await write(
        { text: lockAccounts, values, isLock: true },
        { text: `select id from person where id = ${p(1)}`, values: [id] },
        { text: endLinks, values: [id] },
        { text: erase, values: [id, nowMs, erasedSub(id)] },
        // The person may have waited for a link to an account.
        { text: lockAccounts, values },
        { text: `delete from account_contact where account in (${ownAccounts})`, values },
        { text: `delete from invitation where account in (${ownAccounts})`, values },
        { text: eraseOwnValues, values: [id, change.id] },
        { text: eraseAccountValues, values },
        { text: eraseAnswers, values },
        { text: eraseSeats, values: [id, erasedSub(id)] },
        ...address.map((key) => ({ text: forgetSeats, values: [key] })),
        { text: endSessions, values: [id] },
        logIf(change, isErased, dialect),
      );
      return found.length === 1;
    },

    async movePerson(id, from, { issuer, sub }, change) {
      const isMoved = (bound: (value: Value) => string) =>
        `select 1 from person where id = ${bound(id)} and issuer = ${bound(issuer)} and sub = ${bound(sub)}`;
      const log = logIf(change, isMoved, dialect);
      return (await write({ text: move, values: [issuer, sub, id, from] }, log)).length === 1;
    },

    async peopleWithEmail(issuer, email) {
      const text = `select ${columns} from person
        where issuer = ${p(1)} and lower(email) = ${p(2)} and email_verified order by id limit 2`;
      return rowsOf(await find("service", { text, values: [issuer, inLowerCase(email)] }));
    },

    async peopleToLapse(beforeMs, limit) {
      return rowsOf(await find("service", { text: lapsing, values: [beforeMs, limit] }));
    },

    async openAccountsWithEmail(email) {
      const values = [inLowerCase(email), dialect.ledgerMs()];
      return (await find("service", { text: withEmail, values })).map(([account]) => String(account));
    },
  };
}
