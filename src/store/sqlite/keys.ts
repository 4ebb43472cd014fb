/** API keys on SQLite: rows that hold no credits, written outside the ledger's commits. */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { KeyRow } from "../../ledger/rows.ts";
import type { EpochMs } from "../../units.ts";
import type { FoundKey } from "../store.ts";
import { keyTable } from "../tables.ts";
import { cellsOf, prepare, Query, valuesOf } from "./query.ts";

export class SqliteKeys {
  readonly #insert: StatementSync;
  readonly #revoke: StatementSync;

  constructor(db: DatabaseSync) {
    const marks = keyTable.columns.map(() => "?").join(", ");
    this.#insert = db.prepare(
      `insert into api_key (${keyTable.list()}) select ${marks} where exists (select 1 from account where id = ?)`,
    );
    this.#revoke = prepare(
      db,
      `update api_key set revoked_ms = coalesce(revoked_ms, ?) where id = ? returning ${keyTable.list()}`,
    );
  }

  add(key: KeyRow): boolean {
    return this.#insert.run(...valuesOf(keyTable, key), key.account).changes === 1;
  }

  revoke(id: string, atMs: EpochMs): KeyRow | null {
    const [row] = this.#revoke.all(atMs, id);
    return row === undefined ? null : keyTable.rowOf(cellsOf(row));
  }
}

export class SqliteKeyring {
  readonly #find: StatementSync;
  readonly #byId: Query<KeyRow>;
  readonly #all: Query<KeyRow>;
  readonly #ofAccount: Query<KeyRow>;

  constructor(db: DatabaseSync) {
    this.#find = prepare(
      db,
      `select ${keyTable.list("k")}, a.plan from api_key as k join account as a on a.id = k.account where k.hash = ?`,
    );
    this.#byId = new Query(db, keyTable, "where id = ?");
    this.#all = new Query(db, keyTable, "order by created_ms, id");
    this.#ofAccount = new Query(db, keyTable, "where account = ? order by created_ms, id");
  }

  /** The lookup that every request begins with. */
  find(hash: string): FoundKey | null {
    const row = this.#find.get(hash);
    if (row === undefined) return null;
    const cells = cellsOf(row);
    return { key: keyTable.rowOf(cells), plan: String(cells.at(-1)) };
  }

  byId(id: string): KeyRow | null {
    return this.#byId.get(id) ?? null;
  }

  list(account: string | undefined): KeyRow[] {
    return account === undefined ? this.#all.all() : this.#ofAccount.all(account);
  }
}
