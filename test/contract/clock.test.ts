/** The trusted clock on both stores, with clocks that a test sets. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { balanceOf } from "../../src/ledger/balance.ts";
import { startClockWatch } from "../../src/store/clock-watch.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { patientSettings } from "../fixtures/patience.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
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
    (machine) =>
      openPostgresStore({ url: server.url(name), plans, clock: machine, settings: patientSettings }),
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
  const outcomes = await store.commit([hold(id, credits(1)), settle(id, credits(1))]);
  const kinds = outcomes.map(({ kind }) => kind);
  assert.deepEqual(kinds, ["held", "settled"], JSON.stringify(outcomes));
}

const node = "insert into node values ('a', '0', 0, 0, '{}')";

/** As if the machine had started again since the last record. */
const otherBoot = "update clock set boot_id = 'before'";

/**
 * The living node records its clock once the starting node has looked at it for the first time.
 */
async function recordUntilSeen(machine: Machine, living: Store): Promise<void> {
  const text = `select count(*) as n from pg_stat_activity where datname = current_database()
    and query like '%exists (select from node)%' and pid <> pg_backend_pid()`;
  await until("the starting node has looked for the first time", async () => {
    const [row] = await machine.sql(text);
    return Number(Object.values(row ?? {})[0]) === 1;
  });
  machine.pass(1);
  await living.clock();
}

async function trustIn(machine: Machine): Promise<unknown> {
  const [row] = await machine.sql("select trust from clock");
  return Object.values(row ?? {})[0];
}

async function overdue(store: Store): Promise<number> {
  return (await store.overdueHolds(store.times().nowMs, { limit: 10 })).length;
}

