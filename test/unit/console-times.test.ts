/** Times of the console's pages. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  dateOf,
  dayAfter,
  daysBetween,
  exactTime,
  monthBefore,
  passedShare,
  relativeTime,
  setTimezone,
  timezone,
} from "../../src/web/shared/times.ts";

const now = Date.parse("2027-03-10T12:00:00Z");
const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

test("relative times round towards now and change units where people do", () => {
  const table: [number, string][] = [
    [0, "now"],
    [9_000, "now"],
    [-30_000, "30 seconds ago"],
    [-100_000, "1 minute ago"],
    [-90 * minute, "90 minutes ago"],
    [-119 * minute, "119 minutes ago"],
    [2 * hour, "in 2 hours"],
    [-47.9 * hour, "47 hours ago"],
    [-2 * day, "2 days ago"],
    [59 * day, "in 59 days"],
    [-60 * day, "2 months ago"],
    [800 * day, "in 2 years"],
  ];
  for (const [distance, text] of table) assert.equal(relativeTime(now + distance, now), text);
});

test("exact times are in UTC, and days in the zone of the session", () => {
  assert.equal(exactTime(now + 7_999), "2027-03-10 12:00:07 UTC");
  assert.equal(dateOf(now), "2027-03-10");
  setTimezone("Pacific/Auckland");
  assert.equal(dateOf(now), "2027-03-11");
  assert.equal(timezone(), "Pacific/Auckland");
  setTimezone("UTC");
  assert.equal(dayAfter("2027-03-10", -10), "2027-02-28");
  assert.deepEqual(daysBetween("2027-02-27", "2027-03-02"), ["2027-02-27", "2027-02-28", "2027-03-01"]);
  assert.deepEqual(daysBetween("2027-03-02", "2027-03-02"), []);
  assert.equal(daysBetween("1900-01-01", "2900-01-01").length, 1000);
});

test("the share of a window that has passed is from 0 to 1", () => {
  assert.equal(passedShare(now, now + 4 * hour, now + hour), 0.25);
  assert.equal(passedShare(now, now + hour, now - hour), 0);
  assert.equal(passedShare(now, now + hour, now + 2 * hour), 1);
  assert.equal(passedShare(now, now, now), 1);
});

test("the month before is a whole calendar month, also before January and after a long month", (t) => {
  const table: [at: string, timezone: string, from: string, to: string][] = [
    ["2027-03-31T23:59:59Z", "UTC", "2027-02-01", "2027-03-01"],
    ["2027-03-31T23:59:59Z", "Europe/Berlin", "2027-03-01", "2027-04-01"],
    ["2027-01-01T00:00:00Z", "UTC", "2026-12-01", "2027-01-01"],
    ["2027-01-01T00:00:00Z", "America/New_York", "2026-11-01", "2026-12-01"],
    ["2028-03-01T12:00:00Z", "UTC", "2028-02-01", "2028-03-01"],
  ];
  for (const [at, timezone, from, to] of table) {
    t.mock.timers.enable({ apis: ["Date"], now: Date.parse(at) });
    setTimezone(timezone);
    assert.deepEqual(monthBefore(), { from, to }, at);
    t.mock.timers.reset();
  }
  setTimezone("UTC");
});
