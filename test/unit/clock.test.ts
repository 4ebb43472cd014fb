/** The trusted clock: tables of readings, and what the ledger makes of them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type ClockPoint,
  clockAtStart,
  pointAt,
  type RecordedClock,
  type Trust,
} from "../../src/ledger/clock.ts";
import { TrustedClock } from "../../src/ledger/trusted-clock.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";

const halfYear = 182 * day;

/** Monotonic time of the first reading. */
const bootedMs = 7 * hour;

const pointOf = (ms: number): ClockPoint => ({ clockMs: ms, nowMs: ms, atMs: ms });

/** A clock whose first reading is `start`, believed. */
function clockAt(slept: { ms: number } = { ms: 0 }): TrustedClock {
  const reading = { clockMs: start, askedMs: bootedMs, answeredMs: bootedMs };
  return new TrustedClock({ trust: "trusted", point: pointOf(start) }, reading, () => slept.ms);
}

/** The clock and monotonic time since the start, and the expected trusted time since the start. */
type Row = [clock: number, monotonic: number, trusted: number, isTrusted: boolean];

function readAll(clock: TrustedClock, rows: readonly Row[]): void {
  for (const [n, [clockMs, monotonicMs, trustedMs, isTrusted]] of rows.entries()) {
    const atMs = bootedMs + monotonicMs;
    const read = clock.read({ clockMs: start + clockMs, askedMs: atMs, answeredMs: atMs });
    assert.deepEqual([read - start, clock.isTrusted], [trustedMs, isTrusted], `reading ${n + 1}`);
  }
}

const tables: Record<string, Row[]> = {
  "follows a clock that agrees": [
    [0, 0, 0, true],
    [1, 1, 1, true],
    [minute, minute, minute, true],
    [day, day, day, true],
  ],
  "believes a step of 5 s, forward": [[second + 5000, second, second + 5000, true]],
  "believes a step of 5 s, back": [[second - 5000, second, second - 5000, true]],
  "does not believe a step of more than 5 s, forward": [[second + 5001, second, second, false]],
  "does not believe a step of more than 5 s, back": [[second - 5001, second, second, false]],
  "ignores one reading half a year ahead": [
    [second, second, second, true],
    [halfYear, 2 * second, 2 * second, false],
    [3 * second, 3 * second, 3 * second, true],
  ],
  "ignores one reading half a year back": [
    [second, second, second, true],
    [-halfYear, 2 * second, 2 * second, false],
    [3 * second, 3 * second, 3 * second, true],
  ],
  "ignores readings that are wrong for minutes": [
    [halfYear, second, second, false],
    [halfYear + 5 * minute, second + 5 * minute, second + 5 * minute, false],
    [10 * minute, 10 * minute, 10 * minute, true],
  ],
  "ignores a clock that is wrong for a week, and trusts it again within 5 s of the trusted time": [
    [halfYear, minute, minute, false],
    [halfYear + 7 * day, 7 * day, 7 * day, false],
    [7 * day + minute + 4000, 7 * day + minute, 7 * day + minute + 4000, true],
  ],
  "continues at the trusted time if the clock jumps from one wrong time to another": [
    [halfYear, second, second, false],
    [-day, 2 * second, 2 * second, false],
    [day, 3 * second, 3 * second, false],
    [4 * second, 4 * second, 4 * second, true],
  ],
  "does not believe several small steps that add up to more than 5 s within an hour": [
    [minute + 4000, minute, minute + 4000, true],
    [2 * minute + 8000, 2 * minute, 2 * minute + 4000, false],
    [3 * minute + 4500, 3 * minute, 3 * minute + 4500, true],
  ],
  "does not believe a clock that runs at twice its speed": [
    [2000, 1000, 2000, true],
    [10_000, 5000, 10_000, true],
    [12_000, 6000, 11_000, false],
    [120_000, minute, minute + 5000, false],
  ],
};

for (const [name, rows] of Object.entries(tables)) test(name, () => readAll(clockAt(), rows));

