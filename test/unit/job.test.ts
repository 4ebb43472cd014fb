/** Jobs: when they run, and how one that fails, hangs or recovers is shown. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { hangsAfterMs, Job, type JobState } from "../../src/job.ts";
import { Jobs } from "../../src/jobs.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { loggerTo } from "../fixtures/service.ts";
import { start } from "../fixtures/times.ts";

const everyMs = 10_000;

/** A job with a clock of the test. Each run waits in `runs` for its end. */
function startJob(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: start });
  let nowMs = 1000;
  t.mock.method(performance, "now", () => nowMs);
  const runs: PromiseWithResolvers<void>[] = [];
  const errors: unknown[] = [];
  const run = () => {
    const ended = Promise.withResolvers<void>();
    runs.push(ended);
    return ended.promise;
  };
  const job = new Job({ name: "work", everyMs, run, onError: (error) => errors.push(error) });
  const settled = () => new Promise(setImmediate);
  return {
    job,
    runs,
    errors,
    async succeed() {
      runs.at(-1)?.resolve();
      await settled();
    },
    async fail(message: string) {
      runs.at(-1)?.reject(new Error(message));
      await settled();
    },
    async pass(ms: number) {
      nowMs += ms;
      t.mock.timers.tick(ms);
      await settled();
    },
  };
}

function shown(change: Partial<JobState>): JobState {
  return {
    name: "work",
    everyMs,
    state: "ok",
    sinceMs: start,
    lastSuccessMs: null,
    lastError: null,
    ...change,
  };
}

test("runs at once and then at its interval, and one run at a time", async (t) => {
  const { job, runs, succeed, pass } = startJob(t);
  assert.deepEqual([runs.length, job.state], [1, shown({})]);
  await pass(3 * everyMs);
  assert.equal(runs.length, 1, "the first run is under way");
  await succeed();
  assert.deepEqual(job.state, shown({ lastSuccessMs: start + 3 * everyMs }));
  await pass(everyMs);
  assert.equal(runs.length, 2);
  await succeed();
});

test("rests while it is idle, runs once a minute then, and goes on when it is woken", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let runs = 0;
  let isIdle = false;
  const run = async () => {
    runs += 1;
  };
  const job = new Job({ name: "work", everyMs, run, isIdle: () => isIdle, onError: assert.ifError });
  const runsIn = async (ms: number) => {
    const before = runs;
    for (let passed = 0; passed < ms; passed += 1000) {
      t.mock.timers.tick(1000);
      await new Promise(setImmediate);
    }
    return runs - before;
  };
  assert.equal(await runsIn(60_000), 6);
  isIdle = true;
  assert.equal(await runsIn(everyMs), 1, "the run that was due");
  assert.equal(await runsIn(120_000), 2);
  isIdle = false;
  job.wake();
  assert.equal(await runsIn(60_000), 6);
  await job.stop();
  job.wake();
  assert.equal(await runsIn(60_000), 0);
});

test("shows since when it fails and its last error, until it works again", async (t) => {
  const { job, runs, errors, succeed, fail, pass } = startJob(t);
  await succeed();
  await pass(everyMs);
  await fail("the disk is full");
  await pass(everyMs);
  await fail("the disk is\nstill full");
  const [first, second] = [start + everyMs, start + 2 * everyMs];
  const lastError = { atMs: second, message: "the disk is\\u000astill full" };
  assert.deepEqual(job.state, shown({ state: "failing", sinceMs: first, lastSuccessMs: start, lastError }));
  assert.equal(errors.length, 2);
  await pass(everyMs);
  assert.equal(job.state.state, "failing", "until a run has succeeded");
  await succeed();
  const recovered = second + everyMs;
  assert.deepEqual(job.state, shown({ sinceMs: recovered, lastSuccessMs: recovered, lastError }));
  assert.equal(runs.length, 4);
});

test("shows since when a run hangs, and that it has ended after all", async (t) => {
  const { job, succeed, pass } = startJob(t);
  await succeed();
  await pass(everyMs);
  await pass(hangsAfterMs);
  assert.equal(job.state.state, "ok", "a run may take a minute");
  await pass(1);
  assert.deepEqual(job.state, shown({ state: "hanging", sinceMs: start + everyMs, lastSuccessMs: start }));
  await succeed();
  assert.equal(job.state.state, "ok");
});

