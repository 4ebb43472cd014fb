/** Caps of plans in the configuration, and what Inkwell says about caps that may be a mistake. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { capWarnings } from "../../src/config/cap-warnings.ts";
import { load, refusesEach } from "../fixtures/configuration.ts";

const model = (price: number, more = "") =>
  `{ engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: ${price}, completion: ${price} }${more} }`;

function yamlOf(caps: string, { base = "{ credits: 1000, every: P1D }", models = "" } = {}): string {
  return `plans:
  p:
    base: ${base}
    overage: { credits: 0, every: P1M }
    caps:
${caps}
models:
${models || `  small: ${model(1000, ", dialect: vllm")}\n  big: ${model(1_000_000, ", dialect: vllm").replace("model: m", "model: n")}`}
`;
}

const warningsOf = (yaml: string) => {
  const { plans, models } = load(yaml);
  return capWarnings(plans.values(), models).map(({ plan, cap, warning }) => {
    assert.equal(plan, "p");
    assert.ok(warning.startsWith(`The cap ${cap} of the plan p `), warning);
    return warning.slice(`The cap ${cap} of the plan p `.length);
  });
};

describe("caps of a plan", () => {
  test("have the period as their name, and count all models, unless they say something else", () => {
    const { plans } = load(
      yamlOf(`      - { credits: 300, every: PT5H }
      - { name: dear, credits: 200, every: P1D, align: calendar, models: ["b*"] }`),
    );
    assert.deepEqual(plans.get("p")?.caps, [
      { name: "PT5H", credits: 300, every: "PT5H", align: "opening", models: ["*"] },
      { name: "dear", credits: 200, every: "P1D", align: "calendar", models: ["b*"] },
    ]);
  });

  refusesEach(
    {
      "day: { credits: 1, every: P1D }":
        /^inkwell\.yaml:\d: plans\.p\.caps: found a map of keys, expected a list of caps, each with credits and every$/,
      // A forbidden model leaves `models`.
      "- { credits: 0, every: P1D }":
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.credits: found 0, expected whole credits from 1 to 9000000$/,
      "- { credits: 1.5, every: P1D }":
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.credits: found 1\.5, expected whole credits from 1 to/,
      "- { credits: 1 }":
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.every is missing; expected an ISO 8601 period/,
      "- { credits: 1, every: PT5H, align: calendar }":
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.every: found PT5H, expected one of P1D, P1W, P1M for windows of the calendar$/,
      '- { name: "two words", credits: 1, every: P1D }':
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.name: found "two words", expected 1 to 40 letters/,
      // However the period is written.
      "- { name: week, credits: 1, every: P1W }\n      - { name: week, credits: 2, every: P7D, models: [small] }":
        /^inkwell\.yaml:7: plans\.p\.caps\[1\]: another cap has this name and period; give one of them another name$/,
      [["PT1H", "PT5H", "P1D", "P1W", "P1M"]
        .map((every) => `- { credits: 1, every: ${every} }`)
        .join("\n      ")]:
        /^inkwell\.yaml:10: plans\.p\.caps\[4\]: found more than 4 caps, the most of a plan$/,
      "- { credits: 1, every: P1D, timezone: UTC }":
        /^inkwell\.yaml:6: plans\.p\.caps\[0\]\.timezone is not known/,
    },
    (caps) => yamlOf(`      ${caps}`),
  );
});

describe("a cap of a plan is named", () => {
  test("if no model has the name", () => {
    assert.deepEqual(warningsOf(yamlOf('      - { credits: 9, every: PT5H, models: ["big*", "dear-*"] }')), [
      "names models that the configuration does not have: dear-*. The models are small, big.",
    ]);
  });

  test("if it is smaller than the smallest hold of a model that it counts", () => {
    assert.deepEqual(
      warningsOf(yamlOf("      - { credits: 1, every: PT5H }\n      - { credits: 2, every: P1D }")),
      [
        "is 1 credits. The smallest requests to these models take more, so all are refused: big (2). Raise the cap, or leave the models out of the models of the plan.",
      ],
    );
    assert.deepEqual(warningsOf(yamlOf("      - { credits: 1, every: PT5H, models: [small] }")), []);
  });

  test("but not for a model that the plan does not allow", () => {
    const yaml = yamlOf("      - { credits: 1, every: PT5H }").replace(
      "    caps:",
      "    models: [small]\n    caps:",
    );
    assert.deepEqual(warningsOf(yaml), []);
  });

  test("if the credits of the plan never reach it", () => {
    const week = (credits: number, base?: string) =>
      warningsOf(
        yamlOf(`      - { credits: ${credits}, every: P1W, align: calendar }`, base ? { base } : {}),
      );
    // Nine windows of a day can overlap a week in which the clocks change.
    assert.deepEqual([week(9000), week(9001).length], [[], 1]);
    assert.match(
      week(10_000)[0] ?? "",
      /^is 10,000 credits every P1W, and the plan never has more than 9,000 to spend in that time\. So only additional credits can reach the cap\.$/,
    );
    // Equal windows of the calendar begin together.
    const sameDays = "{ credits: 500, every: P7D, align: opening }";
    assert.deepEqual([week(1000, sameDays), week(1001, sameDays).length], [[], 1]);
    const calendar = "{ credits: 500, every: P1W, align: calendar }";
    assert.deepEqual([week(500, calendar), week(501, calendar).length], [[], 1]);
  });

  test("but not if the plan is for purchased credits", () => {
    assert.deepEqual(
      warningsOf(yamlOf("      - { credits: 5000, every: P1W }", { base: "{ credits: 0, every: P1D }" })),
      [],
    );
  });

  test("if it counts one id of a model of a server, and not the other", () => {
    const other =
      '{ engine: upstream, urls: ["http://b:1/v1", "http://a:1/v1/"], model: m, dialect: vllm, price: { prompt: 1, completion: 1 } }';
    const models = `  one: ${model(1000, ", dialect: vllm")}\n  two: ${other}\n  three: ${other.replace("model: m", "model: n")}`;
    assert.deepEqual(warningsOf(yamlOf('      - { credits: 100, every: P1D, models: ["o*"] }', { models })), [
      "does not count these ids, which name the same model of a server as one that it counts: two (as one). Add them to the models of the cap.",
    ]);
    assert.deepEqual(
      warningsOf(yamlOf("      - { credits: 100, every: P1D, models: [one, two] }", { models })),
      [],
    );
  });
});
