/**
 * The window grid: leap days, month ends, missed windows, and that consecutive windows tile time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type Alignment,
  isOfRule,
  isSameRule,
  isTimezone,
  parsePeriod,
  type Window,
  type WindowRule,
  windowAfter,
  windowFrom,
  windowOfNewRule,
} from "../../src/ledger/windows.ts";
import { point } from "../fixtures/naive-windows.ts";
import { share } from "../fixtures/thorough.ts";

const at = (iso: string) => Date.parse(iso);

/** The window of a grid that contains `nowMs`, which is not before the anchor. */
function windowAt(anchorMs: number, every: string, nowMs: number): Window {
  const rule = { every, align: "opening", timezone: "UTC" } as const;
  return windowAfter(rule, windowFrom(rule, anchorMs), nowMs);
}

/** The window as two ISO strings, without the zero time of day. */
function windowOf(anchor: string, every: string, now: string): [starts: string, ends: string] {
  const { fromMs, untilMs } = windowAt(at(anchor), every, at(now));
  return [isoOf(fromMs), isoOf(untilMs)];
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString().replace("T00:00:00.000Z", "").replace(":00.000Z", "Z");
}

/** The first `count` points of a grid. */
function gridOf(anchor: string, every: string, count: number): string[] {
  const points: string[] = [];
  let now = at(anchor);
  for (let n = 0; n < count; n += 1) {
    const { fromMs, untilMs } = windowAt(at(anchor), every, now);
    points.push(isoOf(fromMs));
    now = untilMs;
  }
  return points;
}

/** `points`: the first points of the grid, separated by spaces. */
function assertGrid(anchor: string, every: string, points: string): void {
  const expected = points.split(" ");
  assert.deepEqual(gridOf(anchor, every, expected.length), expected);
}

test("a window starts at its anchor and ends when the next one starts", () => {
  assert.deepEqual(windowOf("2026-01-15", "P1D", "2026-01-15"), ["2026-01-15", "2026-01-16"]);
  assert.deepEqual(windowOf("2026-01-15", "P1D", "2026-01-15T23:59:59.999Z"), ["2026-01-15", "2026-01-16"]);
  assert.deepEqual(windowOf("2026-01-15", "P1D", "2026-01-16"), ["2026-01-16", "2026-01-17"]);
});

test("monthly windows that start on the 31st return to the 31st after February (lago-api#1567)", () => {
  assertGrid("2026-01-31", "P1M", "2026-01-31 2026-02-28 2026-03-31 2026-04-30 2026-05-31 2026-06-30");
});

test("monthly windows from January 29 or 30 include February and March (openmeter#2166, lago-api#1840)", () => {
  assertGrid("2026-01-29", "P1M", "2026-01-29 2026-02-28 2026-03-29 2026-04-29");
  assertGrid("2026-01-30", "P1M", "2026-01-30 2026-02-28 2026-03-30 2026-04-30");
  assertGrid("2028-01-30", "P1M", "2028-01-30 2028-02-29 2028-03-30");
  assertGrid("2028-01-29", "P1M", "2028-01-29 2028-02-29 2028-03-29");
});

test("monthly windows cross the end of the year (autumn#2115)", () => {
  assertGrid("2026-11-30", "P1M", "2026-11-30 2026-12-30 2027-01-30 2027-02-28 2027-03-30");
});

test("yearly windows that start on a leap day return to it every fourth year", () => {
  assertGrid("2024-02-29", "P1Y", "2024-02-29 2025-02-28 2026-02-28 2027-02-28 2028-02-29 2029-02-28");
});

test("the year 2100 has no leap day and the year 2000 had one", () => {
  assert.deepEqual(windowOf("2096-02-29", "P1Y", "2100-03-01"), ["2100-02-28", "2101-02-28"]);
  assert.deepEqual(windowOf("1999-12-31", "P2M", "2000-03-01"), ["2000-02-29", "2000-04-30"]);
});

test("daily windows include the leap day", () => {
  assert.deepEqual(windowOf("2028-02-27", "P1D", "2028-02-29T12:00:00Z"), ["2028-02-29", "2028-03-01"]);
  assert.deepEqual(windowOf("2028-02-22", "P1W", "2028-03-01"), ["2028-02-29", "2028-03-07"]);
});

