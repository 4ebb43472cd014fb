/** The statements on links and their seats, once for both stores. */
import type { EventSettings } from "../ledger/events.ts";
import { isClosedAt } from "../ledger/rows.ts";
import { logIf } from "./change-log-queries.ts";
import { Conditions } from "./conditions.ts";
import { eventInsertion } from "./event-queries.ts";
import {
  addressKey,
  type FoundSeat,
  joinedColumns,
  type LinkStore,
  type SeatChange,
  type SeatDraft,
  type SeatRow,
} from "./links.ts";
import type { SqlConnections } from "./queries.ts";
import { hasUsed, insertOf, insertOnce, isOpenAccount, type SqlDialect, type SqlStatement } from "./sql.ts";
import { tableOf } from "./table.ts";
import {
  accountStandingTable,
  changeLogTable,
  invitationTable,
  linkTable,
  personTable,
  seatTable,
} from "./tables.ts";

const joinedTable = tableOf("account of a link", joinedColumns);

type Rows = readonly (readonly unknown[])[];

/**
 * Locks the rows that a seat depends on, and reads them. People take the seats of a link one after
 * the other.
 */
export function seatReads(
  { link, joiner }: Pick<SeatDraft, "link" | "joiner">,
  { parameter: p, forUpdate }: Pick<SqlDialect, "parameter" | "forUpdate">,
): [link: SqlStatement, seat: SqlStatement] {
  return [
    { text: `select ${linkTable.list()} from link where id = ${p(1)}${forUpdate}`, values: [link] },
    {
      text: `select ${seatTable.list()} from link_seat where link = ${p(1)} and joiner = ${p(2)}${forUpdate}`,
      values: [link, joiner],
    },
  ];
}

export function foundSeatOf([links = [], seats = []]: readonly Rows[]): FoundSeat {
  const [link] = links.map((cells) => linkTable.rowOf(cells));
  const [seat] = seats.map((cells) => seatTable.rowOf(cells));
  return { link: link ?? null, seat: seat ?? null };
}

/** The table refuses more taken seats than there are. */
export function seatStatements(
  change: SeatChange,
  words: Pick<SqlDialect, "parameter">,
  events: EventSettings | null,
): SqlStatement[] {
  const { seat, person, invitation, logged, full } = change;
  const { parameter: p } = words;
  return [
    { text: `update link set taken = taken + 1 where id = ${p(1)}`, values: [seat.link] },
    insertOf(personTable, person, p),
    putSeat(seat, p, ""),
    insertOf(changeLogTable, logged, p),
    ...(invitation === null ? [] : [insertOf(invitationTable, invitation, p)]),
    ...(full === null || events === null ? [] : [eventInsertion(words, full)]),
  ];
}

function putSeat(row: SeatRow, p: SqlDialect["parameter"], condition: string): SqlStatement {
  const { text, values } = insertOf(seatTable, row, p);
  const set = seatTable.columns.map(({ name }) => name).filter((name) => !["link", "joiner"].includes(name));
  const replaced = set.map((name) => `${name} = excluded.${name}`).join(", ");
  return { text: `${text} on conflict (link, joiner) do update set ${replaced}${condition}`, values };
}

