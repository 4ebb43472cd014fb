/** The memory of a process: activity of models, refusals of accounts, lines of the log. */
import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { createLogger } from "../../src/telemetry/logger.ts";
import { RecentActivity } from "../../src/telemetry/recent-activity.ts";
import { RecentErrors } from "../../src/telemetry/recent-errors.ts";
import { RecentRefusals } from "../../src/telemetry/recent-refusals.ts";
import { dayMs, hourMs } from "../../src/units.ts";
import { chargeOf, recordOf } from "../fixtures/request-record.ts";

const minuteMs = 60_000;

test("counts requests, errors, refusals, tokens and cost of each model and of all", () => {
  const activity = new RecentActivity(() => 0);
  activity.finished(recordOf({ charge: chargeOf() }));
  activity.finished(recordOf({ status: 502, code: "upstream_error" }));
  activity.finished(recordOf({ code: "upstream_error" }));
  activity.finished(recordOf({ status: 429, code: "rate_limit_exceeded" }));
  activity.finished(recordOf({ code: "request_stopped" }));
  activity.finished(recordOf({ status: 404, code: "model_not_found", model: null }));
  activity.finished(recordOf({ isChat: false }));
  activity.chargedLate(recordOf(), chargeOf());
  const speeds = { firstTokenMs: null, tokensPerSecond: null };
  const sums = { promptTokens: 6, completionTokens: 10, costMicro: 5_000_000, ...speeds };
  assert.deepEqual(activity.over("small", hourMs), { requests: 5, errors: 2, refused: 2, ...sums });
  assert.deepEqual(activity.over(null, dayMs), { requests: 6, errors: 2, refused: 3, ...sums });
  assert.equal(activity.over("other", dayMs).requests, 0);
});

test("forgets what is older than the time that is asked for", () => {
  let nowMs = 0;
  const activity = new RecentActivity(() => nowMs);
  activity.finished(recordOf());
  nowMs = 59 * minuteMs;
  activity.finished(recordOf());
  assert.equal(activity.over("small", hourMs).requests, 2);
  nowMs = 61 * minuteMs;
  assert.equal(activity.over("small", hourMs).requests, 1);
  assert.equal(activity.over("small", dayMs).requests, 2);
  nowMs = 26 * 60 * minuteMs;
  activity.finished(recordOf());
  assert.equal(activity.over("small", dayMs).requests, 1);
});

test("percentiles of times and speeds are at most 5 % off", () => {
  const activity = new RecentActivity(() => 0);
  for (let n = 1; n <= 100; n += 1) {
    // Each other answer is not streamed.
    const record = recordOf({ firstTokenMs: n % 2 === 0 ? n * 10 : null });
    const usage = { ...chargeOf().usage, completionTokens: 101 };
    // 100 tokens after the first, in n seconds.
    const firstTextMs = record.startedMs + n * 10;
    const times = { ...chargeOf().times, firstTextMs, generatedMs: firstTextMs + n * 1000 };
    record.charge = chargeOf({ usage, times });
    activity.finished(record);
  }
  const { firstTokenMs, tokensPerSecond } = activity.over("small", dayMs);
  const near = (found: number | undefined, right: number) =>
    assert.ok(found !== undefined && Math.abs(found / right - 1) < 0.051, `${found} is about ${right}`);
  near(firstTokenMs?.median, 500);
  near(firstTokenMs?.worst5, 950);
  near(tokensPerSecond?.median, 2);
  near(tokensPerSecond?.worst5, 100 / 96);
});

test("keeps the last refusals of an account, newest first, and the accounts refused last", () => {
  const refusals = new RecentRefusals();
  const refused = (requestId: string, accountId: string) => {
    const { caller } = recordOf();
    assert.ok(caller);
    refusals.finished(recordOf({ requestId, code: "overloaded", caller: { ...caller, accountId } }));
  };
  for (let n = 1; n <= 60; n += 1) refused(`r${n}`, "ada");
  assert.deepEqual([refusals.of("ada").length, refusals.of("ada")[0]?.id], [50, "r60"]);
  refusals.finished(recordOf());
  assert.equal(refusals.of("ada").length, 50);
  for (let n = 1; n <= 999; n += 1) refused("r", `account${n}`);
  assert.equal(refusals.of("ada").length, 50);
  refused("r", "one more");
  assert.deepEqual([refusals.of("ada"), refusals.of("account1").length], [[], 1]);
});

test("keeps warnings and errors of the log once each, without stacks, newest first", () => {
  const recent = new RecentErrors();
  const logger = createLogger("info", new Writable({ write: (_line, _encoding, done) => done() }), recent);
  logger.info({ requestId: "r0" }, "fine");
  logger.warn({ requestId: "r1", code: "overloaded" }, "a request was refused");
  logger.error({ err: new Error("no disk"), model: "small" }, "it failed");
  logger.warn({ requestId: "r2", code: "overloaded" }, "a request was refused");
  const [first, second, third] = recent.list();
  assert.deepEqual(
    [first, second].map((line) => [
      line?.level,
      line?.message,
      line?.code,
      line?.requestId,
      line?.model,
      line?.count,
    ]),
    [
      ["warn", "a request was refused", "overloaded", "r2", null, 2],
      ["error", "it failed: no disk", null, null, "small", 1],
    ],
  );
  assert.equal(third, undefined);
  for (let n = 0; n < 200; n += 1) logger.warn(`line ${n}`);
  assert.deepEqual([recent.list().length, recent.list()[0]?.message], [100, "line 199"]);
  logger.warn("x".repeat(10_000));
  assert.equal(recent.list()[0]?.message.length, 500);
});