test("windows of five hours cross midnight, counted from the anchor", () => {
  assert.deepEqual(windowOf("2026-01-15", "PT5H", "2026-01-16T00:30:00Z"), [
    "2026-01-15T20:00Z",
    "2026-01-16T01:00Z",
  ]);
});

test("windows keep the time of day of the anchor in any server time zone (litellm#34896)", () => {
  assert.deepEqual(windowOf("2026-03-08T22:15:00Z", "P1M", "2026-11-08T22:14:59Z"), [
    "2026-10-08T22:15Z",
    "2026-11-08T22:15Z",
  ]);
});

test("a period of months and days counts both from the anchor", () => {
  assertGrid("2026-01-31", "P1M15D", "2026-01-31 2026-03-15 2026-04-30 2026-06-14 2026-07-30");
});

test("finds the present window at once after any number of missed windows", () => {
  assert.deepEqual(windowOf("2026-01-31", "P1M", "2031-02-28"), ["2031-02-28", "2031-03-31"]);
  assert.deepEqual(windowOf("2026-01-15", "PT1S", "2076-01-15T00:00:00.500Z"), [
    "2076-01-15",
    "2076-01-15T00:00:01.000Z",
  ]);
});

test("the error for an invalid period quotes its text", () => {
  for (const [text, says] of [
    ["", /"" is not an ISO 8601 period/],
    ["daily", /"daily" is not an ISO 8601 period/],
    ["1D", /"1D" is not/],
    ["P", /"P" is not/],
    ["P1D1M", /"P1D1M" is not/],
    ["P0D", /"P0D" is not positive/],
    ["PT0S", /"PT0S" is not positive/],
    ["-P1D", /"-P1D" is not positive/],
    ["PT0.5S", /"PT0.5S" is shorter than a second/],
    ["P101Y", /"P101Y" is longer than a hundred years/],
    ["P40000D", /"P40000D" is longer than a hundred years/],
  ] as const) {
    assert.throws(() => parsePeriod(text), { name: "RangeError", message: says }, text);
  }
});

test("parses the same text to the same period again", () => {
  assert.equal(parsePeriod("P1M15D"), parsePeriod("P1M15D"));
});

const periodArb = fc.constantFrom("PT5H", "P1D", "P1W", "P1M", "P1Y", "P1M15D");
const anchorArb = fc.oneof(
  fc.integer({ min: at("1999-01-01"), max: at("2101-01-01") }),
  fc.constantFrom("2024-02-29", "2026-01-29", "2026-01-30", "2026-01-31", "2027-12-31", "2096-02-29").map(at),
);
const threeYears = 1096 * 86_400_000;

test("property: exactly one window contains any moment, and it starts on the grid", () => {
  fc.assert(
    fc.property(anchorArb, periodArb, fc.nat({ max: threeYears }), (anchorMs, every, laterMs) => {
      const nowMs = anchorMs + laterMs;
      const { fromMs, untilMs } = windowAt(anchorMs, every, nowMs);
      assert.ok(fromMs <= nowMs && nowMs < untilMs);
      // The same window on the grid of `Date`, walked to from the anchor.
      let n = 0;
      while (point(anchorMs, every, n + 1) <= nowMs) n += 1;
      assert.deepEqual([fromMs, untilMs], [point(anchorMs, every, n), point(anchorMs, every, n + 1)]);
    }),
    { numRuns: share(500) },
  );
});

test("property: consecutive windows tile time without gap or overlap", () => {
  fc.assert(
    fc.property(anchorArb, periodArb, fc.nat({ max: 4 * threeYears }), (anchorMs, every, laterMs) => {
      const window = windowAt(anchorMs, every, anchorMs + laterMs);
      const next = windowAt(anchorMs, every, window.untilMs);
      assert.equal(next.fromMs, window.untilMs);
      assert.deepEqual(windowAt(anchorMs, every, window.untilMs - 1), window);
      assert.deepEqual(windowAt(anchorMs, every, window.fromMs), window);
    }),
    { numRuns: share(500) },
  );
});

// Windows of the calendar

function calendar(every: string, timezone: string): WindowRule {
  return { every, align: "calendar", timezone };
}