async function baseCredits(store: Store): Promise<number> {
  const snapshot = await store.accountSnapshot("ada");
  assert.ok(snapshot !== null);
  return balanceOf(snapshot).base.remainingMicro / credits(1);
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
        assert.equal(await overdue(store), 0);
        assert.equal(store.times().atMs, start + 5 * minute);
        assert.equal(await baseCredits(store), 5);
        const { isTrusted, ledgerMs, clockMs } = await store.clock();
        assert.deepEqual([isTrusted, ledgerMs, clockMs - ledgerMs], [false, start + 5 * minute, jump]);
        assert.equal(await trustIn(machine), "stepped");

        machine.step(-jump);
        machine.pass(minute);
        assert.deepEqual((await store.clock()).isTrusted, true);
        await spend(store, "b");
        assert.equal(await lastEntryAt(store), 6 * minute);
      });

      test(`an operator accepts a clock that is half a year ${where}, and a record is kept`, async () => {
        await using machine = await make();
        const store = await withAda(machine);
        assert.deepEqual(await store.acceptClock("ada", machine.clockMs()), { kind: "trusted" });
        machine.step(jump);
        machine.pass(minute);
        await spend(store, "a");
        const [hold0] = await store.commit([hold("running", credits(1), { ttlMs: hour })]);
        assert.equal(hold0?.kind, "held");
        const clockMs = start + jump + minute;
        for (const wrong of [minute + 1, -minute - 1])
          assert.deepEqual(await store.acceptClock("ada", clockMs + wrong), { kind: "differs", clockMs });
        assert.equal((await store.clock()).isTrusted, false);
        const accepted = { number: 1, by: "ada", ledgerMs: start + minute, clockMs };
        assert.deepEqual(await store.acceptClock("ada", clockMs + minute), { kind: "accepted", accepted });
        const ledgerMs = Math.max(clockMs, start + minute);
        const { atMs, nowMs } = store.times();
        assert.deepEqual([atMs, nowMs], [ledgerMs, ledgerMs]);
        assert.equal((await store.clock()).isTrusted, true);
        assert.deepEqual(await store.acceptClock("ada", clockMs), { kind: "trusted" });
        assert.equal(await overdue(store), jump > 0 ? 1 : 0);
        machine.pass(10 * minute);
        await spend(store, "b");
        const paceMs = jump > 0 ? 10 * minute : 5 * minute;
        assert.equal(await lastEntryAt(store), ledgerMs + paceMs - start);
        assert.equal(store.times().nowMs, ledgerMs + 10 * minute);
        machine.pass(50 * minute);
        assert.equal(await overdue(store), jump > 0 ? 0 : 1);
        const [row] = await machine.sql("select * from clock_accept");
        assert.deepEqual(Object.values(row ?? {}).map(String), Object.values(accepted).map(String));
        for (const change of ["delete from clock_accept", "update clock_accept set by = 'bob'"])
          await assert.rejects(async () => await machine.sql(change), /never/);
      });

      test(`a store that starts while the clock is half a year ${where} beside another continues at the trusted time`, async () => {
        await using machine = await make();
        const first = await withAda(machine);
        machine.pass(minute);
        await spend(first, "a");
        machine.step(jump);
        await first.clock();
        assert.equal(await trustIn(machine), "stepped");
        if (name === "PostgreSQL") await machine.sql(node);
        const starting = machine.open();
        if (name === "PostgreSQL") await recordUntilSeen(machine, first);
        const second = await starting;
        assert.ok(Math.abs(second.times().atMs - start - minute) <= 1000, `${second.times().atMs - start}`);
        assert.equal((await second.clock()).isTrusted, false);
        await spend(second, "b");
        assert.equal(await baseCredits(second), 8);
        machine.step(-jump);
        assert.deepEqual([(await first.clock()).isTrusted, (await second.clock()).isTrusted], [true, true]);
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
        await first.acceptClock("ada", machine.clockMs());
        machine.pass(second);
        await spend(first, "a");
        if (follows === "look") assert.equal((await other.clock()).isTrusted, true);
        await spend(other, "b");
        assert.equal(other.times().atMs, start + halfYear + 2 * second);
        assert.equal(await lastEntryAt(other), halfYear + 2 * second);
        // Its records are taken again.
        machine.pass(minute);
        await other.clock();
        await spend(other, "c");
        const [row] = await machine.sql("select clock_ms from clock");
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

    test("a start that finds the ledger ahead of the clock continues at half pace", async () => {
      await using machine = await make();
      const before = await withAda(machine);
      machine.pass(minute);
      await spend(before, "a");
      await before.close();
      await machine.sql(otherBoot);
      machine.step(-day);
      const store = await machine.open();
      const beganMs = store.times().atMs;
      assert.ok(beganMs >= start + minute && beganMs <= start + 2 * minute, `${beganMs - start}`);
      assert.equal((await store.clock()).isTrusted, true);
      machine.pass(hour);
      await spend(store, "b");
      assert.equal(await lastEntryAt(store), beganMs - start + hour / 2);
      machine.pass(3 * day);
      await spend(store, "c");
      assert.equal(await lastEntryAt(store), machine.clockMs() - start);
    });

    test("a start with a clock 41 days ahead closes nothing, and refuses what has ended by it", async () => {
      await using machine = await make();
      const before = await withAda(machine);
      await addKey(before, keyOf("short", "ada", { hash: "2".repeat(64), expiresMs: start + 30 * day }));
      machine.pass(minute);
      await before.clock();
      await before.close();
      await machine.sql(otherBoot);
      machine.step(41 * day);
      const store = await machine.open();
      assert.equal((await store.clock()).isTrusted, false);
      await spend(store, "a");
      assert.equal(await lastEntryAt(store), minute);
      assert.equal(store.times().latestMs, machine.clockMs());
      const [refused] = await store.commit([hold("b", credits(1), { key: "short" })]);
      assert.ok(refused?.kind === "refused" && refused.reason === "key_expired", JSON.stringify(refused));
      assert.equal(await trustIn(machine), "ahead");
      machine.step(-41 * day);
      machine.pass(second);
      const [held] = await store.commit([hold("c", credits(1), { key: "short" })]);
      assert.equal(held?.kind, "held");
    });

    if (name === "SQLite") {
      test("a store that is idle records the clock once a minute", async () => {
        await using machine = await make();
        const store = await withAda(machine);
        await store.clock();
        const record = async () => await machine.sql("select * from clock");
        const before = await record();
        machine.pass(59 * second);
        assert.equal((await store.clock()).isTrusted, true);
        assert.deepEqual(await record(), before);
        machine.pass(second);
        await store.clock();
        assert.notDeepEqual(await record(), before);
      });

      test("after a write that failed, each look writes, until one succeeds", async () => {
        await using machine = await make();
        const store = await withAda(machine);
        await machine.sql(
          "create trigger full before update on clock begin select raise(abort, 'the disk is full'); end",
        );
        machine.pass(10 * second);
        let failures = 0;
        const jobs = testJobs(() => {
          failures += 1;
        });
        const onChange = () => assert.fail("the clock is right");
        const watch = await startClockWatch(store, { jobs, everyMs: 10, onChange });
        assert.ok(watch.isWritable(), "nothing was written since");
        await assert.rejects(spend(store, "a"), /the disk is full/);
        await until("a look fails", () => failures > 0 && !watch.isWritable());
        await machine.sql("drop trigger full");
        await until("a look succeeds", () => watch.isWritable());
        await spend(store, "a");
        await jobs.stop();
      });
      return;
    }

    test("a node that starts just after a step waits for the record of a living node", () =>
      unlessStalled(async () => {
        await using machine = await make();
        const living = await withAda(machine);
        await machine.sql(node);
        machine.step(halfYear);
        machine.pass(second);
        const starting = machine.open();
        await recordUntilSeen(machine, living);
        const passedMs = startOwnTime();
        const started = await starting;
        assert.ok(passedMs() < 3000, "it continues as soon as there is a record");
        assert.equal((await started.clock()).isTrusted, false);
        assert.equal(started.times().atMs, start + second + 1);
      }));

    test("a node that starts after all others have died believes the clock", async () => {
      await using machine = await make();
      await (await withAda(machine)).close();
      await machine.sql(node);
      machine.pass(day);
      const started = await machine.open();
      assert.equal((await started.clock()).isTrusted, true);
      assert.equal(started.times().atMs, start + day);
    });
  });
}
