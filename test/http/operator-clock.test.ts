/** The clock in the operator API. test/contract/clock.test.ts tests what the stores do. */
import assert from "node:assert/strict";
import { operatorTests, refused } from "../fixtures/operator.ts";
import { start } from "../fixtures/times.ts";

const operatorTest = operatorTests();

operatorTest("shows the clock, and refuses to accept a clock that is trusted", async (operator) => {
  const { status, body } = await operator.get("/admin/clock");
  assert.deepEqual([status, body.trusted], [200, true]);
  assert.ok(Math.abs(Date.parse(String(body.clock_at)) - Date.parse(String(body.trusted_at))) < 10);
  assert.match(
    refused(await operator.post("/admin/clock/accept", { by: "ada" }), 409, "clock_trusted"),
    /Nothing has changed/,
  );
});

operatorTest("refuses to accept a clock that is trusted", async (operator) => {
  const answer = await operator.post("/admin/clock/accept", { by: "ada" });
  assert.match(refused(answer, 409, "clock_trusted"), /trusted already\. Nothing has changed/);
});

operatorTest(
  "accepts the clock in the name of an operator, and returns the record",
  async (operator, service) => {
    const named: string[] = [];
    service.store.acceptClock = async (by) => {
      named.push(by);
      return { number: 3, by, trustedMs: start, clockMs: start + 1000 };
    };
    const { status, body } = await operator.post("/admin/clock/accept", { by: "ada" });
    assert.deepEqual([status, named], [200, ["ada"]]);
    assert.deepEqual(body, {
      number: 3,
      by: "ada",
      trusted_at: "2026-01-15T12:00:00.000Z",
      clock_at: "2026-01-15T12:00:01.000Z",
    });
    refused(await operator.post("/admin/clock/accept", {}), 400, "missing_required_parameter");
    refused(await operator.post("/admin/clock/accept", { by: "" }), 400, "invalid_value");
    assert.deepEqual(named, ["ada"]);
  },
);
