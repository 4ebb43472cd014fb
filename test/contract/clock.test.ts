/** The trusted clock on both stores, with clocks that a test sets. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { balanceOf } from "../../src/ledger/balance.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const plans = plansOf(planOf("small", 10, 5));
const halfYear = 182 * day;

/** The clocks of one machine, and a database. */
class Machine implements AsyncDisposable {
  readonly #cells = new BigInt64Array(new SharedArrayBuffer(24));
  readonly #opened: Store[] = [];
  readonly #connect: (machine: Machine) => Promise<Store>;
  readonly sql: (text: string) => Promise<unknown[]>;
  readonly #remove: () => Promise<void>;

  constructor(
    connect: (machine: Machine) => Promise<Store>,
    sql: (text: string) => Promise<unknown[]>,
    remove: () => Promise<void>,
  ) {
    this.#connect = connect;
    this.sql = sql;
    this.#remove = remove;
    this.step(start);
    this.pass(hour);
    this.step(-hour);
  }

  get cells() {
    return this.#cells;
  }

  clockMs = () => Number(this.#cells[0]);
  monotonicMs = () => Number(this.#cells[1]);
  sleptMs = () => Number(this.#cells[2]);

  /** Sets the clock forward or back. */
  step(ms: number): void {
    Atomics.add(this.#cells, 0, BigInt(ms));
  }

  /** Lets time pass. */
  pass(ms: number): void {
    this.step(ms);
    Atomics.add(this.#cells, 1, BigInt(ms));
  }

  sleep(ms: number): void {
    this.step(ms);
    Atomics.add(this.#cells, 2, BigInt(ms));
  }

  async open(): Promise<Store> {
    const store = await this.#connect(this);
    this.#opened.push(store);
    return store;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const store of this.#opened) await store.close();
    await this.#remove();
  }
}

async function sqliteMachine(): Promise<Machine> {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-clock-"));
  const path = join(folder, "inkwell.db");
  return new Machine(
    ({ cells }) => openSqliteStore({ path, plans, clock: cells }),
    async (text) => {
      const db = new DatabaseSync(path);
      try {
        return db.prepare(text).all();
      } finally {
        db.close();
      }
    },
    async () => rmSync(folder, { recursive: true }),
  );
}

async function postgresMachine(): Promise<Machine> {
  const server = await postgres();
  const name = await server.create();
  return new Machine(
    (machine) => openPostgresStore({ url: server.url(name), plans, clock: machine }),
    (text) => server.sql(text, name),
    () => server.drop(name),
  );
}

async function withAda(machine: Machine): Promise<Store> {
  const store = await machine.open();
  await store.commit([{ kind: "open", account: "ada", plan: "small", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "1".repeat(64) }));
  return store;
}

/** The time of the last journal entry, since `start`. */
async function lastEntryAt(store: Store): Promise<number> {
  const last = (await store.journal("ada", { limit: 1000 })).at(-1);
  assert.ok(last !== undefined);
  return last.atMs - start;
}

/** A request that spends a credit. */
async function spend(store: Store, id: string): Promise<void> {
  const [held, settled] = await store.commit([hold(id, credits(1)), settle(id, credits(1))]);
  assert.deepEqual([held?.kind, settled?.kind], ["held", "settled"]);
}

async function baseCredits(store: Store): Promise<number> {
  const snapshot = await store.accountSnapshot("ada");
  assert.ok(snapshot !== null);
  return balanceOf(snapshot).base.micro / credits(1);
}

const machines: [string, () => Promise<Machine>, string | false][] = [
  ["SQLite", sqliteMachine, false],
  ["PostgreSQL", postgresMachine, noPostgres ?? false],
];

for (const [name, make, skip] of machines) {
  describe(name, { skip }, () => {
    for (const jump of [halfYear, -halfYear]) {
      const where = jump > 0 ? "ahead" : "back";

      test(`a clock that is half a year ${where} for one commit changes no window`, async () => {
        await using machine = await make();
        const store = await withAda(machine);
        await spend(store, "a");
        machine.pass(second);
        machine.step(jump);
        await spend(store, "b");
        assert.equal(await lastEntryAt(store), second);
        machine.step(-jump);
        machine.pass(second);
        await spend(store, "c");
        assert.equal(await lastEntryAt(store), 2 * second);
        assert.equal(await baseCredits(store), 7);
        const { isTrusted, distrusted } = await store.clock();
        assert.deepEqual([isTrusted, distrusted > 0], [true, true]);
      });

      test(`a clock that is half a year ${where} for minutes changes no window and ends no hold`, async () => {
        await using machine = await make();
        const store = await withAda(machine);
        const [held] = await store.commit([hold("running", credits(1), { ttlMs: hour })]);
        assert.equal(held?.kind, "held");
        machine.step(jump);
        for (let n = 0; n < 5; n += 1) {
          machine.pass(minute);
          await spend(store, `a${n}`);
        }
        assert.equal(await lastEntryAt(store), 5 * minute);
        assert.deepEqual(await store.overdueHolds(null, 10), []);
        assert.equal(store.nowMs(), start + 5 * minute);
        assert.equal(await baseCredits(store), 5);
        const { isTrusted, trustedMs, clockMs } = await store.clock();
        assert.deepEqual([isTrusted, trustedMs, clockMs - trustedMs], [false, start + 5 * minute, jump]);
        const [recorded] = await machine.sql("select is_trusted from clock");
        assert.deepEqual(Object.values(recorded ?? {}).map(Number), [0]);

        machine.step(-jump);
        machine.pass(minute);
        assert.deepEqual((await store.clock()).isTrusted, true);
        await spend(store, "b");
        assert.equal(await lastEntryAt(store), 6 * minute);
      });

      test(`an operator accepts a clock that is half a year ${where}, and a record is kept`, async () => {
        await using machine = await make();
        const store = await withAda(machine);
        assert.equal(await store.acceptClock("ada"), null);
        machine.step(jump);
        machine.pass(minute);
        await spend(store, "a");
        const accepted = { number: 1, by: "ada", trustedMs: start + minute, clockMs: start + jump + minute };
        assert.deepEqual(await store.acceptClock("ada"), accepted);
        assert.equal(store.nowMs(), start + jump + minute);
        assert.equal((await store.clock()).isTrusted, true);
        assert.equal(await store.acceptClock("ada"), null);
        const [row] = await machine.sql("select * from clock_accept");
        assert.deepEqual(Object.values(row ?? {}).map(String), Object.values(accepted).map(String));
        for (const change of ["delete from clock_accept", "update clock_accept set by = 'bob'"])
          await assert.rejects(async () => await machine.sql(change), /never/);
      });

      test(`a store that starts while the clock is half a year ${where} continues at the trusted time`, async () => {
        await using machine = await make();
        const first = await withAda(machine);
        machine.pass(minute);
        await spend(first, "a");
        machine.step(jump);
        await first.clock();
        const [recorded] = await machine.sql("select is_trusted from clock");
        assert.deepEqual(Object.values(recorded ?? {}).map(Number), [0]);
        const second = await machine.open();
        assert.ok(Math.abs(second.nowMs() - start - minute) <= 1000, `${second.nowMs() - start}`);
        assert.equal((await second.clock()).isTrusted, false);
        await spend(second, "b");
        assert.equal(await baseCredits(second), 8);
        await first.close();
        await second.close();
        const third = await machine.open();
        assert.equal((await third.clock()).isTrusted, false);
        machine.step(-jump);
        assert.equal((await third.clock()).isTrusted, true);
      });
    }

    for (const follows of ["look", "commit"] as const) {
      test(`another store follows an acceptance at its next ${follows}`, async () => {
        await using machine = await make();
        const first = await withAda(machine);
        const other = await machine.open();
        machine.step(halfYear);
        machine.pass(second);
        assert.deepEqual([(await first.clock()).isTrusted, (await other.clock()).isTrusted], [false, false]);
        await first.acceptClock("ada");
        machine.pass(second);
        await spend(first, "a");
        if (follows === "look") assert.equal((await other.clock()).isTrusted, true);
        await spend(other, "b");
        assert.equal(other.nowMs(), start + halfYear + 2 * second);
        assert.equal(await lastEntryAt(other), halfYear + 2 * second);
        // Its records are taken again.
        machine.pass(minute);
        await other.clock();
        await spend(other, "c");
        const [row] = await machine.sql("select trusted_ms from clock");
        assert.deepEqual(Object.values(row ?? {}).map(Number), [start + halfYear + minute + 2 * second]);
      });
    }

    test("a night of sleep needs no operator", async () => {
      await using machine = await make();
      const store = await withAda(machine);
      machine.pass(minute);
      await store.clock();
      machine.sleep(8 * hour);
      assert.equal((await store.clock()).isTrusted, true);
      await spend(store, "a");
      assert.equal(await lastEntryAt(store), 8 * hour + minute);
    });

    test("a start that finds the ledger ahead of the clock continues at the ledger's time", async () => {
      await using machine = await make();
      const before = await withAda(machine);
      machine.pass(minute);
      await spend(before, "a");
      await before.close();
      // Another start of the machine, with a clock that is a day behind.
      await machine.sql("update clock set boot_id = 'before'");
      machine.step(-day);
      const store = await machine.open();
      assert.equal(store.nowMs(), start + minute);
      machine.pass(second);
      await spend(store, "b");
      assert.equal(await lastEntryAt(store), minute + second);
      machine.step(day);
      assert.equal((await store.clock()).isTrusted, true);
    });

    if (name === "SQLite") {
      test("a store that only reads writes nothing if the clock agrees", async () => {
        await using machine = await make();
        await withAda(machine);
        const record = async () => await machine.sql("select * from clock");
        const before = await record();
        machine.pass(second);
        const reader = await machine.open();
        assert.equal((await reader.clock()).isTrusted, true);
        assert.deepEqual(await record(), before);
      });
      return;
    }

    const node = "insert into node values ('a', '0', 0, 0, '{}')";

    test("a node that starts just after a step waits for the record of a living node", async () => {
      await using machine = await make();
      const living = await withAda(machine);
      await machine.sql(node);
      machine.step(halfYear);
      machine.pass(second);
      const text = `select count(*) as n from pg_stat_activity where datname = current_database()
        and query like '%exists (select from node)%' and pid <> pg_backend_pid()`;
      const starting = machine.open();
      await until("the starting node has looked for the first time", async () => {
        const [row] = await machine.sql(text);
        return Number(Object.values(row ?? {})[0]) === 1;
      });
      await living.clock();
      const passedMs = startOwnTime();
      const started = await starting;
      assert.ok(passedMs() < 3000, "it continues as soon as there is a record");
      assert.equal((await started.clock()).isTrusted, false);
      assert.equal(started.nowMs(), start + second);
    });

    test("a node that starts after all others have died believes the clock", async () => {
      await using machine = await make();
      await (await withAda(machine)).close();
      await machine.sql(node);
      machine.pass(day);
      const started = await machine.open();
      assert.equal((await started.clock()).isTrusted, true);
      assert.equal(started.nowMs(), start + day);
    });
  });
}
