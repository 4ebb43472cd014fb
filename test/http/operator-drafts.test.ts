/** Drafts of plans and prices over HTTP: their lines, whom they concern, and what they refuse. */
import assert from "node:assert/strict";
import { planOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests, refused } from "../fixtures/operator.ts";

const cap = { name: "PT5H", credits: 3, every: "PT5H", align: "opening", models: ["*"] } as const;
const operatorTest = operatorTests({
  otherPlans: [planOf("trial", 5, 0, { limits: { concurrent: 2 }, caps: [cap] })],
});

operatorTest("a draft of a plan keeps what is not named, and changes nothing", async (operator, service) => {
  await operator.post("/admin/accounts", { id: "ada", plan: "trial" });
  const draft = (body: object) => operator.post("/admin/plans/trial/draft", body);
  const { body, status, text } = await draft({
    base: { credits: 9 },
    concurrent: null,
    requests_per_minute: 60,
    models: ["small"],
  });
  assert.equal(status, 200, text);
  assert.deepEqual(body, {
    yaml: `  trial:
    base: { credits: 9, every: P1D }
    overage: { credits: 0, every: P1M }
    caps:
      - { credits: 3, every: PT5H }
    limits: { requests_per_minute: 60 }
    models: [ small ]
`,
    changes: [
      { setting: "plans.trial.base.credits", before: "5", after: "9" },
      { setting: "plans.trial.limits.requests_per_minute", before: null, after: "60" },
      { setting: "plans.trial.limits.concurrent", before: "2", after: null },
      { setting: "plans.trial.models", before: "*", after: "small" },
    ],
    accounts: 1,
    week: null,
  });
  const caps = [{ credits: 4, every: "P1D", align: "calendar", models: ["sm*"] }];
  const changed = (await draft({ spending_caps: caps })).body;
  assert.match(
    String(changed.yaml),
    /^ {6}- \{ credits: 4, every: P1D, align: calendar, models: \[ sm\* \] \}$/m,
  );
  assert.doesNotMatch(String((await draft({ spending_caps: [] })).body.yaml), /caps/);
  assert.equal((await service.store.plans()).versions.get("trial")?.length, 1);
});

operatorTest("a draft that the reader of the configuration refuses gets its sentence", async (operator) => {
  const draft = (plan: string, body: object) => operator.post(`/admin/plans/${plan}/draft`, body);
  const calendar = await draft("trial", { base: { every: "PT5H", align: "calendar" } });
  assert.match(refused(calendar, 422, "configuration_invalid"), /plans\.trial\.base\.every: found PT5H/);
  const model = await draft("trial", { models: ["smal"] });
  assert.match(refused(model, 422, "configuration_invalid"), /did you mean small\?/);
  assert.match(refused(await draft("tril", {}), 400, "invalid_value"), /Did you mean trial\?/);
  const missing = await operator.post("/admin/models/smal/draft", {});
  assert.match(refused(missing, 400, "invalid_value"), /Did you mean small\?/);
});

operatorTest("a draft of prices has the last week at both prices", async (operator, service) => {
  for (let n = 0; n < 2; n += 1) await (await service.chat()).text();
  const sums = fieldsOf((await operator.get("/admin/usage/sums?by=model")).body.total);
  const [model] = await operator.all("/admin/models", 1);
  const before = fieldsOf(model?.pricing);
  const draft = async (body: object) => (await operator.post("/admin/models/small/draft", body)).body;
  const same = await draft({});
  const cost = sums.cost_micro;
  assert.deepEqual(same, {
    yaml: `    price: { prompt: ${before.prompt}, completion: ${before.completion} }\n`,
    changes: [],
    accounts: 1,
    week: { requests: 2, before_micro: cost, after_micro: cost },
  });
  const { yaml, changes, week } = await draft({
    completion: 2 * Number(before.completion),
    cached_prompt: 0,
  });
  const answers = Number(sums.completion_tokens) * Number(before.completion);
  assert.deepEqual(week, { requests: 2, before_micro: cost, after_micro: Number(cost) + answers });
  assert.match(String(yaml), /cached_prompt: 0, completion: /);
  assert.deepEqual(changes, [
    { setting: "models.small.price.cached_prompt", before: null, after: "0" },
    {
      setting: "models.small.price.completion",
      before: String(before.completion),
      after: String(2 * Number(before.completion)),
    },
  ]);
});
