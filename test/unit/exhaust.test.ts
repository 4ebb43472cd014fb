/** A complete search of a tiny world, and defects of a kernel that it finds. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { decide } from "../../src/ledger/kernel.ts";
import { type SearchResult, search, Violation } from "../fixtures/exhaust.ts";
import type { Decide } from "../fixtures/small-world-rows.ts";
import { tinyWorld } from "../fixtures/small-worlds.ts";

function searched(kernel: Decide): SearchResult {
  return search(tinyWorld, { ...tinyWorld, decide: kernel });
}

/** The check that fails, and the number of steps to it. */
function foundIn(kernel: Decide): [check: string, steps: number] {
  try {
    searched(kernel);
  } catch (error) {
    if (error instanceof Violation) return [error.check, error.history.length];
    throw error;
  }
  return ["nothing", 0];
}

test("all states of a tiny world pass all checks", () => {
  const { states, checks, marks } = searched(decide);
  assert.ok(states > 300, `${states} states`);
  assert.equal(checks.get("the facts are the balance"), states);
  assert.equal(checks.get("the naive ledger agrees"), Math.ceil(states / 4));
  for (const value of ["a final state after a crash", "a late charge follows an expiry", "batches of 3"])
    assert.ok(marks.has(value), `the tiny world comes to ${value}`);
});

test("finds a hold that is kept after its settlement", () => {
  const [check, steps] = foundIn((snapshot, operations) => {
    const { outcomes, changes } = decide(snapshot, operations);
    return { outcomes, changes: { ...changes, holdsEnded: [] } };
  });
  assert.deepEqual([check, steps], ["each hold ends once", 2]);
});

test("finds a hold that takes more than its answer says", () => {
  const [check, steps] = foundIn((snapshot, operations) => {
    const { outcomes, changes } = decide(snapshot, operations);
    const told = outcomes.map((outcome) =>
      outcome.kind === "held" ? { ...outcome, amountMicro: outcome.amountMicro + 1 } : outcome,
    );
    return { outcomes: told, changes };
  });
  assert.deepEqual([check, steps], ["answers are exact", 1]);
});

test("finds a journal without its newest entry", () => {
  const [check, steps] = foundIn((snapshot, operations) => {
    const { outcomes, changes } = decide(snapshot, operations);
    return { outcomes, changes: { ...changes, journal: changes.journal.slice(1) } };
  });
  assert.deepEqual([check, steps], ["facts are numbered", 1]);
});
