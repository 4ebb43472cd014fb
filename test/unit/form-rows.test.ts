/** A list in a form is rows: their inputs, what is wrong with them, and their JSON. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { draftPlan } from "../../src/actions/drafts.ts";
import { changeKey } from "../../src/actions/keys.ts";
import { inputsOf, jsonIn } from "../../src/web/shared/action-fields.ts";
import { initialOf, rowsIn, shownOf, valueProblemOf, withLabels } from "../../src/web/shared/form-fields.ts";

const { spending_caps } = draftPlan.input;

/** As the API shows caps. */
const shown = { align: "opening", models: ["*"], timezone: "UTC" };
const before = {
  spending_caps: [
    { ...shown, name: "PT5H", credits: 300, every: "PT5H" },
    { ...shown, name: "dear", credits: 1000, every: "P2W", models: ["big-*", "huge"] },
    { ...shown, name: "P1W", credits: 2000, every: "P1W", align: "calendar" },
  ],
};
const name = (part: string) => `spending_caps.${part}`;

function formOf(caps: object) {
  const [field] = inputsOf({ spending_caps }, caps);
  assert.ok(field?.row !== undefined && field.kind === "rows");
  return { field, row: field.row, rows: rowsIn(field.initial ?? "") };
}

test("caps of a plan are rows, whose JSON is as short as their text", () => {
  const { field, rows } = formOf(before);
  assert.equal(field.max, 4);
  assert.deepEqual(
    rows.map((row) => [row[name("credits")], row[name("every")], row[name("name")], row[name("models")]]),
    [
      ["300", "PT5H", "", ""],
      ["1000", "P2W", "dear", "big-*, huge"],
      ["2000", "P1W", "", ""],
    ],
  );
  assert.deepEqual(jsonIn({ spending_caps }, { spending_caps: JSON.stringify(rows) }), {
    spending_caps: [
      { credits: 300, every: "PT5H" },
      { credits: 1000, every: "P2W", name: "dear", models: ["big-*", "huge"] },
      { credits: 2000, every: "P1W", align: "calendar" },
    ],
  });
  assert.deepEqual(jsonIn({ spending_caps }, initialOf([formOf({}).field])), { spending_caps: [] });
});

test("a row offers its period if that is unusual, and windows of the calendar for a day, week or month", () => {
  const { row, rows } = formOf(before);
  const [short = {}, unusual = {}, week = {}] = rows;
  const every = row(unusual).find((input) => input.name === name("every"));
  assert.deepEqual(every?.options?.at(-1), ["P2W", "P2W"]);
  const inputsIn = (values: typeof short) => shownOf(row(values), values).map((input) => input.name);
  assert.equal(inputsIn(short).includes(name("align")), false);
  assert.equal(inputsIn(week).includes(name("align")), true);
});

test("a new row has a period, and must have credits", () => {
  const { field, row } = formOf(before);
  const added = initialOf(row({}));
  assert.equal(added[name("every")], "PT5H");
  const problemWith = (credits: string) =>
    valueProblemOf(field, JSON.stringify([{ ...added, [name("credits")]: credits }]));
  assert.equal(problemWith(""), "Credits is missing.");
  assert.equal(problemWith("0"), "Enter a whole number of at least 1.");
  assert.equal(problemWith("5"), null);
});

test("several caps of a key are rows, which offer no period without a budget", () => {
  const { spending_caps } = changeKey.input;
  const [budget] = inputsOf({ spending_caps }, {});
  assert.equal(budget?.name, name("credits"), "one cap has inputs of its own");
  const [field] = inputsOf({ spending_caps }, before);
  const every = field?.row?.({}).find((input) => input.name === name("every"));
  assert.deepEqual(
    every?.options?.map(([value]) => value),
    ["PT5H", "P1D", "P1W", "P1M"],
  );
  assert.equal(field && valueProblemOf(field, JSON.stringify([{}])), "Budget in credits is missing.");
});

test("a message about an item has the label of its input", () => {
  const { field } = formOf(before);
  assert.equal(withLabels("spending_caps[2].credits must be whole", [field]), "Credits must be whole");
  assert.equal(withLabels("spending_caps must be short", [field]), "Spending caps must be short");
});
