/** Properties of the kernel for any operations. test/contract/torture.test.ts has further ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Decision } from "../../src/ledger/outcomes.ts";
import {
  accountIds,
  configurations,
  openingKeys,
  openings,
  operationOf,
  stepArb,
  type Told,
} from "../fixtures/ledger-drafts.ts";
import { addKey, plansOf } from "../fixtures/ledger-rows.ts";
import { type MemoryStore, memoryStore } from "../fixtures/memory-store.ts";
import { share } from "../fixtures/thorough.ts";
import { minute, start } from "../fixtures/times.ts";

/**
 * A failure is shrunk for at most so long; a slow machine that does not get through all runs fails
 * as well.
 */
const bounded = { interruptAfterTimeLimit: 60_000, markInterruptAsFailure: true };

async function prepared(nowMs: () => number): Promise<MemoryStore> {
  const store = memoryStore(configurations[0] ?? plansOf(), nowMs);
  await store.commit(openings);
  for (const key of openingKeys) await addKey(store, key);
  return store;
}

test("a batch gives the same rows and outcomes as its operations one by one", async () => {
  const property = fc.asyncProperty(fc.array(stepArb, { maxLength: 15, size: "max" }), async (steps) => {
    let nowMs = start;
    const together = await prepared(() => nowMs);
    const apart = await prepared(() => nowMs);
    const told: Told = {
      operations: [],
      holds: [],
      payments: [],
      grantsOf: (account) => together.grants(account).map(({ seq }) => seq),
    };
    for (const step of steps) {
      nowMs += typeof step.wait === "number" ? step.wait : step.wait.moment * minute;
      const batch = step.drafts.map((draft) => operationOf(draft, told, nowMs));
      told.operations.push(...batch);
      const outcomes: Decision[] = [];
      for (const operation of batch) outcomes.push(...(await apart.commit([operation])));
      assert.deepEqual(await together.commit(batch), outcomes);
      const limit = 1000;
      assert.deepEqual(await together.accounts({ limit }), await apart.accounts({ limit }));
      for (const id of accountIds) {
        assert.deepEqual(await together.journal(id, { limit }), await apart.journal(id, { limit }));
        assert.deepEqual(together.openHolds(id), apart.openHolds(id));
        assert.deepEqual(together.grants(id), apart.grants(id));
      }
      assert.deepEqual(await together.usage({ limit }), await apart.usage({ limit }));
      assert.deepEqual(await together.keysAfter(null, 500), await apart.keysAfter(null, 500));
    }
  });
  await fc.assert(property, { numRuns: share(100), ...bounded });
});
