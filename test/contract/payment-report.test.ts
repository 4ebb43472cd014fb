/** What happened to payments in a month: each credit counts once, at its own time. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { paymentReport } from "../../src/accounts/payment-report.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { hour } from "../fixtures/times.ts";

const plans = plansOf(planOf("none", 0, 0));
/** 5 hours and 45 minutes ahead of UTC: February begins here on 2026-01-31 at 18:15. */
const timezone = "Asia/Kathmandu";
const utc = (text: string) => Date.parse(`${text}Z`);

for (const backend of backends) {
  describe(`the report of payments on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      database.clock.set(utc("2026-01-31T18:00:00"));
      store = await database.open();
      for (const account of ["ada", "bob"]) {
        await store.commit([{ kind: "open", account, plan: "none", by: "test" }]);
        await addKey(store, keyOf(`key-${account}`, account));
      }
    });
    afterEach(async () => {
      await assertSound(database);
      await database.remove();
    });

    const topup = (account: string, payment: string, amountMicro: number) =>
      ({ kind: "topup", account, payment, amountMicro, by: "test" }) as const;
    const pay = (...payment: Parameters<typeof topup>) => store.commit([topup(...payment)]);
    const refund = (account: string, payment: string, amountMicro: number) =>
      store.commit([
        {
          kind: "refund",
          account,
          payment,
          refund: `back-${payment}-${amountMicro}`,
          amountMicro,
          by: "test",
        },
      ]);
    const take = (id: string, amount: number) =>
      store.commit([hold(id, amount, { key: "key-ada", ttlMs: hour })]);
    const spend = async (id: string, amount: number) => {
      await take(id, amount);
      await store.commit([settle(id, amount)]);
    };

    async function report(month: string) {
      const { rows, total, isOver } = await paymentReport(store, { month, timezone });
      for (const row of [...rows, total])
        assert.equal(
          row.leftBeforeMicro + row.addedMicro - row.spentMicro - row.refundedMicro,
          row.leftMicro,
        );
      const lines = rows.map(
        ({ id, account, leftBeforeMicro, addedMicro, spentMicro, refundedMicro, leftMicro }) =>
          [id, account, leftBeforeMicro, addedMicro, spentMicro, refundedMicro, leftMicro].join(" "),
      );
      return { lines, isOver, left: total.leftMicro };
    }

    test("counts what was added, spent and refunded in a month of the zone", async () => {
      await pay("ada", "p1", 100);
      await pay("bob", "p2", 50);
      await spend("r1", 30);
      await take("held over the end", 20);
      await refund("bob", "p2", 10);
      const january = ["p1 ada 0 100 30 0 70", "p2 bob 0 50 0 10 40"];
      assert.deepEqual(await report("2026-01"), { lines: january, isOver: false, left: 110 });

      database.clock.set(utc("2026-01-31T18:15:00"));
      await store.commit([settle("held over the end", 20)]);
      await pay("ada", "p3", 40);
      await spend("r2", 60);
      const february = ["p1 ada 70 0 70 0 0", "p2 bob 40 0 0 0 40", "p3 ada 0 40 10 0 30"];
      assert.deepEqual(await report("2026-01"), { lines: january, isOver: true, left: 110 });
      assert.deepEqual(await report("2026-02"), { lines: february, isOver: false, left: 70 });

      database.clock.set(utc("2026-02-28T18:15:00"));
      await refund("ada", "p3", 5);
      await spend("r3", 25);
      await store.commit([{ kind: "state", account: "bob", op: "c", to: { kind: "close" }, by: "test" }]);
      await refund("bob", "p2", 40);
      assert.deepEqual(await report("2026-02"), { lines: february, isOver: true, left: 70 });
      const march = ["p2 bob 40 0 0 40 0", "p3 ada 30 0 25 5 0"];
      assert.deepEqual(await report("2026-03"), { lines: march, isOver: false, left: 0 });
    });

    test("a payment is listed with what was spent and refunded of it, open or closed", async () => {
      for (let n = 1; n <= 20; n += 1) await pay("ada", `p${n}`, 10);
      await refund("ada", "p2", 4);
      await spend("r1", 22);
      await take("r2", 7);
      const listed = (await store.payments("ada", { limit: 100 })).toReversed();
      const texts = listed.map(({ id, amountMicro, spentMicro, refundedMicro }) =>
        [id, amountMicro, spentMicro, refundedMicro].join(" "),
      );
      const untouched = Array.from({ length: 16 }, (_, n) => `p${n + 5} 10 0 0`);
      assert.deepEqual(texts, ["p1 10 10 0", "p2 10 6 4", "p3 10 6 0", "p4 10 0 0", ...untouched]);
      await store.commit([settle("r2", 1)]);
      await refund("ada", "p20", 3);
      const [last] = await store.payments("ada", { limit: 1 });
      assert.deepEqual([last?.id, last?.spentMicro, last?.refundedMicro], ["p20", 0, 3]);
    });

    test("reads any number of payments", async () => {
      const payments = Array.from({ length: 1100 }, (_, n) => topup(n % 3 === 0 ? "ada" : "bob", `p${n}`, 1));
      await store.commit(payments);
      await spend("r1", 3);
      const { lines, left } = await report("2026-01");
      assert.deepEqual([lines.length, left], [1100, 1097]);
    });
  });
}
