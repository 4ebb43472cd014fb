/**
 * Reads of SQLite outside the ledger's commits: what queries.ts needs of this database, and
 * snapshots for balances.
 */
import type { DatabaseSync } from "node:sqlite";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { overdueMax } from "../../ledger/unit-of-work.ts";
import type { EpochMs } from "../../units.ts";
import type { SqlDialect } from "../queries.ts";
import { holdTable, keyTable } from "../tables.ts";
import { AccountQuery, Query } from "./query.ts";

export function sqliteDialect(now: () => EpochMs): SqlDialect {
  return {
    parameter: (n) => `?${n}`,
    time: "?",
    nowMs: now,
    listOf: JSON.stringify,
    // Receipts have no index by account. A receipt has the number of the journal entry that ended
    // it, and the operation of that entry is `<id>/end` or `<id>/late`.
    receipts: {
      from: `journal as j cross join usage as u
        on u.id = substr(j.op, 1, length(j.op) - case when substr(j.op, -5) = '/late' then 5 else 4 end)
          and u.account = j.account and u.seq = j.seq and j.kind in ('settle', 'void', 'expire')`,
      inOrder: "j",
    },
    revokeKey: `update api_key set revoked_ms = coalesce(revoked_ms, ?1) where id = ?2 returning ${keyTable.list()}`,
  };
}

export class SqliteSnapshots {
  readonly #db: DatabaseSync;
  readonly #now: () => EpochMs;
  readonly #account: AccountQuery;
  readonly #overdue: Query<HoldRow>;

  constructor(db: DatabaseSync, now: () => EpochMs) {
    this.#db = db;
    this.#now = now;
    this.#account = new AccountQuery(db);
    this.#overdue = new Query(
      db,
      holdTable,
      "where account = ? and expires_ms <= ? order by expires_ms, id limit ?",
    );
  }

  /** Both reads see the same state. The clock is read after that state is fixed. */
  of(account: string): AccountSnapshot | null {
    this.#db.exec("begin");
    try {
      const row = this.#account.get(account);
      if (row === undefined) return null;
      const nowMs = this.#now();
      return { account: row, overdue: this.#overdue.all(account, nowMs, overdueMax), nowMs };
    } finally {
      // A failing disk ends the transaction by itself.
      if (this.#db.isTransaction) this.#db.exec("commit");
    }
  }
}
