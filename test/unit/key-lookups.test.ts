/** Lookups of keys on PostgreSQL that share statements. */
import assert from "node:assert/strict";
import test from "node:test";
import timers from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import type { Statement } from "../../src/store/postgres/exchange.ts";
import { KeyLookups } from "../../src/store/postgres/key-lookups.ts";
import type { Cell } from "../../src/store/postgres/rows.ts";
import { keyTable } from "../../src/store/tables.ts";
import { keyOf } from "../fixtures/ledger-rows.ts";

const hashOf = (digit: string) => digit.repeat(64);

/** The row that the database returns for a key. */
function rowOf(id: string, hash: string, oldHash: string | null = null): Cell[] {
  return keyTable.valuesOf({ ...keyOf(id, "someone", { hash }), oldHash });
}

/** A database that answers when the test says so. */
class Database {
  readonly asked: { hashes: string[]; answer: PromiseWithResolvers<Cell[][]> }[] = [];

  find({ values = [] }: Statement): Promise<Cell[][]> {
    const hashes = String(values[0]).match(/[0-9a-f]{64}/g) ?? [];
    const answer = Promise.withResolvers<Cell[][]>();
    this.asked.push({ hashes, answer });
    return answer.promise;
  }

  answer(n: number, rows: Cell[][]): void {
    this.asked[n]?.answer.resolve(rows);
  }

  hashes(): string[][] {
    return this.asked.map(({ hashes }) => hashes);
  }
}

function lookups() {
  const database = new Database();
  return { database, keys: new KeyLookups((statement) => database.find(statement)) };
}

test("lookups of one turn share a statement, and each finds its key by either secret", async () => {
  const { database, keys } = lookups();
  const found = Promise.all([keys.find(hashOf("a")), keys.find(hashOf("b")), keys.find(hashOf("c"))]);
  await timers.setImmediate();
  assert.deepEqual(database.hashes(), [[hashOf("a"), hashOf("b"), hashOf("c")]]);
  const [first, second] = [rowOf("key_1", hashOf("a")), rowOf("key_2", hashOf("d"), hashOf("c"))];
  database.answer(0, [second, first]);
  assert.deepEqual(await found, [first, undefined, second]);
});

test("a lookup is read by a statement that is sent after it, and two statements at most run", async () => {
  const { database, keys } = lookups();
  const found = [keys.find(hashOf("a"))];
  await timers.setImmediate();
  found.push(keys.find(hashOf("a")));
  await timers.setImmediate();
  found.push(keys.find(hashOf("a")), keys.find(hashOf("b")));
  await timers.setImmediate();
  assert.deepEqual(database.hashes(), [[hashOf("a")], [hashOf("a")]]);
  const before = rowOf("key_1", hashOf("a"));
  database.answer(0, [before]);
  assert.equal(await found[0], before);
  await timers.setImmediate();
  assert.deepEqual(database.hashes().slice(2), [[hashOf("a"), hashOf("b")]]);
  // The key has been deleted since.
  database.answer(2, []);
  database.answer(1, [before]);
  assert.deepEqual(await Promise.all(found.slice(1)), [before, undefined, undefined]);
});

test("a failed statement rejects its lookups, and later ones are sent", async () => {
  const { database, keys } = lookups();
  const failed = Promise.allSettled([keys.find(hashOf("a")), keys.find(hashOf("b"))]);
  await timers.setImmediate();
  const reason = new Error("a defect");
  database.asked[0]?.answer.reject(reason);
  assert.deepEqual(await failed, [
    { status: "rejected", reason },
    { status: "rejected", reason },
  ]);
  const found = keys.find(hashOf("a"));
  await timers.setImmediate();
  const row = rowOf("key_1", hashOf("a"));
  database.answer(1, [row]);
  assert.equal(await found, row);
});

test("lookups that wait for an unavailable database are rejected with those under way", async () => {
  const { database, keys } = lookups();
  const found: Promise<unknown>[] = [];
  for (const digit of ["a", "b", "c"]) {
    found.push(keys.find(hashOf(digit)));
    await timers.setImmediate();
  }
  const reason = new StoreUnavailableError("the database is away");
  database.asked[0]?.answer.reject(reason);
  const rejected = { status: "rejected", reason };
  assert.deepEqual(await Promise.allSettled([found[0], found[2]]), [rejected, rejected]);
  assert.equal(database.asked.length, 2);
  database.answer(1, []);
  assert.equal(await found[1], undefined);
});
