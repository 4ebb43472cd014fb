/** The preview of a reload: each value before and after, no secret, superseded plans. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { reloadPreview } from "../../src/app/reload-preview.ts";
import { planChanges, plansFingerprintOf } from "../../src/ledger/plan-section.ts";
import { directory, load } from "../fixtures/configuration.ts";
import { noPlans } from "../fixtures/ledger-rows.ts";

const base = `
plans:
  starter: { base: { credits: 10, every: P1D }, overage: { credits: 0, every: P1D } }
  trial: { base: { credits: 10, every: P1D }, overage: { credits: 0, every: P1D } }
models:
  small: { engine: upstream, url: "http://a:1/v1", key: sk-first, model: m, price: { prompt: 1, completion: 2 } }
operator: { token: operator-token-0123456789 }
events: { endpoints: { hook: { url: "https://a.example/", secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz } } }
`;
const data = directory();
const read = (yaml: string) => load(yaml, { INKWELL_DATA: data });

/** Returns the preview of a change of the file, and the rows as `setting: before -> after`. */
function preview(after: string, earlier: readonly string[] = []) {
  const [running, next] = [read(base), read(after)];
  const { versions } = planChanges(noPlans, running.plans, { force: false, nowMs: 0 });
  const catalog = {
    ...noPlans,
    epoch: 1,
    offered: [...running.plans.keys()],
    versions: new Map(versions.map((version) => [version.id, [version]])),
    fingerprints: earlier.map((yaml) => plansFingerprintOf(read(yaml).plans)),
  };
  const changes = planChanges(catalog, next.plans, { force: false, nowMs: 0 });
  const found = reloadPreview(running, next, { catalog, changes, inUse: [] });
  const rows = found.changes.map(({ setting, before, after }) => `${setting}: ${before} -> ${after}`);
  return { ...found, rows };
}

test("an equal file changes nothing", () => {
  assert.deepEqual(preview(`${base}# A comment.\n`).rows, []);
});

test("each setting has its values before and after; a plan or model that comes or goes is one row", () => {
  const { rows, needsRestart, superseded } = preview(
    base
      .replace("credits: 10,", "credits: 12,")
      .replace(
        / {2}trial:.*\n/,
        "  pro: { base: { credits: 9000, every: P1M }, overage: { credits: 0, every: P1D }, limits: { concurrent: 3 } }\n",
      )
      .replace("completion: 2", "completion: 3")
      .replace(
        "operator:",
        '  big: { engine: upstream, url: "http://b:1/v1", model: m, price: { prompt: 4, completion: 5 } }\ntimezone: Europe/Berlin\nlisten: { port: 99 }\noperator:',
      ),
  );
  assert.deepEqual(rows, [
    "models.small.price.completion: 2 -> 3",
    "models.big: null -> big: upstream, http://b:1/v1, 4 / 5 credits per million prompt / completion tokens",
    "plans.pro: null -> 9,000 credits every P1M, overage 0 every P1D, 3 at once",
    "plans.starter.base.credits: 10 -> 12",
    "plans.starter.timezone: UTC -> Europe/Berlin",
    "plans.trial: 10 credits every P1D, overage 0 every P1D -> null",
    "listen.port: 8080 -> 99",
    "timezone: UTC -> Europe/Berlin",
  ]);
  assert.deepEqual([needsRestart, superseded], [["listen.port"], false]);
});

test("a model that is called as a property of all objects is one row too", () => {
  const { rows } = preview(
    base.replace(
      "operator:",
      '  toString: { engine: upstream, url: "http://b:1/v1", model: m, price: { prompt: 4, completion: 5 } }\noperator:',
    ),
  );
  assert.deepEqual(rows, [
    "models.toString: null -> toString: upstream, http://b:1/v1, 4 / 5 credits per million prompt / completion tokens",
  ]);
});

test("a cap is one row in words, and the rights of people over keys are settings of a plan", () => {
  const { rows } = preview(
    base.replace("every: P1D } }", "every: P1D }, caps: [{ credits: 3, every: PT5H }], keys: { most: 2 } }"),
  );
  assert.deepEqual(rows, [
    "plans.starter.caps: null -> at most 3 every PT5H",
    "plans.starter.keys.most: null -> 2",
  ]);
});

test("of a secret, a row says only that it differs", () => {
  const changed = base
    .replace("sk-first", "sk-second")
    .replace("operator-token-0123456789", "operator-token-9876543210")
    .replace("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2");
  const found = preview(changed);
  const another = "not shown -> another value, not shown";
  assert.deepEqual(found.rows, [
    `models.small: ${another}`,
    `events: ${another}`,
    `operator.token: ${another}`,
  ]);
  assert.doesNotMatch(JSON.stringify(found), /sk-|operator-token-|whsec_/);
});

test("plans that newer ones replaced change nothing, and a warning says how to apply them", () => {
  const earlier = base.replace("credits: 10,", "credits: 12,");
  const { rows, superseded, warnings } = preview(earlier, [earlier, base]);
  assert.deepEqual([rows, superseded], [[], true]);
  assert.match(warnings.join(), /plans apply/);
});