test("follows a clock that is slewed by 500 ppm for a year", () => {
  for (const direction of [1, -1]) {
    const clock = clockAt();
    for (let ms = 0; ms < 365 * day; ms += 10 * minute) {
      const clockMs = ms + direction * Math.floor(ms / 2000);
      readAll(clock, [[clockMs, ms, clockMs, true]]);
    }
  }
});

test("follows such a clock if it is read once a week", () => {
  for (const direction of [1, -1]) {
    const clock = clockAt();
    for (let ms = 0; ms < 365 * day; ms += 7 * day) {
      const clockMs = ms + direction * Math.floor(ms / 2000);
      readAll(clock, [[clockMs, ms, clockMs, true]]);
    }
  }
});

test("believes the clock after a night of sleep in which monotonic time stopped", () => {
  const slept = { ms: 40 };
  const clock = clockAt(slept);
  readAll(clock, [[minute, minute, minute, true]]);
  slept.ms += 8 * hour;
  readAll(clock, [[8 * hour + 2 * minute, 2 * minute, 8 * hour + 2 * minute, true]]);
});

test("does not believe half a year after a night of sleep", () => {
  const slept = { ms: 40 };
  const clock = clockAt(slept);
  slept.ms += 8 * hour;
  readAll(clock, [
    [halfYear, minute, 8 * hour + minute, false],
    [8 * hour + 2 * minute, 2 * minute, 8 * hour + 2 * minute, true],
  ]);
});

test("counts each night once", () => {
  const slept = { ms: 0 };
  const clock = clockAt(slept);
  for (let nights = 1; nights <= 30; nights += 1) {
    slept.ms += 8 * hour;
    const [clockMs, atMs] = [nights * day, nights * 16 * hour];
    readAll(clock, [[clockMs, atMs, clockMs, true]]);
  }
  readAll(clock, [[30 * day + 8 * hour, 30 * 16 * hour, 30 * day, false]]);
});

test("counts two short sleeps within an hour once each", () => {
  const slept = { ms: 0 };
  const clock = clockAt(slept);
  slept.ms += 10 * minute;
  readAll(clock, [[11 * minute, minute, 11 * minute, true]]);
  slept.ms += 10 * minute;
  readAll(clock, [[22 * minute, 2 * minute, 22 * minute, true]]);
});

test("does not take the rounding of the uptime for sleep", () => {
  const slept = { ms: 0 };
  const clock = clockAt(slept);
  slept.ms += 999;
  readAll(clock, [[second + 5500, second, second, false]]);
});

test("does not believe a step of 20 s, or of an hour, after months of doubt", () => {
  for (const aheadMs of [20 * second, hour, -20 * second]) {
    const clock = clockAt();
    for (let ms = minute; ms <= 60 * day; ms += 10 * minute) readAll(clock, [[ms + aheadMs, ms, ms, false]]);
  }
});

test("counts a nap that was followed as a reading no second time when a reading is doubted", () => {
  const slept = { ms: 0 };
  const clock = clockAt(slept);
  slept.ms += 3 * second;
  readAll(clock, [
    [minute + 3 * second, minute, minute + 3 * second, true],
    [halfYear, 2 * minute, 2 * minute + 3 * second, false],
  ]);
});

test("does not believe a step of more than 5 s after a month", () => {
  const clock = clockAt();
  for (let ms = 0; ms <= 30 * day; ms += 10 * minute) readAll(clock, [[ms, ms, ms, true]]);
  readAll(clock, [[30 * day + 6000, 30 * day, 30 * day, false]]);
});

describe("a clock on the network", () => {
  const asked = (clockMs: number, askedMs: number, answeredMs: number) => ({
    clockMs: start + clockMs,
    askedMs: bootedMs + askedMs,
    answeredMs: bootedMs + answeredMs,
  });

  test("is believed if it was read at any moment before the answer", () => {
    const clock = clockAt();
    clock.read(asked(9000, 1000, 9000));
    assert.equal(clock.isTrusted, true);
    clock.read(asked(15_000, 15_000, 23_000));
    assert.equal(clock.isTrusted, true);
    clock.read(asked(40_000, 24_000, 34_000));
    assert.equal(clock.isTrusted, false);
  });

  test("does not move trusted time with every slow answer", () => {
    const clock = clockAt();
    for (let n = 1; n <= 100; n += 1) clock.read(asked(n * second, n * second, n * second + 900));
    assert.equal(clock.clockMs(bootedMs + 101 * second), start + 101 * second);
  });

  test("is believed between limits that follow monotonic time", () => {
    const clock = clockAt();
    assert.deepEqual(clock.believed(bootedMs + minute), {
      fromMs: start + minute - 5000,
      toMs: start + minute + 5000,
    });
  });
});

