/** Lines of drafts: pasted into a file, its reader makes the drafted plan and price of them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { planLines, priceLines, readPlanLines } from "../../src/config/drafts.ts";
import { OperatorError } from "../../src/errors.ts";
import type { Plan } from "../../src/ledger/plan.ts";
import { load } from "../fixtures/configuration.ts";
import { planOf } from "../fixtures/ledger-rows.ts";

const usual = { most: 10, life: null };
const model = '{ engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } }';
const models = `models:\n  small: ${model}\n  big: ${model}\n`;
const options = { modelIds: ["small", "big"], timezone: "UTC" };

/** No variable of the environment is meant. */
const variable = "$".concat("{small}");

const full: Plan = planOf("full", 500, 50, {
  base: { credits: 500, every: "P1M", align: "calendar" },
  timezone: "Europe/Berlin",
  limits: { requestsPerMinute: 5, concurrent: 2 },
  caps: [
    { name: "PT5H", credits: 30, every: "PT5H", align: "opening", models: ["*"] },
    { name: "dear", credits: 6, every: "P1W", align: "calendar", models: ["b*", variable] },
  ],
  models: ["small", "big"],
});

test("the lines of a plan are short, and leave out what is usual", () => {
  const plain = planOf("plain", 500, 0, {
    caps: [{ name: "P1W", credits: 30, every: "P1W", align: "opening", models: ["*"] }],
  });
  assert.equal(
    planLines(plain, usual, "UTC"),
    `  plain:
    base: { credits: 500, every: P1D }
    overage: { credits: 0, every: P1M }
    caps:
      - { credits: 30, every: P1W }
    models: [ "*" ]
`,
  );
  assert.equal(priceLines({ prompt: 3, completion: 4 }), "    price: { prompt: 3, completion: 4 }\n");
});

test("pasted into a file, the lines of a plan give the drafted plan with its rights of people", () => {
  const lines = planLines(full, { most: 2, life: "P1Y" }, "UTC");
  assert.deepEqual(readPlanLines(lines, options), full);
  const config = load(`plans:\n${lines}${models}`);
  assert.deepEqual(config.plans.get("full"), full);
  assert.deepEqual(config.personKeys.get("full"), { most: 2, life: "P1Y" });
});

test("pasted below a model, the line of its price is the drafted price", () => {
  const price = { prompt: 30, cachedPrompt: 3, completion: 90 };
  const lines = `models:\n  small:\n    engine: upstream\n    url: "http://a:1/v1"\n    model: m\n`;
  assert.deepEqual(load(lines + priceLines(price)).models[0]?.price, price);
});

test("a draft that the reader refuses gets its sentence", () => {
  const wrong = planLines({ ...full, models: ["smal"] }, usual, "UTC");
  assert.throws(
    () => readPlanLines(wrong, options),
    (error) =>
      error instanceof OperatorError && /there is no model "smal"; did you mean small\?/.test(error.message),
  );
});
