/** API keys on SQLite: rows that hold no credits, written outside the ledger's commits. */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { KeyRow } from "../../ledger/rows.ts";
import type { EpochMs } from "../../units.ts";
import type { FoundKey } from "../store.ts";
import { Query, select } from "./query.ts";
import { keyColumns, keyOf, keyValues } from "./rows.ts";

export class SqliteKeys {
  readonly #insert: StatementSync;
  readonly #revoke: Query;

  constructor(db: DatabaseSync) {
    const marks = keyColumns.map(() => "?").join(", ");
    this.#insert = db.prepare(
      `insert into api_key (${keyColumns.join(", ")}) select ${marks} where exists (select 1 from account where id = ?)`,
    );
    this.#revoke = new Query(
      db,
      `update api_key set revoked_ms = coalesce(revoked_ms, ?) where id = ? returning ${keyColumns.join(", ")}`,
    );
  }

  add(key: KeyRow): boolean {
    return this.#insert.run(...keyValues(key), key.account).changes === 1;
  }

  revoke(id: string, atMs: EpochMs): KeyRow | null {
    const [row] = this.#revoke.all(atMs, id);
    return row === undefined ? null : keyOf(row);
  }
}

export class SqliteKeyring {
  readonly #find: Query;
  readonly #byId: Query;
  readonly #all: Query;
  readonly #ofAccount: Query;

  constructor(db: DatabaseSync) {
    const columns = keyColumns.map((column) => `k.${column}`).join(", ");
    this.#find = new Query(
      db,
      `select ${columns}, a.plan from api_key as k join account as a on a.id = k.account where k.hash = ?`,
    );
    const keys = select("api_key", keyColumns);
    this.#byId = new Query(db, `${keys} where id = ?`);
    this.#all = new Query(db, `${keys} order by created_ms, id`);
    this.#ofAccount = new Query(db, `${keys} where account = ? order by created_ms, id`);
  }

  /** The lookup that every request begins with. */
  find(hash: string): FoundKey | null {
    const row = this.#find.get(hash);
    return row === undefined ? null : { key: keyOf(row), plan: String(row[keyColumns.length]) };
  }

  byId(id: string): KeyRow | null {
    const row = this.#byId.get(id);
    return row === undefined ? null : keyOf(row);
  }

  list(account: string | undefined): KeyRow[] {
    return (account === undefined ? this.#all.all() : this.#ofAccount.all(account)).map(keyOf);
  }
}
