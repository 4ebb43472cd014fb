/** Closing a ledger while its store is unavailable. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerStore } from "../../src/ledger/ledger.ts";

const hour = 3_600_000;
const topup = { kind: "topup", account: "ada", payment: "1", amountMicro: 1, by: "test" } as const;

/** A store that is away, and how often it was asked. */
class AwayStore implements LedgerStore {
  asked = 0;

  async commit(): Promise<never> {
    this.asked += 1;
    throw new StoreUnavailableError("the server is gone");
  }
}

test("close does not wait for a pause between attempts", async () => {
  const store = new AwayStore();
  const ledger = new Ledger(store, { retriesMs: [hour, hour], giveUpMs: hour });
  const refused = assert.rejects(ledger.apply(topup), StoreUnavailableError);
  while (store.asked === 0) await nextTurn();
  await ledger.close(20);
  await refused;
  assert.equal(store.asked, 1);
});

test("close gives up operations that become late during it", async () => {
  const store = new AwayStore();
  const ledger = new Ledger(store, { retriesMs: [hour], giveUpMs: hour });
  const told: unknown[] = [];
  const charged = ledger
    .apply(topup)
    .catch(() => ledger.applyLate(topup))
    .catch((reason: unknown) => told.push(reason));
  while (store.asked === 0) await nextTurn();
  await ledger.close(0);
  assert.equal(told.length, 1, "its loss is told while there is still somebody to tell");
  assert.equal(ledger.late, 0);
  await charged;
});