/** A window as two moments. */
function said({ fromMs, untilMs }: Window): [string, string] {
  return [isoOf(fromMs), isoOf(untilMs)];
}

test("windows of the calendar end at local midnight, on Monday and on the 1st", () => {
  const noon = at("2026-01-15T12:00Z");
  for (const [every, timezone, until] of [
    ["P1D", "UTC", "2026-01-16"],
    ["P1W", "UTC", "2026-01-19"],
    ["P1M", "UTC", "2026-02-01"],
    ["P1D", "Europe/Berlin", "2026-01-15T23:00Z"],
    ["P1W", "Europe/Berlin", "2026-01-18T23:00Z"],
    ["P1M", "Europe/Berlin", "2026-01-31T23:00Z"],
    ["P1D", "Asia/Kolkata", "2026-01-15T18:30Z"],
    ["P1D", "Pacific/Auckland", "2026-01-16T11:00Z"],
    ["P1M", "America/New_York", "2026-02-01T05:00Z"],
  ] as const) {
    const rule = calendar(every, timezone);
    assert.deepEqual(said(windowFrom(rule, noon)), ["2026-01-15T12:00Z", until], `${every} ${timezone}`);
  }
});

test("days of 23 and 25 hours are whole windows", () => {
  const rule = calendar("P1D", "Europe/Berlin");
  const spring = windowFrom(rule, at("2026-03-28T23:00Z"));
  assert.deepEqual(said(spring), ["2026-03-28T23:00Z", "2026-03-29T22:00Z"]);
  const autumn = windowFrom(rule, at("2026-10-24T22:00Z"));
  assert.deepEqual(said(autumn), ["2026-10-24T22:00Z", "2026-10-25T23:00Z"]);
  const following = windowAfter(rule, autumn, autumn.untilMs);
  assert.deepEqual(said(following), ["2026-10-25T23:00Z", "2026-10-26T23:00Z"]);
});

test("a day without midnight begins with its first moment", () => {
  // In Cairo, 24 April 2026 begins at 01:00.
  const rule = calendar("P1D", "Africa/Cairo");
  const before = windowFrom(rule, at("2026-04-23T12:00Z"));
  assert.deepEqual(said(before), ["2026-04-23T12:00Z", "2026-04-23T22:00Z"]);
  assert.deepEqual(said(windowAfter(rule, before, before.untilMs)), [
    "2026-04-23T22:00Z",
    "2026-04-24T21:00Z",
  ]);
});

test("a first window ends at the next boundary, and one of a new rule at the second from a second half", () => {
  for (const [every, from, first, ofNewRule] of [
    ["P1D", "2026-01-15", "2026-01-16", "2026-01-16"],
    ["P1D", "2026-01-15T11:59:59.999Z", "2026-01-16", "2026-01-16"],
    ["P1D", "2026-01-15T12:00Z", "2026-01-16", "2026-01-17"],
    ["P1D", "2026-01-15T23:50Z", "2026-01-16", "2026-01-17"],
    ["P1D", "2026-01-15T23:59:59.999Z", "2026-01-16", "2026-01-17"],
    ["P1W", "2026-01-14", "2026-01-19", "2026-01-19"],
    ["P1W", "2026-01-16", "2026-01-19", "2026-01-26"],
    ["P1M", "2026-01-16", "2026-02-01", "2026-02-01"],
    ["P1M", "2026-01-17", "2026-02-01", "2026-03-01"],
    ["P1M", "2026-01-31", "2026-02-01", "2026-03-01"],
    ["P1M", "2026-02-15", "2026-03-01", "2026-04-01"],
  ] as const) {
    const rule = calendar(every, "UTC");
    const place = `${every} ${from}`;
    assert.equal(isoOf(windowFrom(rule, at(from)).untilMs), first, place);
    assert.equal(isoOf(windowOfNewRule(rule, at(from)).untilMs), ofNewRule, place);
  }
  const opening = { every: "P1D", align: "opening", timezone: "UTC" } as const;
  for (const make of [windowFrom, windowOfNewRule])
    assert.deepEqual(said(make(opening, at("2026-01-15T23:50Z"))), [
      "2026-01-15T23:50Z",
      "2026-01-16T23:50Z",
    ]);
});

