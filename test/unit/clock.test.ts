/** The trusted clock: tables of readings, and what the ledger makes of them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Boot, clockAtStart, type RecordedClock, TrustedClock } from "../../src/ledger/clock.ts";
import { day, hour, minute, second, start } from "../fixtures/times.ts";

const halfYear = 182 * day;

/** Monotonic time of the first reading. */
const bootedMs = 7 * hour;

/** A clock whose first reading is `start`, believed. */
function clockAt(slept: { ms: number } = { ms: 0 }): TrustedClock {
  const reading = { clockMs: start, askedMs: bootedMs, answeredMs: bootedMs };
  return new TrustedClock({ isTrusted: true, trustedMs: start }, reading, () => slept.ms);
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
    assert.equal(clock.nowMs(bootedMs + 101 * second), start + 101 * second);
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
      clock.accept(readingAt(jump, minute));
      readAll(clock, [
        [jump + minute, 2 * minute, jump + minute, true],
        [3 * minute, 3 * minute, jump + 2 * minute, false],
      ]);
    }
  });

  test("by another process is followed", () => {
    const clock = clockAt();
    readAll(clock, [[halfYear, minute, minute, false]]);
    clock.follow(start + halfYear + 3000, bootedMs + minute, readingAt(halfYear + 5000, minute + 5000));
    assert.equal(clock.isTrusted, true);
    readAll(clock, [[halfYear + hour, hour + minute, halfYear + hour, true]]);
  });

  test("by another process is followed after a long wait", () => {
    const clock = clockAt();
    readAll(clock, [[halfYear, minute, minute, false]]);
    clock.follow(start + halfYear, bootedMs + minute, readingAt(halfYear + 19_000, minute + 20_000));
    assert.deepEqual([clock.isTrusted, clock.nowMs(bootedMs)], [true, start + halfYear - minute - 1000]);
  });

  test("by another process does not make another wrong reading believed", () => {
    const clock = clockAt();
    readAll(clock, [[-day, minute, minute, false]]);
    clock.follow(start - day, bootedMs + minute, readingAt(halfYear, minute + 5000));
    assert.equal(clock.isTrusted, false);
    readAll(clock, [[-day + 10_000, minute + 15_000, -day + 10_000, true]]);
  });
});

describe("a start", () => {
  const boot: Boot = { id: "one", ms: hour };
  const row = (change: Partial<RecordedClock> = {}): RecordedClock => ({
    trustedMs: start,
    clockMs: start,
    isTrusted: true,
    boot,
    ...change,
  });
  const later = (ms: number, id = "one"): Boot => ({ id, ms: hour + ms });
  const wrong = row({ isTrusted: false, clockMs: start + halfYear });
  const wrongBack = row({ isTrusted: false, clockMs: start - halfYear });

  const starts: [string, RecordedClock, number, Boot | null, number, boolean][] = [
    [
      "believes the clock of an empty ledger",
      row({ trustedMs: 0, clockMs: 0, boot: null }),
      start,
      null,
      start,
      true,
    ],
    ["believes a clock that agrees", row(), start + minute, later(minute), start + minute, true],
    [
      "does not believe a jump since the last record",
      row(),
      start + halfYear,
      later(minute),
      start + minute,
      false,
    ],
    ["does not believe a jump back either", row(), start - day, later(minute), start + minute, false],
    [
      "believes a slewed clock after a month",
      row(),
      start + 30 * day + 20 * minute,
      later(30 * day),
      start + 30 * day + 20 * minute,
      true,
    ],
    [
      "believes any later time after the machine was off",
      row(),
      start + halfYear,
      later(minute, "two"),
      start + halfYear,
      true,
    ],
    [
      "believes any later time after the uptime began again",
      row(),
      start + halfYear,
      { id: "one", ms: 5 },
      start + halfYear,
      true,
    ],
    [
      "continues at the ledger's time if the ledger is ahead",
      row(),
      start - day,
      later(minute, "two"),
      start,
      false,
    ],
    ["believes a clock that is 5 s behind the ledger", row(), start - 5000, null, start - 5000, true],
    [
      "continues at the trusted time if the clock is still wrong",
      wrong,
      start + halfYear + day,
      null,
      start + day,
      false,
    ],
    ["believes a clock that was ahead and has been set back", wrong, start + day, null, start + day, true],
    [
      "believes a clock that was behind and has been corrected",
      wrongBack,
      start + day,
      null,
      start + day,
      true,
    ],
    ["waits if the clock is still behind", wrongBack, start - halfYear + day, null, start, false],
  ];
  for (const [name, recorded, clockMs, bootNow, trustedMs, isTrusted] of starts) {
    test(name, () => {
      const { trustedMs: atMs, isTrusted: believes } = clockAtStart(recorded, clockMs, bootNow);
      assert.deepEqual([atMs - start, believes], [trustedMs - start, isTrusted]);
    });
  }

  test("that waits for the clock trusts it when it catches up", () => {
    const reading = { clockMs: start - minute, askedMs: bootedMs, answeredMs: bootedMs };
    const clock = new TrustedClock(clockAtStart(row(), start - minute, null), reading, () => 0);
    readAll(clock, [
      [-50_000, 10_000, 10_000, false],
      [35_000, 40_000, 35_000, true],
    ]);
  });
});
