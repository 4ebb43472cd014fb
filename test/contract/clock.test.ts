/** The clock on both stores, with clocks that a test sets. Scenarios: test/scenarios/clock.txt. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { startClockJob } from "../../src/app/clock-job.ts";
import { balanceOf } from "../../src/ledger/balance.ts";
import type { AuditReport } from "../../src/store/audit-report.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { patientSettings } from "../fixtures/patience.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { loggerTo } from "../fixtures/service.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const plans = plansOf(planOf("small", 10, 5));

/** The clock and the uptime of a machine with a process. */
class Machine {
  readonly cells = new BigInt64Array(new SharedArrayBuffer(16));

  constructor() {
    this.step(start);
    Atomics.add(this.cells, 1, BigInt(hour));
  }

  clockMs = () => Number(this.cells[0]);
  uptimeMs = () => Number(this.cells[1]);

  /** Sets the clock forward or back. */
  step(ms: number): void {
    Atomics.add(this.cells, 0, BigInt(ms));
  }
}

/** A database, and machines on which time passes together. */
class World implements AsyncDisposable {
  readonly #machines: Machine[] = [];
  readonly #opened: Store[] = [];
  readonly #connect: (machine: Machine, clockAcceptedBy: string | null) => Promise<Store>;
  readonly sql: (text: string) => Promise<unknown[]>;
  readonly audit: (nowMs?: number) => Promise<AuditReport>;
  readonly #remove: () => Promise<void>;

  constructor(
    connect: (machine: Machine, clockAcceptedBy: string | null) => Promise<Store>,
    sql: (text: string) => Promise<unknown[]>,
    audit: (nowMs?: number) => Promise<AuditReport>,
    remove: () => Promise<void>,
  ) {
    this.#connect = connect;
    this.sql = sql;
    this.audit = audit;
    this.#remove = remove;
  }

  machine(): Machine {
    const machine = new Machine();
    this.#machines.push(machine);
    return machine;
  }

  pass(ms: number): void {
    for (const { cells } of this.#machines) {
      Atomics.add(cells, 0, BigInt(ms));
      Atomics.add(cells, 1, BigInt(ms));
    }
  }

  async open(machine: Machine, clockAcceptedBy: string | null = null): Promise<Store> {
    const store = await this.#connect(machine, clockAcceptedBy);
    this.#opened.push(store);
    return store;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const store of this.#opened) await store.close();
    await this.#remove();
  }
}

async function onSqlite(): Promise<World> {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-clock-"));
  const path = join(folder, "inkwell.db");
  return new World(
    ({ cells }, clockAcceptedBy) => openSqliteStore({ path, plans, clock: cells, clockAcceptedBy }),
    async (text) => {
      const db = new DatabaseSync(path);
      try {
        return db.prepare(text).all();
      } finally {
        db.close();
      }
    },
    async (nowMs = Date.now()) => auditFile({ file: { path, busyMs: 5000 }, nowMs }),
    async () => rmSync(folder, { recursive: true }),
  );
}

async function onPostgres(): Promise<World> {
  const server = await postgres();
  const name = await server.create();
  const opening = { url: server.url(name), plans, settings: patientSettings };
  return new World(
    (clock, clockAcceptedBy) => openPostgresStore({ ...opening, clock, clockAcceptedBy }),
    (text) => server.sql(text, name),
    (nowMs = Date.now()) => auditDatabase(server.url(name), nowMs),
    () => server.drop(name),
  );
}

async function withAda(world: World, machine: Machine): Promise<Store> {
  const store = await world.open(machine);
  await store.commit([{ kind: "open", account: "ada", plan: "small", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "1".repeat(64) }));
  return store;
}

async function outcomesOf(store: Store, ...operations: Parameters<Store["commit"]>[0]): Promise<string[]> {
  return (await store.commit(operations)).map(({ kind }) => kind);
}

/** A request that spends a credit. */
async function spend(store: Store, id: string): Promise<void> {
  assert.deepEqual(await outcomesOf(store, hold(id, credits(1)), settle(id, credits(1))), [
    "held",
    "settled",
  ]);
}

