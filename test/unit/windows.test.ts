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
} from "../../src/ledger/windows.ts";
import { point } from "../fixtures/naive-windows.ts";
import { share } from "../fixtures/thorough.ts";

const at = (iso: string) => Date.parse(iso);

/** The window of a grid that contains `nowMs`, which is not before the anchor. */
function windowAt(anchorMs: number, every: string, nowMs: number): Window {
  const rule = { every, align: "opening", timezone: "UTC" } as const;
  return windowAfter(rule, windowFrom(rule, anchorMs), nowMs);
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString().replace("T00:00:00.000Z", "").replace(":00.000Z", "Z");
}

// Anchors of periods, and the first points of their grids (lago-api#1567, #1840, openmeter#2166).
for (const [every, grid] of [
  ["P1M", "2026-01-31 2026-02-28 2026-03-31 2026-04-30 2026-05-31 2026-06-30"],
  ["P1M", "2026-01-29 2026-02-28 2026-03-29 2026-04-29"],
  ["P1M", "2028-01-30 2028-02-29 2028-03-30"],
  // Over the end of a year (autumn#2115).
  ["P1M", "2026-11-30 2026-12-30 2027-01-30 2027-02-28 2027-03-30"],
  ["P1Y", "2024-02-29 2025-02-28 2026-02-28 2027-02-28 2028-02-29 2029-02-28"],
  ["P4Y", "2096-02-29 2100-02-28 2104-02-29"],
  ["P2M", "1999-12-31 2000-02-29 2000-04-30"],
  ["P1W", "2028-02-22 2028-02-29 2028-03-07"],
  ["PT5H", "2026-01-15T20:00Z 2026-01-16T01:00Z 2026-01-16T06:00Z"],
  // Months and days both count from the anchor.
  ["P1M15D", "2026-01-31 2026-03-15 2026-04-30 2026-06-14 2026-07-30"],
] as const) {
  test(`windows of ${every}: ${grid}`, () => {
    const points = grid.split(" ");
    const anchorMs = at(points[0] ?? "");
    for (const [n, from] of points.slice(0, -1).entries()) {
      for (const nowMs of [at(from), at(points[n + 1] ?? "") - 1])
        assert.deepEqual(said(windowAt(anchorMs, every, nowMs)), points.slice(n, n + 2));
    }
  });
}

test("finds the present window at once after any number of missed windows", () => {
  assert.deepEqual(said(windowAt(at("2026-01-31"), "P1M", at("2031-02-28"))), ["2031-02-28", "2031-03-31"]);
  assert.deepEqual(said(windowAt(at("2026-01-15"), "PT1S", at("2076-01-15T00:00:00.500Z"))), [
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
    [`PT${"0".repeat(40)}1S`, /a period has at most 40 characters/],
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
