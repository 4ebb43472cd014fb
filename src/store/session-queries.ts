/**
 * The statements on sessions, once for both stores.
 *
 * Reading a session waits while the database is away for a moment, like the key of a request.
 */

import type { SqlConnections } from "./queries.ts";
import { rowsPerOwnerMax, type SessionStore } from "./sessions.ts";
import { insertOf, parametersOf, type SqlDialect } from "./sql.ts";
import { sessionTable } from "./tables.ts";

export function sessionQueriesOn(
  { find, write }: SqlConnections,
  { parameter: p }: SqlDialect,
): SessionStore {
  const removeOldest = `delete from session where kind = ${p(1)} and owner = ${p(2)} and hash not in (
      select hash from session where kind = ${p(1)} and owner = ${p(2)}
      order by created_ms desc, hash limit ${p(3)}
    )`;
  const use = `update session set used_ms = ${p(1)}
    where hash = ${p(2)} and used_ms < ${p(1)} and ended_ms is null`;
  const end = `update session set ended_ms = ${p(1)}
    where hash = ${p(2)} and ended_ms is null and ends_ms > ${p(1)} and used_ms + idle_ms > ${p(1)}
    returning hash`;

  return {
    async addSession(row) {
      await write(insertOf(sessionTable, row, p));
      // Not in one transaction: of several at the same time, the last one sees all rows.
      await write({ text: removeOldest, values: [row.kind, row.owner, rowsPerOwnerMax] });
    },

    async sessions(hashes) {
      if (hashes.length === 0) return [];
      const text = `select ${sessionTable.list()} from session where hash in (${parametersOf(hashes, p)})`;
      return (await find("lookups", { text, values: hashes })).map((cells) => sessionTable.rowOf(cells));
    },

    async sessionsOf(owner) {
      const text = `select ${sessionTable.list()} from session
        where kind in ('operator', 'portal') and owner = ${p(1)} order by created_ms desc, hash`;
      const rows = await find("service", { text, values: [owner] });
      return rows.map((cells) => sessionTable.rowOf(cells));
    },

    async useSession(hash, atMs) {
      await write({ text: use, values: [atMs, hash] });
    },

    async endSession(hash, atMs) {
      return (await write({ text: end, values: [atMs, hash] })).length === 1;
    },

    async claimCheck(hash, seenMs, atMs) {
      const text = `update session set checked_ms = ${p(1)} where hash = ${p(2)} and ended_ms is null
        and coalesce(checked_ms, 0) = ${p(3)} returning hash`;
      return (await write({ text, values: [atMs, hash, seenMs ?? 0] })).length === 1;
    },

    async sealSession(hash, sealed) {
      const text = `update session set sealed = ${p(1)} where hash = ${p(2)}`;
      await write({ text, values: [sealed, hash] });
    },

    async removeSessions(atMs) {
      await write({ text: `delete from session where used_ms + idle_ms <= ${p(1)}`, values: [atMs] });
    },
  };
}
