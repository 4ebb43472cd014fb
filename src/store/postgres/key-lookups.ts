/**
 * The lookups of keys that every request begins with, several with one statement.
 *
 * Guarantees that a key is read by a statement that is sent after its lookup was asked for. So a
 * key that was revoked before is refused.
 */
import { StoreUnavailableError } from "../../errors.ts";
import { keysByHash } from "../queries.ts";
import { keyTable } from "../tables.ts";
import type { Statement } from "./exchange.ts";
import { arrayLiteral, type Cell } from "./rows.ts";

const findKeys = keysByHash("= any($1::text[])");

/** While this many statements are under way, lookups wait and share the next one. */
const statementsMax = 2;

const hashAt = keyTable.columns.findIndex(({ name }) => name === "hash");
const oldHashAt = keyTable.columns.findIndex(({ name }) => name === "old_hash");

interface Lookup {
  hash: string;
  resolve(cells: Cell[] | undefined): void;
  reject(error: unknown): void;
}

export class KeyLookups {
  readonly #find: (statement: Statement) => Promise<Cell[][]>;
  #waiting: Lookup[] = [];
  #isPlanned = false;
  #underWay = 0;

  constructor(find: (statement: Statement) => Promise<Cell[][]>) {
    this.#find = find;
  }

  /** Finds the row of `keysByHash` for the hash of a present or an old secret. */
  find(hash: string): Promise<Cell[] | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ hash, resolve, reject });
      this.#plan();
    });
  }

  /** Sends the waiting lookups when the requests of this turn of the event loop have been read. */
  #plan(): void {
    if (this.#isPlanned || this.#underWay === statementsMax || this.#waiting.length === 0) return;
    this.#isPlanned = true;
    setImmediate(() => {
      this.#isPlanned = false;
      if (this.#waiting.length > 0) void this.#send(this.#waiting.splice(0));
    });
  }

  async #send(lookups: readonly Lookup[]): Promise<void> {
    this.#underWay += 1;
    try {
      const hashes = arrayLiteral(lookups.map(({ hash }) => hash));
      const rows = await this.#find({ name: "find keys", text: findKeys, values: [hashes] });
      const byHash = new Map<unknown, Cell[]>();
      for (const cells of rows) byHash.set(cells[hashAt], cells).set(cells[oldHashAt], cells);
      for (const { hash, resolve } of lookups) resolve(byHash.get(hash));
    } catch (error) {
      for (const { reject } of lookups) reject(error);
      // These have waited for the same database, so each decides now whether to try again.
      if (error instanceof StoreUnavailableError)
        for (const { reject } of this.#waiting.splice(0)) reject(error);
    } finally {
      this.#underWay -= 1;
      this.#plan();
    }
  }
}
