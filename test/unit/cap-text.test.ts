/** Caps as text, for the command line and forms: what is written is read again. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { capText } from "../../src/actions/cap-text.ts";

/** As the API shows a cap. */
function shown(name: string, credits: number, every: string, more: object = {}): object {
  return { name, credits, every, align: "opening", timezone: "UTC", models: ["*"], ...more };
}

const tokyo = { align: "calendar", timezone: "Asia/Tokyo" };

test("what is written is read again", () => {
  assert.equal(
    capText.write([
      shown("PT5H", 300, "PT5H"),
      shown("P1W", 1000, "P1W", tokyo),
      shown("dear", 0, "P1D", { models: ["big-*", "huge"] }),
    ]),
    "300/PT5H, 1000/P1W/calendar/Asia/Tokyo, dear 0/P1D of big-* huge",
  );
  assert.deepEqual(capText.read(" 300/PT5H ,1000/P1W/calendar/Asia/Tokyo,  dear   0/P1D of big-*  huge"), [
    { credits: 300, every: "PT5H" },
    { credits: 1000, every: "P1W", ...tokyo },
    { credits: 0, every: "P1D", name: "dear", models: ["big-*", "huge"] },
  ]);
  assert.deepEqual(capText.read("5/P1D/calendar"), [{ credits: 5, every: "P1D", align: "calendar" }]);
});

test("none is an empty list", () => {
  assert.deepEqual(capText.read(" none "), []);
  assert.equal(capText.write([]), "");
});

test("what is no list of caps is not read", () => {
  const wrong = [
    // A variable that is not set removes no caps.
    "",
    "  ",
    "300",
    "300/",
    "/P1D",
    "-1/P1D",
    "1.5/P1D",
    "300/P1D/opening",
    "300/P1D of",
    "a b 3/P1D",
    "3/P1D,",
  ];
  for (const text of [...wrong, "300/PT5H 5/P1D", "1/P1D; 2/P1W"])
    assert.equal(capText.read(text), null, text);
});

test("a list is plain if the inputs of one cap say it all", () => {
  const plain = [[], [shown("P1D", 5, "P1D")], [shown("P1W", 5, "P1W", tokyo)], [shown("P3D", 5, "P3D")]];
  for (const list of plain) assert.equal(capText.isPlain(list), true, JSON.stringify(list));
  const others = [
    [shown("dear", 5, "P1D")],
    [shown("P1D", 5, "P1D", { models: ["big"] })],
    // A form offers the calendar for a day, a week and a month.
    [shown("P3M", 5, "P3M", tokyo)],
    [shown("P1D", 5, "P1D"), shown("P1W", 5, "P1W")],
  ];
  for (const list of others) assert.equal(capText.isPlain(list), false, JSON.stringify(list));
});