function promotion({ untilMs }: { untilMs: number }) {
  const common = { account: "ada", reason: "sorry", requestId: null, by: "test" } as const;
  return { ...common, kind: "promote", op: "g1", amountMicro: credits(5), untilMs } as const;
}

/** Ledger time and elapsed time, since `start`. */
function times(store: Store): { at: number; now: number } {
  const { atMs, nowMs } = store.times();
  return { at: atMs - start, now: nowMs - start };
}

async function windows(store: Store): Promise<number> {
  const entries = await store.journal("ada", { kinds: ["window"], limit: 1000 });
  return entries.filter(({ bucket }) => bucket === "base").length;
}

async function baseCredits(store: Store): Promise<number> {
  const snapshot = await store.accountSnapshot("ada");
  assert.ok(snapshot !== null);
  return balanceOf(snapshot).base.remainingMicro / credits(1);
}

async function overdue(store: Store): Promise<number> {
  return (await store.overdueHolds(store.times().nowMs, { limit: 10 })).length;
}

const worlds: [string, () => Promise<World>, string | false][] = [
  ["SQLite", onSqlite, false],
  ["PostgreSQL", onPostgres, noPostgres ?? false],
];

for (const [name, make, skip] of worlds) {
  describe(name, { skip }, () => {
    test("a clock that is set back by an hour while requests run", async () => {
      await using world = await make();
      const machine = world.machine();
      const store = await withAda(world, machine);
      world.pass(day - 10 * minute);
      await spend(store, "a");
      assert.equal(await windows(store), 1);
      await outcomesOf(store, hold("running", credits(1), { ttlMs: 10 * minute }));
      const before = times(store);
      machine.step(-hour);
      await store.clock();
      assert.deepEqual(times(store), before, "neither time goes back");
      world.pass(9 * minute);
      assert.equal(await overdue(store), 0);
      assert.deepEqual(await outcomesOf(store, extend("running", 1, 0, { ttlMs: 10 * minute })), [
        "extended",
      ]);
      world.pass(9 * minute);
      assert.equal(await overdue(store), 0);
      world.pass(minute);
      assert.equal(await overdue(store), 1);
      assert.deepEqual(times(store), { at: before.at, now: before.now + 19 * minute });
      assert.equal((await store.clock()).place, "behind");
      // The boundary comes an hour late, and once.
      world.pass(50 * minute);
      await spend(store, "b");
      assert.equal(await windows(store), 1);
      world.pass(2 * minute);
      await spend(store, "c");
      assert.equal(await windows(store), 2);
      machine.step(hour);
      await spend(store, "d");
      assert.deepEqual([await windows(store), await baseCredits(store)], [2, 8]);
      assert.equal((await store.clock()).place, "ok");
    });

    test("the first statement after the clock was set back finds what was overdue before", async () => {
      await using world = await make();
      const machine = world.machine();
      const store = await withAda(world, machine);
      await outcomesOf(store, hold("old", credits(1), { ttlMs: minute }));
      world.pass(2 * minute);
      await store.clock();
      machine.step(-hour);
      assert.equal((await store.accountSnapshot("ada"))?.overdue.length, 1);
      await store.clock();
      machine.step(-hour);
      assert.deepEqual(await outcomesOf(store, hold("new", credits(15))), ["held"]);
    });

    test("a clock that leaps beyond a day changes no window and ends no hold", async () => {
      await using world = await make();
      const machine = world.machine();
      const store = await withAda(world, machine);
      await outcomesOf(store, hold("running", credits(1), { ttlMs: hour }));
      for (const leap of [day + minute, 182 * day]) {
        machine.step(leap);
        world.pass(minute);
        await spend(store, `a${leap}`);
        const { place, clockMs, ledgerMs } = await store.clock();
        assert.deepEqual([place, clockMs - ledgerMs], ["ahead", leap]);
        machine.step(-leap);
      }
      world.pass(minute);
      await spend(store, "b");
      assert.deepEqual(times(store), { at: 3 * minute, now: 3 * minute });
      assert.deepEqual([await windows(store), await overdue(store)], [1, 0]);
      assert.equal((await store.clock()).place, "ok");
    });

    test("a day beyond uptime is followed, and a minute more is not until the next start", async () => {
      await using world = await make();
      const machine = world.machine();
      const store = await withAda(world, machine);
      machine.step(day);
      await spend(store, "a");
      assert.deepEqual([times(store), await windows(store)], [{ at: day, now: day }, 2]);
      machine.step(minute);
      world.pass(hour);
      await spend(store, "b");
      assert.deepEqual(times(store), { at: day + hour, now: day + hour });
      assert.equal((await store.clock()).place, "ahead");
      await store.close();
      const next = await world.open(machine);
      assert.deepEqual(times(next), { at: day + hour + minute, now: day + hour + minute });
      assert.equal((await next.clock()).place, "ok");
    });

    test("two nodes of which one is an hour behind: no time goes back or runs away", async () => {
      await using world = await make();
      const [right, late] = [world.machine(), world.machine()];
      late.step(-hour);
      const first = await withAda(world, right);
      world.pass(day - 30 * minute);
      await spend(first, "a");
      await first.clock();
      const second = await world.open(late);
      let [before, told] = [times(second), times(second)];
      for (let n = 0; n < 8; n += 1) {
        world.pass(n === 5 ? 30 * minute : 5000);
        for (const store of n % 2 === 0 ? [first, second] : [second, first]) {
          await spend(store, `${n}${store === first}`);
          await store.clock();
        }
        told = times(second);
        assert.ok(told.at >= before.at && told.now >= before.now, "no time goes back");
        before = told;
        const { at, now } = times(first);
        assert.equal(at, right.clockMs() - start);
        assert.ok(now - at <= 5000, `elapsed time runs ${now - at} ms ahead`);
        assert.ok(Math.abs(now - told.now) <= 5000, "holds last as long on both");
      }
      assert.equal(await windows(first), 2);
    });

    test("a process goes on from what another one has recorded", async () => {
      await using world = await make();
      const [paused, other] = [world.machine(), world.machine()];
      const store = await withAda(world, paused);
      world.pass(2 * day);
      // Its uptime has not counted these days.
      Atomics.sub(paused.cells, 1, BigInt(2 * day));
      await spend(store, "a");
      assert.deepEqual([times(store).at, (await store.clock()).place], [0, "ahead"]);
      await (await world.open(other)).clock();
      world.pass(minute);
      await store.clock();
      await spend(store, "b");
      assert.ok(times(store).at >= 2 * day, `${times(store).at}`);
      assert.equal(await windows(store), 2);
    });

    test("a charge counts by the version it knew, and another one may come with an earlier date", async () => {
      await using world = await make();
      const [right, late] = [world.machine(), world.machine()];
      const first = await withAda(world, right);
      // The clock is recorded each 5 s.
      world.pass(4 * second);
      await spend(first, "a");
      late.step(-hour);
      const next = await world.open(late);
      const caps = [{ name: "day", credits: 9, every: "P1D", align: "opening", models: ["*"] }] as const;
      await next.applyPlans(plansOf(planOf("small", 10, 5, { caps })), { force: false, by: "test" });
      assert.ok(times(next).at < 4 * second, "the new version is dated before the charge");
      await spend(next, "b");
      assert.deepEqual((await world.audit()).broken, []);
      const snapshot = await next.accountSnapshot("ada");
      assert.deepEqual(
        snapshot?.account.counters.map(({ name, spentMicro }) => [name, spentMicro]),
        [["day", credits(1)]],
      );
    });

    test("the audit finds no fault in what ended before the clock was set back", async () => {
      await using world = await make();
      const machine = world.machine();
      let store = await withAda(world, machine);
      const midnight = Math.ceil(start / day) * day - start;
      await store.commit([promotion({ untilMs: start + midnight + 5 * minute })]);
      await spend(store, "a");
      while (await store.sumUsage("UTC"));
      // The clock is recorded each 5 s while requests run.
      world.pass(midnight + 5 * minute - 2 * second);
      await spend(store, "b");
      world.pass(4 * second);
      assert.deepEqual(await outcomesOf(store, hold("too much", credits(100))), ["insufficient_credits"]);
      while (await store.sumUsage("UTC"));
      machine.step(-30 * minute);
      await store.close();
      store = await world.open(machine);
      for (const passed of [0, 10 * minute, 30 * minute]) {
        world.pass(passed);
        await store.clock();
        assert.deepEqual((await world.audit(machine.clockMs())).broken, []);
      }
      // With the first record, which has no day.
      assert.equal((await world.sql("select * from usage_close")).length, 3);
    });

    test("a start more than a day behind is refused until an operator accepts it", async () => {
      await using world = await make();
      const machine = world.machine();
      const before = await withAda(world, machine);
      world.pass(5 * minute);
      await spend(before, "a");
      await before.clock();
      await before.close();
      const recorded = times(before).at;
      machine.step(-day);
      await assert.rejects(world.open(machine, "command_line:ada"), /Nothing has changed/);
      await (await world.open(machine)).close();
      machine.step(-day - 1);
      await assert.rejects(
        world.open(machine),
        /The clock shows 2026-01-13.*more than a day before the time of the ledger, 2026-01-15.*clock accept/,
      );
      await (await world.open(machine, "command_line:ada")).close();
      const store = await world.open(machine);
      assert.equal(times(store).at, recorded);
      await spend(store, "b");
      assert.equal((await store.clock()).place, "behind");
      const [logged] = await store.changes({ kind: "clock", limit: 10 });
      assert.deepEqual([logged?.by, logged?.atMs], ["command_line:ada", start + recorded]);
      assert.deepEqual(JSON.parse(logged?.after ?? ""), {
        ledger_at: new Date(start + recorded).toISOString(),
        clock_at: new Date(machine.clockMs()).toISOString(),
      });
      assert.deepEqual((await world.audit()).broken, []);
    });

    test("the service logs a start far ahead of the record, and each change of the clock once", async () => {
      await using world = await make();
      const machine = world.machine();
      await (await withAda(world, machine)).close();
      world.pass(77 * day);
      const store = await world.open(machine);
      const lines: Record<string, unknown>[] = [];
      const logger = loggerTo(lines);
      const jobs = testJobs();
      const job = await startClockJob(store, { jobs, everyMs: 5, logger });
      const logged = async (...expected: RegExp[]) => {
        await until("the lines are logged", () => lines.length === expected.length);
        for (const [n, line] of lines.splice(0).entries())
          assert.match(String(line.msg), expected[n] ?? /^$/);
      };
      await logged(/more than a day after the last record/);
      assert.equal(job.state().place, "ok");
      machine.step(2 * day);
      await logged(/more than a day beyond the uptime/);
      machine.step(-3 * day);
      await logged(/stands until the clock has caught up/);
      machine.step(day);
      await logged(/follows the clock again/);
      await jobs.stop();
    });

    if (name === "PostgreSQL") return;

    test("a store that is idle records the clock once a minute", async () => {
      await using world = await make();
      const store = await withAda(world, world.machine());
      world.pass(minute);
      await store.clock();
      const record = async () => await world.sql("select * from clock");
      const before = await record();
      world.pass(59 * second);
      await store.clock();
      assert.deepEqual(await record(), before);
      world.pass(second);
      await store.clock();
      assert.notDeepEqual(await record(), before);
    });

    test("after a write that failed, each look writes, until one succeeds", async () => {
      await using world = await make();
      const store = await withAda(world, world.machine());
      await world.sql(
        "create trigger full before update on clock begin select raise(abort, 'the disk is full'); end",
      );
      let failures = 0;
      const jobs = testJobs(() => {
        failures += 1;
      });
      const logger = loggerTo([]);
      const job = await startClockJob(store, { jobs, everyMs: 10, logger });
      assert.ok(job.isWritable(), "nothing was written since");
      world.pass(10 * second);
      await assert.rejects(spend(store, "a"), /the disk is full/);
      await until("a look fails", () => failures > 0 && !job.isWritable());
      await world.sql("drop trigger full");
      await until("a look succeeds", () => job.isWritable());
      await spend(store, "a");
      await jobs.stop();
    });
  });
}
