/** The clock in the operator API. test/contract/clock.test.ts tests what the stores do. */
import assert from "node:assert/strict";
import { operatorTests, refused } from "../fixtures/operator.ts";
import { start } from "../fixtures/times.ts";

const operatorTest = operatorTests();
const time = "2026-01-15T12:00:00Z";

operatorTest("shows the clock, and refuses to accept a clock that is trusted", async (operator) => {
  const { status, body } = await operator.get("/admin/clock");
  assert.deepEqual([status, body.trusted], [200, true]);
  assert.ok(Math.abs(Date.parse(String(body.clock_at)) - Date.parse(String(body.ledger_at))) < 10);
  assert.match(
    refused(await operator.post("/admin/clock/accept", { time }), 409, "clock_trusted"),
    /Nothing has changed/,
  );
});

operatorTest(
  "accepts the clock in the name of an operator, and returns the record",
  async (operator, service) => {
    const named: unknown[] = [];
    service.store.acceptClock = async (by, timeMs) => {
      named.push([by, timeMs]);
      return { kind: "accepted", accepted: { number: 3, by, ledgerMs: start, clockMs: start + 1000 } };
    };
    const { status, body } = await operator.post("/admin/clock/accept", { time });
    assert.deepEqual([status, named], [200, [["owner", start]]]);
    assert.deepEqual(body, {
      number: 3,
      by: "owner",
      ledger_at: "2026-01-15T12:00:00.000Z",
      clock_at: "2026-01-15T12:00:01.000Z",
    });
    const accept = async (body: object) => await operator.post("/admin/clock/accept", body);
    assert.equal(named.length, 1);
    service.store.acceptClock = async () => ({ kind: "differs", clockMs: start + 61_000 });
    assert.match(
      refused(await accept({ time }), 409, "clock_differs"),
      /^The clock shows 2026-01-15T12:01:01\.000Z, which is more than a minute from 2026-01-15T12:00:00\.000Z\./,
    );
  },
);
