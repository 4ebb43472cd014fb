/**
 * Plans over HTTP: the list with versions and accounts, and applying those of the configuration.
 */
import assert from "node:assert/strict";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { fieldsOf, operatorTests } from "../fixtures/operator.ts";

const dear = { name: "dear", credits: 3, every: "PT5H", align: "opening", models: ["sm*"] } as const;
const trial =
  "5 credits every P1D, overage 0 every P1M, at most 3 of sm* every PT5H (dear), 2 at once, models small";
const operatorTest = operatorTests({
  otherPlans: [planOf("trial", 5, 0, { limits: { concurrent: 2 }, models: ["small"], caps: [dear] })],
});

operatorTest(
  "lists offered and retired plans with versions, newest first, and accounts",
  async (operator, service) => {
    await operator.post("/admin/accounts", { id: "ada", plan: "trial" });
    assert.equal((await operator.get("/admin/plans")).body.next, null);
    const larger = planOf("test", 2000, 200);
    await service.store.applyPlans(plansOf(larger, planOf("pro", 1, 1)), { force: false, by: "test" });
    const rows = await operator.all("/admin/plans", 2);
    assert.deepEqual(
      rows.map(
        ({ id, offered, accounts, versions }) => `${id} ${offered} ${accounts} ${versionsOf(versions)}`,
      ),
      ["test true 1 2:2000,1:1000", "pro true 0 1:1", "trial false 1 1:5"],
    );
    const [version] = Array.isArray(rows[2]?.versions) ? rows[2].versions.map(fieldsOf) : [];
    assert.ok(!Number.isNaN(Date.parse(String(version?.created_at))));
    assert.deepEqual(
      { ...version, created_at: "" },
      {
        version: 1,
        created_at: "",
        base: { credits: 5, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1M", align: "opening" },
        spending_caps: [dear],
        limits: { requests_per_minute: null, tokens_per_minute: null, concurrent: 2 },
        models: ["small"],
        timezone: "UTC",
      },
    );
  },
);

operatorTest(
  "compares the plans with those of the configuration, and makes those current again",
  async (operator, service) => {
    const apply = async () => (await operator.ask("POST", "/admin/plans/apply")).body;
    const none = { added: [], changed: [], retired: [] };
    assert.deepEqual(await apply(), { applied: false, ...none, warnings: [] });
    const compared = async () => fieldsOf((await operator.get("/admin/plans?limit=1")).body.configuration);
    const same = { current: true, ...none, changes: [], plans: [] };
    assert.deepEqual(await compared(), same);
    await service.store.applyPlans(plansOf(planOf("test", 2000, 200), planOf("pro", 1, 1)), {
      force: false,
      by: "test",
    });
    const { plans, changes, ...names } = await compared();
    const differences = { added: ["trial"], changed: ["test"], retired: ["pro"] };
    assert.deepEqual(names, { current: false, ...differences });
    assert.ok(Array.isArray(plans));
    const shown = plans.map(fieldsOf).map(({ id, base, models }) => [id, fieldsOf(base).credits, models]);
    assert.deepEqual(shown, [
      ["test", 1000, ["*"]],
      ["trial", 5, ["small"]],
    ]);
    assert.deepEqual(changes, [
      { setting: "plans.trial", before: null, after: trial },
      { setting: "plans.test.base.credits", before: "2000", after: "1000" },
      {
        setting: "plans.pro",
        before: "1 credits every P1D, overage 1 every P1M",
        after: null,
      },
    ]);
    assert.deepEqual(await apply(), { applied: true, ...differences, warnings: [] });
    assert.deepEqual(await compared(), same);
    assert.deepEqual((await service.store.plans()).offered, ["test", "trial"]);
  },
);

function versionsOf(versions: unknown) {
  assert.ok(Array.isArray(versions));
  return versions.map(fieldsOf).map(({ version, base }) => `${version}:${fieldsOf(base).credits}`);
}
