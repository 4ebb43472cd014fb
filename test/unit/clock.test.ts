/** The clock of a process: tables of readings. All short histories: clock-histories.test.ts. */
import assert from "node:assert/strict";
import { uptime } from "node:os";
import { describe, test } from "node:test";
import { clockCells, LedgerClock } from "../../src/ledger/clock.ts";
import { acceptanceOf, machineClock } from "../../src/store/clock.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";

const booted = 3 * hour;

/** A process that has begun at `start`. */
function begun(recorded = { elapsedMs: 0, ledgerMs: 0 }): LedgerClock {
  const clock = new LedgerClock(clockCells());
  clock.begin(start, booted, recorded);
  clock.answer(clock.ask(booted), start);
  return clock;
}

/** Each row: uptime and the clock since the begin, and the times since `start`. */
type Row = [uptime: number, clock: number, elapsed: number, ledger: number];

const tables: Readonly<Record<string, readonly Row[]>> = {
  "a clock that is right": [
    [0, 0, 0, 0],
    [minute, minute, minute, minute],
    [400 * day, 400 * day, 400 * day, 400 * day],
  ],
  "set back by an hour, and forward": [
    [minute, minute, minute, minute],
    [minute, minute - hour, minute, minute],
    [2 * minute, 2 * minute - hour, 2 * minute, minute],
    [hour + minute, minute, hour + minute, minute],
    [hour + 2 * minute, 2 * minute, hour + 2 * minute, 2 * minute],
    [hour + 3 * minute, hour + 3 * minute, 2 * hour + 3 * minute, hour + 3 * minute],
  ],
  "a day beyond uptime, and a millisecond": [
    [minute, day + minute, day + minute, day + minute],
    [2 * minute, day + 2 * minute + 1, day + 2 * minute, day + 2 * minute],
    [10 * day, 20 * day, 11 * day, 11 * day],
    [10 * day + minute, 11 * day + minute, 11 * day + minute, 11 * day + minute],
  ],
  "a leap for one reading": [
    [minute, minute, minute, minute],
    [minute, 182 * day, minute, minute],
    [2 * minute, 2 * minute, 2 * minute, 2 * minute],
  ],
};

for (const [name, rows] of Object.entries(tables)) {
  test(name, () => {
    const clock = begun();
    for (const [uptimeMs, clockMs, elapsedMs, ledgerMs] of rows) {
      const { nowMs, atMs } = clock.answer(clock.ask(booted + uptimeMs), start + clockMs);
      assert.deepEqual([nowMs - start, atMs - start], [elapsedMs, ledgerMs], `${uptimeMs} ${clockMs}`);
      assert.deepEqual(clock.timesAt(booted + uptimeMs), { nowMs, atMs });
    }
  });
}

test("answers that arrive in another order raise no shift", () => {
  const clock = begun();
  const asked = [10, 20, 30].map((ms) => ({ ms, asked: clock.ask(booted + ms) }));
  for (const { ms, asked: each } of asked.toReversed())
    assert.deepEqual(clock.answer(each, start + ms, booted + 40), { nowMs: start + ms, atMs: start + 30 });
  const last = clock.answer(clock.ask(booted + minute), start + minute);
  assert.deepEqual(last, { nowMs: start + minute, atMs: start + minute });
});

test("a slow answer moves the time without a reading only if it must", () => {
  const clock = begun();
  clock.answer(clock.ask(booted + minute), start + minute + 3 * second, booted + minute + 8 * second);
  assert.equal(clock.timesAt(booted + 2 * minute).atMs, start + 2 * minute);
  clock.answer(clock.ask(booted + 3 * minute), start + 3 * minute + 9 * second, booted + 3 * minute + second);
  assert.equal(clock.timesAt(booted + 4 * minute).atMs, start + 4 * minute + 8 * second);
});

test("another process has recorded later times", () => {
  const clock = begun({ elapsedMs: start + 2 * hour, ledgerMs: start + hour });
  const at = (ms: number) => clock.answer(clock.ask(booted + ms), start + ms);
  assert.deepEqual(at(minute), { nowMs: start + 2 * hour + minute, atMs: start + hour });
  clock.learn({ elapsedMs: start + 5 * hour, ledgerMs: start + 3 * hour });
  assert.deepEqual(at(2 * minute), { nowMs: start + 5 * hour, atMs: start + 3 * hour });
  assert.deepEqual(at(3 * minute), { nowMs: start + 5 * hour + minute, atMs: start + 3 * hour });
});

describe("a start", () => {
  const row = { elapsedMs: start, ledgerMs: start, acceptedMs: 0 };

  for (const aheadMs of [-day, -hour, 0, 77 * day, 3650 * day]) {
    test(`with a clock ${aheadMs / day} days ahead of the record goes on`, () => {
      assert.equal(acceptanceOf(row, start + aheadMs, null), null);
      assert.throws(() => acceptanceOf(row, start + aheadMs, "ada"), /Nothing has changed/);
    });
  }

  test("with a clock further behind is refused, unless an operator accepts it", () => {
    const clockMs = start - day - 1;
    assert.throws(() => acceptanceOf(row, clockMs, null), /more than a day before the time of the ledger/);
    assert.partialDeepStrictEqual(acceptanceOf(row, clockMs, "ada"), {
      kind: "clock",
      by: "ada",
      atMs: start,
    });
    const accepted = { ...row, acceptedMs: start };
    assert.equal(acceptanceOf(accepted, clockMs, null), null);
    assert.throws(() => acceptanceOf({ ...accepted, ledgerMs: start + 1 }, clockMs, null), /more than a day/);
  });
});

test("the uptime of the machine is that of os.uptime", () => {
  for (let n = 0; n < 3; n += 1) {
    const differenceMs = machineClock.uptimeMs() - uptime() * 1000;
    assert.ok(Math.abs(differenceMs) < 1500, `${differenceMs} ms`);
  }
});
