/** `inkwell credits report`: what happened to payments in a month. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

describe("credits report", () => {
  const month = () => new Date(ledger.store.times().atMs).toISOString().slice(0, 7);

  test("prints a table, JSON or CSV", async () => {
    await ledger.openAccount();
    assert.match((await ledger.inkwell("credits", "report", "--month", month())).stderr, /No payment had/);
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    await ledger.inkwell("credits", "refund", "alice", "20", "--payment", "p1", "--id", "back");
    const report = ["credits", "report", "--month", month()];
    const shown = await ledger.inkwell(...report);
    assert.match(shown.stdout, /p1 +alice +0 +50 +0 +20 +30/);
    assert.match(shown.stderr, /Total: 0 left before, 50 added, 0 spent, 20 refunded, 30 left\./);
    assert.match(shown.stderr, /Month in UTC\. It has not ended, so these figures will change\./);
    const { stdout } = await ledger.inkwell(...report, "--json");
    const { payments, total, over } = JSON.parse(stdout);
    assert.deepEqual([payments.length, total.left_micro, over], [1, 30_000_000, false]);
    const { store } = ledger;
    const periods = store.paymentPeriods.bind(store);
    let reads = 0;
    store.paymentPeriods = async (query) => {
      reads += 1;
      return await periods(query);
    };
    const csv = (await ledger.inkwell(...report, "--csv")).stdout.split("\r\n");
    assert.equal(reads, 1);
    assert.match(csv[0] ?? "", /^payment_id,account,at,left_before_micro,added_micro,spent_micro,/);
    assert.match(csv[1] ?? "", /^p1,alice,.*,0,50000000,0,20000000,30000000$/);
  });

  test("refuses what is no month, and one that has not begun", async () => {
    for (const wrong of ["2027", "2026-13", "2026-1", "january"])
      refused(await ledger.inkwell("credits", "report", "--month", wrong), /a year and a month, such as/);
    refused(await ledger.inkwell("credits", "report", "--month", "9999-01"), /month must have begun/);
    wrongUsage(await ledger.inkwell("credits", "report"), /--month/);
    const both = ["credits", "report", "--month", "2026-01", "--csv", "--json"];
    assert.match((await ledger.inkwell(...both)).stdout, /it is --csv or --json/);
  });
});