test("the rule of a window allows the second boundary only if the window follows another one", () => {
  const rule = calendar("P1M", "UTC");
  const isAllowed = (from: string, until: string, isFirst: boolean) =>
    isOfRule(rule, { fromMs: at(from), untilMs: at(until), anchorMs: at(from) }, { isFirst });
  for (const [from, until, first, following] of [
    ["2026-01-20", "2026-02-01", true, true],
    ["2026-01-20", "2026-03-01", false, true],
    ["2026-01-10", "2026-03-01", false, false],
    ["2026-01-20", "2026-04-01", false, false],
    ["2026-01-20", "2026-02-10", false, false],
    ["2026-01-20", "2026-01-20", false, false],
    // By other rules of its zone, midnight was an hour later or earlier.
    ["2026-01-31T22:30Z", "2026-01-31T23:00Z", true, true],
    ["2026-02-01T00:30Z", "2026-02-01T01:00Z", true, true],
  ] as const) {
    const found = [isAllowed(from, until, true), isAllowed(from, until, false)];
    assert.deepEqual(found, [first, following], `${from}..${until}`);
  }
});

test("missed windows of the calendar are skipped in one step", () => {
  const rule = calendar("P1M", "Europe/Berlin");
  const last = windowFrom(rule, at("2026-01-20"));
  assert.deepEqual(said(windowAfter(rule, last, last.untilMs)), ["2026-01-31T23:00Z", "2026-02-28T23:00Z"]);
  assert.deepEqual(said(windowAfter(rule, last, at("2027-07-15"))), [
    "2027-06-30T22:00Z",
    "2027-07-31T22:00Z",
  ]);
});

test("rules are the same if they make the same windows", () => {
  const rule = (every: string, align: Alignment, timezone: string) => ({ every, align, timezone });
  for (const [isSame, one, other] of [
    [true, rule("P1W", "opening", "UTC"), rule("P7D", "opening", "Asia/Tokyo")],
    [true, rule("P1Y", "opening", "UTC"), rule("P12M", "opening", "UTC")],
    [false, rule("P1M", "opening", "UTC"), rule("P30D", "opening", "UTC")],
    [false, rule("P1D", "opening", "UTC"), rule("P1D", "calendar", "UTC")],
    [true, rule("P1D", "calendar", "UTC"), rule("P1D", "calendar", "UTC")],
    [false, rule("P1D", "calendar", "UTC"), rule("P1D", "calendar", "Asia/Tokyo")],
  ] as const) {
    assert.equal(isSameRule(one, other), isSame, `${JSON.stringify([one, other])}`);
  }
});

test("a time zone has a name", () => {
  for (const name of ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"])
    assert.ok(isTimezone(name), name);
  for (const name of ["", "+01:00", "Europe/Bonn", "2026-01-15T00:00Z", "Z[UTC]"])
    assert.ok(!isTimezone(name), name);
});

test("property: windows of the calendar that follow one another tile time in every zone", () => {
  const zones = fc.constantFrom("UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Africa/Cairo");
  const everyArb = fc.constantFrom("P1D", "P1W", "P1M");
  fc.assert(
    fc.property(
      anchorArb,
      zones,
      everyArb,
      fc.nat({ max: threeYears }),
      fc.constantFrom(windowFrom, windowOfNewRule),
      (fromMs, timezone, every, laterMs, first) => {
        const rule = calendar(every, timezone);
        const before = first(rule, fromMs);
        const nowMs = before.untilMs + laterMs;
        const window = windowAfter(rule, before, nowMs);
        assert.ok(window.fromMs <= nowMs && nowMs < window.untilMs);
        const next = windowAfter(rule, window, window.untilMs);
        assert.equal(next.fromMs, window.untilMs);
        const begin = Temporal.Instant.fromEpochMilliseconds(next.fromMs).toZonedDateTimeISO(timezone);
        assert.equal(begin.startOfDay().epochMilliseconds, next.fromMs);
        if (every === "P1W") assert.equal(begin.dayOfWeek, 1);
        if (every === "P1M") assert.equal(begin.day, 1);
      },
    ),
    { numRuns: share(300) },
  );
});
