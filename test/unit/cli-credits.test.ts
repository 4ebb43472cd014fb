/** `inkwell credits` and `inkwell balance`: each payment and correction counts once. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { hold } from "../fixtures/ledger-operations.ts";

const ledger = cliLedger();

describe("credits", () => {
  test("add gives promotional credits until their last day", async () => {
    await ledger.openAccount();
    const given = await ledger.inkwell(
      "credits",
      "add",
      "alice",
      "5",
      "--promotional",
      "--expires",
      "2027-01-31",
    );
    assert.equal(given.stderr, "5 promotional credits given to alice. It has 5 additional credits now.\n");
    const [grant] = ledger.store.account("alice").additional;
    assert.deepEqual([grant?.untilMs, grant?.isPayment], [Date.UTC(2027, 1, 1), false]);
  });

  test("add needs a payment or a promotion, and not both", async () => {
    wrongUsage(
      await ledger.inkwell("credits", "add", "alice", "5"),
      /give either --payment ID or --promotional/,
    );
    wrongUsage(
      await ledger.inkwell("credits", "add", "alice", "5", "--payment", "p", "--promotional"),
      /give either --payment ID or --promotional/,
    );
  });
});

describe("balance", () => {
  test("is the balance object of the API with --json", async () => {
    await ledger.openAccount();
    assert.deepEqual(await ledger.documentOf("balance", "alice"), {
      object: "balance",
      available: true,
      plan: "starter",
      balances: {
        base: { credits: 1000, percent: 100 },
        overage: { credits: 200, percent: 100 },
        additional: { credits: 0 },
        total: { credits: 1200, percent: 100 },
      },
      caps: { base: { credits: 1000 }, overage: { credits: 200 }, total: { credits: 1200 } },
      baseWindow: { startedAt: "2027-01-15T12:00:00.000Z", refreshesAt: "2027-01-16T12:00:00.000Z" },
      overageWindow: { startedAt: "2027-01-15T12:00:00.000Z", refreshesAt: "2027-02-15T12:00:00.000Z" },
    });
  });

  test("is a table without --json", async () => {
    await ledger.openAccount();
    assert.equal(
      (await ledger.inkwell("balance", "alice")).stdout,
      `Account alice, plan starter

BUCKET      CREDITS     OF      LEFT  REFRESHES
base          1,000  1,000  100.00 %  2027-01-16T12:00:00.000Z
overage         200    200  100.00 %  2027-02-15T12:00:00.000Z
additional        0
total         1,200  1,200  100.00 %
`,
    );
  });

  test("explains the credits that running requests hold", async () => {
    await ledger.openAccount();
    const { id: key } = await ledger.makeKey();
    await new Ledger(ledger.store).apply(hold("r1", 2_500_000, { account: "alice", key }));
    for (const argv of [
      ["balance", "alice"],
      ["account", "show", "alice"],
    ]) {
      const { stdout, stderr } = await ledger.inkwell(...argv);
      assert.match(stdout, /^base +1,000 /m, "held credits are still the account's");
      assert.match(stderr, /^Running requests hold 2\.5 of these credits\. /);
    }
  });

  test("reports the problem of a damaged account and exits 1", async () => {
    await ledger.openAccount();
    ledger.store.damage("alice", { plan: "gone" });
    const ran = await ledger.inkwell("balance", "alice");
    refused(
      ran,
      /^The balance of this account cannot be read\. .*\(account alice: the database has no version of its plan "gone"\) If the plan of an account is missing, choose another with "\.\/inkwell account set NAME --plan PLAN"/,
    );
  });
});
