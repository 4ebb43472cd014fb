/** API keys on SQLite: rows that hold no credits, written outside the ledger's commits. */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { KeyRow } from "../credits/rows.ts";
import type { EpochMs } from "../units.ts";
import { keyColumns, keyOf, keyValues } from "./sqlite-rows.ts";
import type { FoundKey } from "./store.ts";

export class SqliteKeys {
  readonly #insert: StatementSync;
  readonly #revoke: StatementSync;
  readonly #byId: StatementSync;
  readonly #all: StatementSync;
  readonly #ofAccount: StatementSync;

  constructor(db: DatabaseSync) {
    const marks = keyColumns.map(() => "?").join(", ");
    this.#insert = db.prepare(
      `insert into api_key (${keyColumns.join(", ")}) select ${marks} where exists (select 1 from account where id = ?)`,
    );
    this.#revoke = db.prepare(
      "update api_key set revoked_ms = coalesce(revoked_ms, ?) where id = ? returning *",
    );
    this.#byId = db.prepare("select * from api_key where id = ?");
    this.#all = db.prepare("select * from api_key order by created_ms, id");
    this.#ofAccount = db.prepare("select * from api_key where account = ? order by created_ms, id");
  }

  add(key: KeyRow): boolean {
    return this.#insert.run(...keyValues(key), key.account).changes === 1;
  }

  revoke(id: string, atMs: EpochMs): KeyRow | null {
    const [row] = this.#revoke.all(atMs, id);
    return row === undefined ? null : keyOf(row);
  }

  byId(id: string): KeyRow | null {
    const row = this.#byId.get(id);
    return row === undefined ? null : keyOf(row);
  }

  list(account: string | undefined): KeyRow[] {
    return (account === undefined ? this.#all.all() : this.#ofAccount.all(account)).map(keyOf);
  }
}

/** The lookup that every request begins with. */
export class SqliteKeyring {
  readonly #find: StatementSync;

  constructor(db: DatabaseSync) {
    this.#find = db.prepare(
      "select k.*, a.plan from api_key as k join account as a on a.id = k.account where k.hash = ?",
    );
  }

  find(hash: string): FoundKey | null {
    const row = this.#find.get(hash);
    return row === undefined ? null : { key: keyOf(row), plan: String(row.plan) };
  }
}
