/**
 * Keeps accounts, keys and open holds between the commits of one connection, so that a commit
 * reads only rows that it does not know.
 *
 * Guarantees that every kept row is the row of the database. All rows are dropped if another
 * connection has changed the file, or if this connection has changed rows since its last
 * successful commit.
 */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { invariant } from "../../errors.ts";
import type { PlanCatalog } from "../../ledger/plan.ts";
import type { AccountRow, HoldRow, KeyRow } from "../../ledger/rows.ts";
import { type Changes, rowKey } from "../../ledger/snapshot.ts";

/** About 10 MB. All rows are dropped above it. */
const rowsMax = 20_000;

export class RowCache {
  /** By id. */
  readonly accounts = new Map<string, AccountRow>();
  /** By id. */
  readonly keys = new Map<string, KeyRow>();
  /** By `rowKey(account, id)`. */
  readonly holds = new Map<string, HoldRow>();
  /** Null: they have to be read. */
  plans: PlanCatalog | null = null;
  /** Changes with every commit of another connection. */
  readonly #dataVersion: StatementSync;
  /** Counts the rows that this connection has changed, including changes that were rolled back. */
  readonly #ownChanges: StatementSync;
  readonly #rowsMax: number;
  #versionAtEnd = 0;
  #changesAtEnd = 0;

  constructor(db: DatabaseSync, max = rowsMax) {
    this.#rowsMax = max;
    this.#dataVersion = db.prepare("pragma data_version");
    this.#ownChanges = db.prepare("select total_changes()");
    this.#dataVersion.setReturnArrays(true);
    this.#ownChanges.setReturnArrays(true);
  }

  /**
   * Drops all rows if any of them may have changed. Call it under the lock of the transaction,
   * before any read.
   */
  begin(): void {
    const version = numberOf(this.#dataVersion);
    const isSame = version === this.#versionAtEnd && numberOf(this.#ownChanges) === this.#changesAtEnd;
    const size = this.accounts.size + this.keys.size + this.holds.size;
    if (!isSame) this.plans = null;
    if (!isSame || size > this.#rowsMax) {
      this.accounts.clear();
      this.keys.clear();
      this.holds.clear();
    }
    this.#versionAtEnd = version;
  }

  /** Keeps the rows that the ledger has committed. */
  end({ accounts, keys, keysSet, keysNew, holdsPut, holdsEnded }: Changes): void {
    for (const row of accounts) this.accounts.set(row.id, row);
    for (const row of [...keys, ...keysSet, ...keysNew]) this.keys.set(row.id, row);
    for (const row of holdsPut) this.holds.set(rowKey(row.account, row.id), row);
    for (const { account, id } of holdsEnded) this.holds.delete(rowKey(account, id));
    this.#changesAtEnd = numberOf(this.#ownChanges);
  }
}

function numberOf(statement: StatementSync): number {
  const row: unknown = statement.get();
  const cell: unknown = Array.isArray(row) ? row[0] : undefined;
  invariant(typeof cell === "number", "the statement returns a number");
  return cell;
}
