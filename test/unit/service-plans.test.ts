/** The plans of a running service: superseded sections, and retired plans that accounts have. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { configFingerprintOf } from "../../src/app/config-fingerprint.ts";
import { ServicePlans } from "../../src/app/service-plans.ts";
import { Jobs } from "../../src/jobs.ts";
import type { Plan, PlanCatalog, Plans } from "../../src/ledger/plan.ts";
import { isCurrent } from "../../src/ledger/plan-section.ts";
import { load } from "../fixtures/configuration.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { loggerTo } from "../fixtures/service.ts";
import { start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const one = plansOf(planOf("a", 1, 1), planOf("b", 1, 1));
const two = plansOf(planOf("b", 2, 1), planOf("c", 1, 1));

function begin() {
  const store = memoryStore(one, () => start);
  const log: Record<string, unknown>[] = [];
  const plans = new ServicePlans(store, loggerTo(log));
  const jobs = new Jobs({ logger: loggerTo(log), metrics: { jobStarted: () => {}, jobEnded: () => {} } });
  const messages = () => log.map(({ level, msg }) => `${level} ${msg}`);
  return { store, plans, jobs, log, messages };
}

test("an equal section changes nothing and logs nothing", async () => {
  const { plans, messages } = begin();
  const moved = plansOf(planOf("b", 1, 1), planOf("a", 1, 1));
  assert.partialDeepStrictEqual(await plans.apply(moved), { kind: "unchanged", warnings: [] });
  assert.deepEqual([plans.superseded, messages()], [false, []]);
});

test("names retired plans and counts their accounts, without closed ones", async () => {
  const { store, plans, log } = begin();
  await store.commit(["x", "y", "z"].map((account) => ({ kind: "open", account, plan: "a", by: "test" })));
  await store.commit([{ kind: "state", account: "z", op: "1", to: { kind: "close" }, by: "test" }]);
  const { added, changed, retired, warnings } = await plans.apply(two);
  assert.deepEqual([added, changed, retired], [["c"], ["b"], ["a"]]);
  assert.deepEqual(warnings, ["Retired plans that accounts still have, and keep: a (2 accounts)."]);
  assert.deepEqual(log.at(-1)?.retired, [{ plan: "a", accounts: 2 }]);
  assert.deepEqual((await plans.apply(two)).warnings, warnings, "each time");
});

test("does not apply a superseded section, unless an operator asks for it", async () => {
  const { store, plans, messages } = begin();
  await plans.apply(two);
  const refused = await plans.apply(one);
  assert.equal(refused.kind, "superseded");
  assert.match(refused.warnings.join(), /\.\/inkwell plans apply/);
  assert.equal(plans.superseded, true);
  assert.match(messages().at(-1) ?? "", /\.\/inkwell plans apply/);
  assert.deepEqual((await store.plans()).offered, ["b", "c"]);
  assert.equal((await plans.apply(one, { force: true })).kind, "applied");
  assert.deepEqual([plans.superseded, (await store.plans()).offered], [false, ["a", "b"]]);
});

test("warns of models that the current plans can never pay for, also after another node has changed the plans", async () => {
  const { store, plans, jobs, log } = begin();
  const { models } = load(
    'models: { big: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 10000, completion: 20000 } } }',
  );
  const { warnings } = await plans.apply(two, { models });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /to big takes 5\.3 credits.* never have that many: b \(3\), c \(2\)\./);
  assert.deepEqual(plans.warnings, warnings);
  assert.partialDeepStrictEqual(log.at(-1), { level: 40, model: "big", smallest: "5.3", plans: ["b", "c"] });
  plans.watch(jobs, 1);
  await store.applyPlans(plansOf(planOf("b", 5, 0), planOf("c", 5, 1), planOf("bought", 0, 0)), {
    force: false,
    by: "test",
  });
  await until("only b is too small", () => plans.warnings.join().includes("many: b (5)."));
  await jobs.stop();
});

test("warns of caps that let no request begin, at the start, in the log and for as long as they are so", async () => {
  const { store, plans, jobs, log } = begin();
  const { models } = load(
    'models: { big: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 10000, completion: 20000 } } }',
  );
  const cap = { name: "day", credits: 5, every: "P1D", align: "opening", models: ["*"] } as const;
  const { warnings } = await plans.apply(plansOf(planOf("a", 10, 1, { caps: [cap] })), { models });
  assert.deepEqual(warnings, [
    "The cap day of the plan a is 5 credits. The smallest requests to these models take more, so all are refused: big (5.3). Raise the cap, or leave the models out of the models of the plan.",
  ]);
  assert.deepEqual(plans.warnings, warnings);
  assert.partialDeepStrictEqual(log.at(-1), { level: 40, plan: "a", cap: "day", warning: warnings[0] });
  plans.watch(jobs, 1);
  await store.applyPlans(plansOf(planOf("a", 10, 1, { caps: [{ ...cap, credits: 6 }] })), {
    ...{ force: false, by: "test" },
  });
  await until("the cap is large enough", () => plans.warnings.length === 1 && plans.superseded);
  await jobs.stop();
  assert.doesNotMatch(plans.warnings.join(), /cap day/);
});

test("applies the section even if the accounts cannot be counted, and reports that", async () => {
  const { store, plans, messages } = begin();
  store.accountsOnPlans = () => Promise.reject(new Error("no answer"));
  assert.partialDeepStrictEqual(await plans.apply(two), {
    kind: "applied",
    warnings: ["The accounts with retired plans could not be counted. The log has the reason."],
  });
  assert.match(messages().at(-1) ?? "", /could not be counted/);
});

test("notices within an interval that another node replaces the section or makes it current again", async () => {
  const { store, plans, jobs, messages } = begin();
  await plans.apply(one);
  plans.watch(jobs, 1);
  await store.applyPlans(two, { force: false, by: "test" });
  await until("it is superseded", () => plans.superseded);
  await store.applyPlans(one, { force: true, by: "test" });
  await until("it is current again", () => !plans.superseded);
  const read = store.plans.bind(store);
  store.plans = () => Promise.reject(new Error("no answer"));
  await until("a failure is logged", () => messages().some((line) => line.includes("could not be read")));
  store.plans = read;
  await store.applyPlans(two, { force: true, by: "test" });
  await until("it goes on", () => plans.superseded);
  await jobs.stop();
  const warned = messages().filter((line) => line.includes("not in use"));
  assert.equal(warned.length, 2, "once for each change");
  const again = messages().filter((line) => line.includes("current again"));
  assert.equal(again.length, 1);
});

test("a look that began before the section was applied changes nothing", async () => {
  const { store, plans, jobs } = begin();
  await plans.apply(one);
  await store.applyPlans(two, { force: false, by: "test" });
  const answer = Promise.withResolvers<PlanCatalog>();
  const read = store.plans.bind(store);
  const old = await read();
  const asked = Promise.withResolvers<void>();
  store.plans = async () => {
    store.plans = read;
    asked.resolve();
    return await answer.promise;
  };
  plans.watch(jobs, 1);
  await asked.promise;
  await plans.apply(one, { force: true });
  answer.resolve(old);
  await jobs.stop();
  assert.equal(plans.superseded, false);
});

test("a section is current if the database offers the same, whatever its order and spelling", async () => {
  const { store } = begin();
  const catalog = await store.plans();
  const yearly: Plan = planOf("a", 1, 1, { base: { credits: 1, every: "P1Y", align: "opening" } });
  assert.ok(isCurrent(catalog, plansOf(planOf("b", 1, 1), planOf("a", 1, 1))));
  assert.ok(!isCurrent(catalog, plansOf(planOf("a", 1, 1))));
  assert.ok(!isCurrent(catalog, two));
  await store.applyPlans(plansOf(yearly), { force: false, by: "test" });
  const inMonths: Plan = { ...yearly, base: { credits: 1, every: "P12M", align: "opening" } };
  assert.ok(isCurrent(await store.plans(), plansOf(inMonths)));
});

test("nodes report different plans sections of their files", () => {
  const of = (plans: Plans) => configFingerprintOf({ plans, models: [] });
  assert.deepEqual(of(one), of(plansOf(planOf("b", 1, 1), planOf("a", 1, 1))));
  assert.notDeepEqual(of(one), of(two));
  assert.deepEqual(Object.keys(of(one)), ["plans"]);
});