describe("an acceptance", () => {
  const readingAt = (clockMs: number, ms: number) => ({
    clockMs: start + clockMs,
    askedMs: bootedMs + ms,
    answeredMs: bootedMs + ms,
  });

  test("makes the present reading the trusted time, forward and back", () => {
    for (const jump of [halfYear, -halfYear]) {
      const clock = clockAt();
      readAll(clock, [[jump, minute, minute, false]]);
      clock.accept(pointOf(start + jump), readingAt(jump, minute));
      readAll(clock, [
        [jump + minute, 2 * minute, jump + minute, true],
        [3 * minute, 3 * minute, jump + 2 * minute, false],
      ]);
    }
  });

  test("by another process is followed", () => {
    const clock = clockAt();
    readAll(clock, [[halfYear, minute, minute, false]]);
    clock.follow(
      pointOf(start + halfYear + 3000),
      bootedMs + minute,
      readingAt(halfYear + 5000, minute + 5000),
    );
    assert.equal(clock.isTrusted, true);
    readAll(clock, [[halfYear + hour, hour + minute, halfYear + hour, true]]);
  });

  test("by another process is followed after a long wait", () => {
    const clock = clockAt();
    readAll(clock, [[halfYear, minute, minute, false]]);
    clock.follow(pointOf(start + halfYear), bootedMs + minute, readingAt(halfYear + 19_000, minute + 20_000));
    assert.deepEqual([clock.isTrusted, clock.clockMs(bootedMs)], [true, start + halfYear - minute - 1000]);
  });

  test("by another process does not make another wrong reading believed", () => {
    const clock = clockAt();
    readAll(clock, [[-day, minute, minute, false]]);
    clock.follow(pointOf(start - day), bootedMs + minute, readingAt(halfYear, minute + 5000));
    assert.equal(clock.isTrusted, false);
    readAll(clock, [[-day + 10_000, minute + 15_000, -day + 10_000, true]]);
  });
});

