/** Jobs in the operator API. */
import assert from "node:assert/strict";
import { fieldsOf, listOf, operatorTests, type TestOperator } from "../fixtures/operator.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests();

async function jobOf(operator: TestOperator, name: string) {
  const job = listOf((await operator.get("/admin/jobs")).body.data).find((each) => each.name === name);
  assert.ok(job, `there is a job ${name}`);
  return job;
}

operatorTest("lists all jobs by name, with interval and last success", async (operator) => {
  await until("all have succeeded", async () =>
    (await operator.all("/admin/jobs", 2)).every((job) => job.last_success_at !== null),
  );
  const jobs = await operator.all("/admin/jobs", 2);
  assert.deepEqual(
    jobs.map(({ name, every_ms, state, last_error }) => [name, every_ms, state, last_error]),
    [
      ["stop_requests", 20, "ok", null],
      ["check_operator_sessions", 400, "ok", null],
    ],
  );
});

operatorTest(
  "a job that fails is in the list, the overview and the metrics, until it works again",
  async (operator) => {
    let failure: Error | null = new Error("the disk is full");
    const job = operator.jobs.start({
      name: "count",
      everyMs: 3_600_000,
      failure: "rows could not be counted",
      run: async () => {
        if (failure !== null) throw failure;
      },
    });
    await job.run();
    const failing = await jobOf(operator, "count");
    assert.deepEqual([failing.state, failing.last_success_at], ["failing", null]);
    assert.equal(fieldsOf(failing.last_error).message, "the disk is full");
    assert.equal(failing.since, fieldsOf(failing.last_error).at);
    const { body } = await operator.get("/admin/overview");
    assert.deepEqual(listOf(fieldsOf(body.health).jobs), [failing]);
    const { text } = await operator.get("/metrics");
    assert.match(text, /^inkwell_job_runs_total\{name="count",outcome="failed"\} 1$/m);
    failure = null;
    await job.run();
    const again = await jobOf(operator, "count");
    assert.deepEqual([again.state, again.last_error], ["ok", failing.last_error]);
    assert.equal(again.since, again.last_success_at);
    await until("the overview has none", async () => {
      const { health } = (await operator.get("/admin/overview")).body;
      return listOf(fieldsOf(health).jobs).length === 0;
    });
  },
);
