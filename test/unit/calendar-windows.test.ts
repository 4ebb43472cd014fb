/**
 * Windows of the calendar in more than 300 time zones over 50 years, compared with a table that
 * Python computed (tools/make-calendar-windows.py).
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import { windowAfter, windowFrom, windowOfNewRule } from "../../src/ledger/windows.ts";

/** The window of a period that contains the instant. */
interface Row {
  timezone: string;
  every: string;
  atMs: number;
  fromMs: number;
  untilMs: number;
  /** End of the window that follows. */
  nextUntilMs: number;
}

interface Table {
  tzdata: string;
  rows: readonly Row[];
}

function read(): Table {
  const text = readFileSync(new URL("../fixtures/calendar-windows.txt", import.meta.url), "utf8");
  const [heading = "", ...lines] = text.trimEnd().split("\n");
  const rows: Row[] = [];
  let timezone = "";
  for (const line of lines) {
    const [at, ...distances] = line.split(" ");
    if (at === undefined || distances.length === 0) {
      timezone = line;
      continue;
    }
    const seconds = Number.parseInt(at, 36);
    const msOf = (n: number) => (seconds + Number.parseInt(distances[n] ?? "", 36)) * 1000;
    for (const [n, every] of ["P1D", "P1W", "P1M"].entries()) {
      const [fromMs, untilMs, nextUntilMs] = [msOf(3 * n), msOf(3 * n + 1), msOf(3 * n + 2)];
      rows.push({ timezone, every, atMs: seconds * 1000, fromMs, untilMs, nextUntilMs });
    }
  }
  return { tzdata: heading.replace("tzdata ", ""), rows };
}

/** Version of the time zones in Node, such as 2026c. */
const own = process.versions.tz ?? "unknown";

/** Returns the windows that ended before either version, if they differ. */
function comparable({ tzdata, rows }: Table): readonly Row[] {
  if (own === tzdata) return rows;
  const years = [own, tzdata].map((version) => Number.parseInt(version, 10) || 0);
  return rows.filter(({ nextUntilMs }) => nextUntilMs < Date.UTC(Math.min(...years), 0));
}

describe("windows of the calendar in all time zones", () => {
  let table: Table;
  let rows: readonly Row[];
  before(() => {
    table = read();
    rows = comparable(table);
  });

  /** Compares the text of a window of each row. */
  const assertAll = (found: (row: Row) => string, expected: (row: Row) => string) => {
    const wrong = rows
      .filter((row) => found(row) !== expected(row))
      .map((row) => {
        const { timezone, every, atMs } = row;
        const place = `${every} in ${timezone} at ${new Date(atMs).toISOString()}`;
        return `${place}: expected ${expected(row)}, found ${found(row)}`;
      });
    const versions = `tzdata ${table.tzdata} in the table, ${own} in Node`;
    const advice = own === table.tzdata ? "" : ". Write the table with the version of Node";
    const summary = `${wrong.length} of ${rows.length} differ (${versions}${advice})`;
    assert.equal(wrong.length, 0, `${summary}:\n${wrong.join("\n")}`);
  };

  const text = ({ fromMs, untilMs }: Pick<Row, "fromMs" | "untilMs">) =>
    [fromMs, untilMs].map((ms) => new Date(ms).toISOString()).join("..");
  const ruleOf = ({ every, timezone }: Row) => ({ every, timezone, align: "calendar" }) as const;
  /** A window that has ended at this moment. */
  const endedAt = (untilMs: number) => ({ fromMs: untilMs - 1, untilMs, anchorMs: untilMs - 1 });

  test("the table has more than 200 zones and 50 years", () => {
    assert.ok(new Set(table.rows.map(({ timezone }) => timezone)).size > 200);
    const years = new Set(table.rows.map(({ atMs }) => new Date(atMs).getUTCFullYear()));
    for (let year = 1990; year < 2040; year += 1) assert.ok(years.has(year), String(year));
    assert.ok(rows.length > 3000, `${rows.length} windows can be compared`);
  });

  test("a window that follows missed windows is the one of the calendar", () => {
    const longBefore = 40 * 86_400_000;
    assertAll((row) => text(windowAfter(ruleOf(row), endedAt(row.fromMs - longBefore), row.atMs)), text);
  });

  test("a window that follows another one ends at the next boundary", () => {
    assertAll((row) => text(windowAfter(ruleOf(row), endedAt(row.fromMs), row.atMs)), text);
  });

  test("a window that ends has a successor of the same calendar", () => {
    const next = ({ untilMs, nextUntilMs }: Row) => text({ fromMs: untilMs, untilMs: nextUntilMs });
    assertAll((row) => text(windowAfter(ruleOf(row), { ...row, anchorMs: row.fromMs }, row.untilMs)), next);
  });

  test("a first window ends at the next boundary", () => {
    assertAll(
      (row) => text(windowFrom(ruleOf(row), row.atMs)),
      ({ atMs, untilMs }) => text({ fromMs: atMs, untilMs }),
    );
  });

  test("a window of a new rule ends with the next one if it begins in the second half", () => {
    assertAll(
      (row) => text(windowOfNewRule(ruleOf(row), row.atMs)),
      ({ atMs, fromMs, untilMs, nextUntilMs }) => {
        const isLate = atMs > fromMs && atMs - fromMs >= untilMs - atMs;
        return text({ fromMs: atMs, untilMs: isLate ? nextUntilMs : untilMs });
      },
    );
  });
});