export function linkQueriesOn({ find, write }: SqlConnections, dialect: SqlDialect): LinkStore {
  const p = dialect.parameter;
  const selectLink = `select ${linkTable.list()} from link`;
  const selectSeat = `select ${seatTable.list()} from link_seat`;
  const linkWith = async (column: "id" | "hash", value: string) => {
    const [cells] = await find("service", {
      text: `${selectLink} where ${column} = ${p(1)}`,
      values: [value],
    });
    return cells === undefined ? null : linkTable.rowOf(cells);
  };
  const seatsWhere = async (condition: string, values: string[]) => {
    const rows = await find("service", { text: `${selectSeat} where ${condition} order by link`, values });
    return rows.map((cells) => seatTable.rowOf(cells));
  };
  const set = `update link set name = ${p(1)}, seats = ${p(2)}, ends_ms = ${p(3)}
    where id = ${p(4)} and name = ${p(5)} and seats = ${p(6)} and ends_ms = ${p(7)}
      and taken <= ${p(2)} and ended_ms is null returning id`;
  const rotate = `update link set hash = ${p(1)} where id = ${p(2)} and ended_ms is null returning id`;
  const forget = `delete from link_seat where link = ${p(1)} and account is null
    and exists (select 1 from link where id = ${p(1)} and hash = ${p(2)})`;
  const end = `update link set ended_ms = ${p(1)} where id = ${p(2)} and ended_ms is null returning id`;
  const hasUsedSeat = hasUsed("s.account");
  const ofAccounts = (condition: string) =>
    `(select count(*) from link_seat s where s.link = ${p(1)} and s.account is not null${condition})`;
  const counts = `select ${ofAccounts("")}, ${ofAccounts(` and ${hasUsedSeat}`)},
    (select count(*) from link_seat where link = ${p(1)} and account is null and ends_ms > ${p(2)})`;
  // "," follows "+" in the order of bytes.
  const withAddress = `select c.account from account_contact c join account a on a.id = c.account
    where (lower(c.email) = ${p(1)} or (lower(c.email) > ${p(2)} and lower(c.email) < ${p(3)}
        and substr(lower(c.email), length(c.email) - length(${p(4)}) + 1) = ${p(4)}))
      and ${isOpenAccount(p(5))} order by c.account limit 2`;

  return {
    async add(row, change) {
      return (await write(insertOnce(linkTable, row, p), insertOnce(changeLogTable, change, p))).length === 1;
    },

    link: (id) => linkWith("id", id),
    withCode: (hash) => linkWith("hash", hash),

    async list({ after, limit }) {
      const { sql, values } = new Conditions(p)
        .and("(created_ms, id) < (?, ?)", after?.createdMs, after?.id)
        .page("created_ms desc, id desc", limit);
      const rows = await find("service", { text: selectLink + sql, values });
      return rows.map((cells) => linkTable.rowOf(cells));
    },

    async set({ id, ...read }, { name, seats, endsMs }, change) {
      const values = [name, seats, endsMs, id, read.name, read.seats, read.endsMs];
      const isSet = (bound: (value: string | number) => string) => `select 1 from link where id = ${bound(id)}
        and name = ${bound(name)} and seats = ${bound(seats)} and ends_ms = ${bound(endsMs)}`;
      return (await write({ text: set, values }, logIf(change, isSet, dialect))).length === 1;
    },

    async rotate(id, hash, change) {
      const isRotated = (bound: (value: string) => string) =>
        `select 1 from link where id = ${bound(id)} and hash = ${bound(hash)}`;
      const rows = await write(
        { text: rotate, values: [hash, id] },
        { text: forget, values: [id, hash] },
        logIf(change, isRotated, dialect),
      );
      return rows.length === 1;
    },

    async end(id, atMs, change) {
      const isEnded = (bound: (value: string) => string) =>
        `select 1 from link where id = ${bound(id)} and ended_ms is not null`;
      return (await write({ text: end, values: [atMs, id] }, logIf(change, isEnded, dialect))).length === 1;
    },

    async ask(seat) {
      const { text, values } = putSeat(seat, p, " where link_seat.account is null");
      return (await write({ text: `${text} returning joiner`, values })).length === 1;
    },

    async seat(link, joiner) {
      return (await seatsWhere(`link = ${p(1)} and joiner = ${p(2)}`, [link, joiner]))[0] ?? null;
    },

    async seatsOf({ id, email }) {
      const address = email === null ? "" : addressKey(email);
      return await seatsWhere(`person = ${p(1)} or (account is null and joiner = ${p(2)})`, [id, address]);
    },

    async seatWithCode(hash) {
      return (await seatsWhere(`hash = ${p(1)}`, [hash]))[0] ?? null;
    },

    async counts(id, nowMs) {
      const [cells = []] = await find("service", { text: counts, values: [id, nowMs] });
      const [joined = 0, used = 0, waiting = 0] = cells.map(Number);
      return { waiting, joined, used };
    },

    async accounts(id, { after, limit }) {
      const { sql, values } = new Conditions(p)
        .and("s.link = ?", id)
        .and("s.account > ?", after)
        .page("s.account", limit);
      const text = `select s.account, s.person, p.name, s.joined_ms, ${hasUsedSeat},
        ${accountStandingTable.list("a")}
        from link_seat s join account a on a.id = s.account join person p on p.id = s.person${sql}`;
      const rows = await find("service", { text, values });
      return rows.map((cells) => {
        const standing = accountStandingTable.rowOf(cells, joinedTable.columns.length);
        const state = isClosedAt(standing, dialect.ledgerMs()) ? "closed" : standing.state;
        return { ...joinedTable.rowOf(cells), state };
      });
    },

    async accountsWithAddress(key) {
      const at = key.lastIndexOf("@");
      const [name, domain] = [key.slice(0, at), key.slice(at)];
      const values = [key, `${name}+`, `${name},`, domain, dialect.ledgerMs()];
      return (await find("service", { text: withAddress, values })).map(([account]) => String(account));
    },

    async removeWaiting(nowMs) {
      const text = `delete from link_seat where account is null and ends_ms <= ${p(1)}`;
      await write({ text, values: [nowMs] });
    },
  };
}