test("an error before the first await is a failed run", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const errors: unknown[] = [];
  const failure = new Error("no clock");
  const run = () => {
    throw failure;
  };
  const job = new Job({ name: "work", everyMs, run, onError: (error) => errors.push(error) });
  await job.run();
  assert.deepEqual([job.state.state, errors], ["failing", [failure]]);
  t.mock.timers.tick(everyMs);
  await job.run();
  assert.equal(errors.length, 2, "it is tried again");
});

test("a fresh run begins after the call, and one serves all who wait for it", async (t) => {
  const { job, runs, succeed } = startJob(t);
  let ended = 0;
  for (let n = 0; n < 3; n += 1) {
    void job.runAfresh().then(() => {
      ended += 1;
    });
  }
  await succeed();
  assert.deepEqual([runs.length, ended], [2, 0]);
  await succeed();
  assert.deepEqual([runs.length, ended], [2, 3]);
});

test("a stop waits for the run under way, tells it, and begins no other", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const isStopped: (() => boolean)[] = [];
  const run = Promise.withResolvers<void>();
  const job = new Job({
    name: "work",
    everyMs,
    onError: assert.fail,
    run: (stopped) => {
      isStopped.push(stopped);
      return run.promise;
    },
  });
  const waiting = job.runAfresh();
  let hasStopped = false;
  const stop = job.stop().then(() => {
    hasStopped = true;
  });
  await new Promise(setImmediate);
  assert.deepEqual([hasStopped, isStopped.map((each) => each())], [false, [true]]);
  run.resolve();
  await Promise.all([stop, waiting]);
  t.mock.timers.tick(everyMs);
  await job.run();
  assert.equal(isStopped.length, 1);
});

test("the log has a line for each new error of a job, and one when it works again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const log: Record<string, unknown>[] = [];
  const jobs = new Jobs({ logger: loggerTo(log), metrics: new Metrics() });
  let failure: string | null = "timeout";
  const job = jobs.start({
    name: "count",
    everyMs,
    failure: "rows could not be counted",
    run: async () => {
      if (failure !== null) throw new Error(failure);
    },
  });
  for (const next of ["timeout", "timeout", "no table", null, null]) {
    failure = next;
    await job.runAfresh();
  }
  assert.deepEqual(
    log.map(({ level, job, msg }) => [level, job, msg]),
    [
      [50, "count", "rows could not be counted; trying again"],
      [50, "count", "rows could not be counted; trying again"],
      [30, "count", "the job count works again"],
    ],
  );
  await jobs.stop();
});

test("metrics count the runs of each job, and have the time of its last success", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: start });
  const metrics = new Metrics();
  const jobs = new Jobs({ logger: loggerTo([]), metrics });
  const runs: PromiseWithResolvers<void>[] = [];
  const job = jobs.start({
    name: "count",
    everyMs,
    failure: "rows could not be counted",
    run: () => {
      const ended = Promise.withResolvers<void>();
      runs.push(ended);
      return ended.promise;
    },
  });
  const text = async () =>
    (await metrics.text()).split("\n").filter((line) => line.startsWith("inkwell_job"));
  const lines = (ok: number, failed: number, atMs: number) => [
    `inkwell_job_runs_total{name="count",outcome="ok"} ${ok}`,
    `inkwell_job_runs_total{name="count",outcome="failed"} ${failed}`,
    `inkwell_job_last_success_timestamp_seconds{name="count"} ${atMs / 1000}`,
  ];
  assert.deepEqual(await text(), lines(0, 0, start), "the start counts as a success");
  t.mock.timers.tick(5000);
  runs[0]?.resolve();
  await job.run();
  assert.deepEqual(await text(), lines(1, 0, start + 5000));
  t.mock.timers.tick(5000);
  runs[1]?.reject(new Error("no table"));
  await job.run();
  assert.deepEqual(await text(), lines(1, 1, start + 5000));
  await jobs.stop();
});
