/** Caps of plans on the command line. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { cliLedger, twoPlans } from "../fixtures/cli-ledger.ts";
import { fieldsOf, listOf } from "../fixtures/operator.ts";

const capped = twoPlans.replace(
  "overage: { credits: 200, every: P1M } }",
  "overage: { credits: 200, every: P1M }, caps: [{ credits: 300, every: PT5H }, { name: dear, credits: 40, every: P1D, models: [sm*] }] }",
);
const ledger = cliLedger(capped);
const lines =
  "cap PT5H: 300 of 300 left (PT5H); refreshes 2027-01-15 17:00Z\n" +
  "cap dear: 40 of 40 left (P1D, of sm*); refreshes 2027-01-16 12:00Z";

test("account show and balance have the caps of the plan", async () => {
  await ledger.openAccount();
  for (const command of [["account", "show"], ["balance"]]) {
    const { stdout } = await ledger.inkwell(...command, "alice");
    assert.ok(stdout.includes(`\n\n${lines}\n`), stdout);
  }
  const { spending_caps } = fieldsOf(await ledger.documentOf("account", "show", "alice"));
  assert.deepEqual(
    listOf(spending_caps).map(({ name, credits, spent_micro }) => [name, credits, spent_micro]),
    [
      ["PT5H", 300, 0],
      ["dear", 40, 0],
    ],
  );
});
