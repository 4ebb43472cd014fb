/**
 * Random operations on the stores in memory, in SQLite and on PostgreSQL, compared with the naive
 * ledger and audited: 46,000 in each run, `npm run torture` for more. A failure prints the shrunk
 * steps and a seed, and `npm run torture -- --seed SEED --store NAME` repeats it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { torture } from "../fixtures/torture.ts";
import { subjects } from "../fixtures/torture-subjects.ts";

for (const [name, subject] of Object.entries(subjects)) {
  const { operationsMin, skip = false } = subject;
  test(`${name} and the naive ledger agree after any operations and any failures`, {
    skip,
  }, async (t) => {
    const seed = Date.now() & 0x3fff_ffff;
    t.diagnostic(`seed ${seed}`);
    const { operations, faults, outcomes } = await torture({ subject, operationsMin, seed });
    assert.ok(operations >= operationsMin);
    // A short run may miss a rare outcome.
    for (let run = 1; run < 4 && everyOutcome.some((outcome) => !outcomes.has(outcome)); run += 1) {
      const more = await torture({ subject, operationsMin, seed: seed + run * operationsMin });
      for (const outcome of more.outcomes) outcomes.add(outcome);
    }
    for (const [fault, times] of Object.entries(faults)) {
      if (fault !== "none") assert.ok(times > 20, `the fault "${fault}" hit ${times} commits`);
    }
    for (const outcome of everyOutcome) assert.ok(outcomes.has(outcome), `no run came to "${outcome}"`);
  });
}

/** Outcomes that the runs must reach, so that a weak generator is noticed. */
const everyOutcome = [
  "hold held",
  "hold refused insufficient_credits",
  "hold refused credits_reserved",
  "hold refused rate_limit_exceeded",
  "hold refused concurrency_limit_exceeded",
  "hold refused key_unknown",
  "hold refused key_revoked",
  "hold refused key_expired",
  "hold refused key_budget_exceeded",
  "hold refused account_suspended",
  "hold refused account_closed",
  "hold refused hold_ended",
  "hold reserved",
  "extend reserved",
  "extend extended",
  "extend ended",
  "settle settled",
  "settle unknown_hold",
  "expire expired",
  "expire alive",
  "expire ended",
  "topup added",
  "topup conflict",
  "topup payment_used",
  "topup closed",
  "topup too_much",
  "adjust adjusted",
  "adjust conflict",
  "adjust closed",
  "adjust too_little",
  "adjust too_much",
  "refund refunded",
  "refund unknown_payment",
  "refund too_much",
  "refund conflict",
  "refund refund_used",
  "plan changed",
  "plan conflict",
  "plan closed",
  "plan unknown_plan",
  "plan retired_plan",
  "plans applied",
  "plans unchanged",
  "plans superseded",
  "state changed",
  "state conflict",
  "state closed",
  "key changed",
  "key key_unknown",
  "key key_revoked",
  "open opened",
  "open exists",
  "open unknown_plan",
  "open retired_plan",
  "hold ends what is overdue",
  "hold unfinished",
  "extend unfinished",
  "settle unfinished",
  "extend ends what is overdue",
  "settle after the expiry",
  "hold no_account",
];