describe("a start", () => {
  const recorded = (trust: Trust = "trusted", change: Partial<ClockPoint> = {}): RecordedClock => ({
    trust,
    point: { ...pointOf(start), ...change },
  });
  /** Ledger time was set ahead by 30 days, and elapsed time by 40. */
  const ahead = { atMs: start + 30 * day, nowMs: start + 40 * day };

  /** The record, the clock, the known time since the record; then what the process begins with. */
  type Start = [RecordedClock, number, number | null, Trust, ClockPoint];
  const at = (clock: number, ledger = clock, elapsed = ledger): ClockPoint => ({
    clockMs: start + clock,
    nowMs: start + elapsed,
    atMs: start + ledger,
  });
  const starts: Record<string, Start> = {
    "believes any clock of a new ledger": [null, start + halfYear, null, "trusted", at(halfYear)],
    "believes a clock that agrees": [recorded(), start + minute, minute, "trusted", at(minute)],
    "does not believe a jump since the record": [recorded(), start + day, minute, "stepped", at(minute)],
    "does not believe a jump back either": [recorded(), start - day, minute, "stepped", at(minute)],
    "goes on not to believe a clock that was ahead at another start": [
      recorded("ahead"),
      start + halfYear,
      minute,
      "ahead",
      at(minute),
    ],
    "believes a slewed clock after a month": [
      recorded(),
      start + 30 * day + 20 * minute,
      30 * day,
      "trusted",
      at(30 * day + 20 * minute),
    ],
    "believes a clock that is 40 days ahead": [recorded(), start + 40 * day, null, "trusted", at(40 * day)],
    "does not believe a clock that is further ahead": [
      recorded(),
      start + 40 * day + 1,
      null,
      "ahead",
      at(0),
    ],
    "compares the clock with ledger time": [
      recorded("trusted", ahead),
      start + 70 * day,
      null,
      "trusted",
      at(70 * day, 70 * day, 110 * day),
    ],
    "believes a clock that another process did not, if it is not too far ahead": [
      recorded("stepped"),
      start + day,
      null,
      "trusted",
      at(day),
    ],
    "sets only trusted time back": [recorded(), start - day, null, "trusted", at(-day, 0)],
    "keeps ledger time if the clock is behind it": [
      recorded("trusted", ahead),
      start + 10 * day,
      null,
      "trusted",
      at(10 * day, 30 * day, 50 * day),
    ],
    "has caught up while it was off": [
      recorded("trusted", ahead),
      start + 61 * day,
      null,
      "trusted",
      at(61 * day, 61 * day, 101 * day),
    ],
  };
  for (const [name, [record, clockMs, elapsedMs, trust, point]] of Object.entries(starts)) {
    test(name, () => assert.deepEqual(clockAtStart(record, clockMs, elapsedMs), { trust, point }));
  }

  test("that does not believe the clock refuses what has ended by it, until it agrees", () => {
    const reading = { clockMs: start + halfYear, askedMs: bootedMs, answeredMs: bootedMs };
    const clock = new TrustedClock(clockAtStart(recorded(), reading.clockMs, null), reading, () => 0);
    const times = (ms: number) => clock.times(clock.clockMs(bootedMs + ms));
    assert.deepEqual(times(second), {
      nowMs: start + second,
      atMs: start + second,
      latestMs: start + halfYear + second,
    });
    readAll(clock, [[halfYear + minute, minute, minute, false]]);
    assert.equal(times(minute).latestMs, start + halfYear + minute);
    readAll(clock, [[2 * minute, 2 * minute, 2 * minute, true]]);
    assert.equal(times(2 * minute).latestMs, start + 2 * minute);
  });

  test("that does not believe a clock far ahead does not move for one that is behind", () => {
    const reading = { clockMs: start + halfYear, askedMs: bootedMs, answeredMs: bootedMs };
    const clock = new TrustedClock(clockAtStart(recorded(), reading.clockMs, null), reading, () => 0);
    readAll(clock, [[-day, minute, minute, false]]);
    assert.equal(clock.times(start + minute).latestMs, start + minute);
  });
});

describe("the times after the clock was set back", () => {
  const clock = clockAt();
  const point = { ...pointOf(start - 10 * day), nowMs: start, atMs: start };
  clock.accept(point, { clockMs: point.clockMs, askedMs: bootedMs, answeredMs: bootedMs });
  const rows: [passed: number, elapsed: number, ledger: number][] = [
    [-second, 0, 0],
    [0, 0, 0],
    [1, 1, 0],
    [day, day, day / 2],
    [20 * day, 20 * day, 10 * day],
    [20 * day + 2, 20 * day + 2, 10 * day + 2],
    [30 * day, 30 * day, 20 * day],
  ];
  for (const [passedMs, elapsedMs, ledgerMs] of rows) {
    test(`${passedMs / day} days`, () => {
      const { nowMs, atMs, latestMs } = clock.times(point.clockMs + passedMs);
      assert.deepEqual([nowMs - start, atMs - start], [elapsedMs, ledgerMs]);
      assert.equal(latestMs, atMs);
    });
  }

  test("do not depend on the point from which they are computed, but for rounding", () => {
    const passed = rows.map(([passedMs]) => passedMs).filter((passedMs) => passedMs >= 0);
    for (const first of passed) {
      for (const second of passed.filter((passedMs) => passedMs >= first)) {
        const between = pointAt(pointAt(point, point.clockMs + first), point.clockMs + second);
        const direct = pointAt(point, point.clockMs + second);
        assert.equal(between.nowMs, direct.nowMs);
        assert.ok(Math.abs(between.atMs - direct.atMs) <= 1, `${between.atMs - direct.atMs}`);
      }
    }
  });
});
