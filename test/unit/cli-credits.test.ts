/** `inkwell credits` and `inkwell balance`: each payment and correction counts once. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Ledger } from "../../src/ledger/batcher.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { hold } from "../fixtures/ledger-operations.ts";

const ledger = cliLedger();

describe("credits", () => {
  test("add counts a payment once", async () => {
    await ledger.openAccount();
    const add = ["credits", "add", "alice", "50", "--payment", "p1"];
    assert.equal(
      (await ledger.inkwell(...add)).stderr,
      "50 credits added to alice. It has 50 additional credits now.\n",
    );
    assert.match((await ledger.inkwell(...add)).stderr, /Payment p1 was counted before. Nothing has changed/);
    assert.equal(ledger.store.account("alice").additional, 50_000_000);
    refused(
      await ledger.inkwell("credits", "add", "alice", "51", "--payment", "p1"),
      /with 50 credits instead of 51/,
    );
    assert.equal(ledger.store.account("alice").additional, 50_000_000);
  });

  test("add prints the balance and whether the payment was known with --json", async () => {
    await ledger.openAccount();
    const add = ["credits", "add", "alice", "50", "--payment", "p1"];
    for (const again of [false, true]) {
      const document = await ledger.documentOf(...add);
      const balance = await ledger.documentOf("balance", "alice");
      assert.deepEqual(document, { account: "alice", payment_id: "p1", credits: 50, again, balance });
    }
  });

  test("refund takes what is free of a payment once, and reports the rest", async () => {
    await ledger.openAccount();
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    await ledger.inkwell("credits", "adjust", "alice", "-20", "--reason", "spent", "--id", "a1");
    const refund = ["credits", "refund", "alice", "40", "--payment", "p1", "--id", "r1"];
    const first = await ledger.inkwell(...refund);
    assert.equal(
      first.stderr,
      "30 credits refunded from alice. The other 10 are spent or held, and are not refunded. It has 0 additional credits now.\n",
    );
    assert.match(
      (await ledger.inkwell(...refund)).stderr,
      /Refund r1 was made before, of 30 credits\. Nothing has changed\./,
    );
    const balance = await ledger.documentOf("balance", "alice");
    assert.deepEqual(await ledger.documentOf(...refund), {
      ...{ account: "alice", refund_id: "r1", payment_id: "p1", credits: 40 },
      ...{ refunded_micro: 30_000_000, rest_micro: 10_000_000, again: true, balance },
    });
  });

  test("refund refuses what does not match, and changes nothing", async () => {
    await ledger.openAccount();
    await ledger.openAccount("bob");
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    await ledger.inkwell("credits", "add", "bob", "50", "--payment", "p2");
    const refund = (account: string, credits: string, payment: string, id: string) =>
      ledger.inkwell("credits", "refund", account, credits, "--payment", payment, "--id", id);
    refused(await refund("alice", "1", "p2", "r1"), /Account alice has no payment "p2"/);
    refused(await refund("alice", "51", "p1", "r1"), /Of payment "p1", 50 credits are not refunded yet/);
    assert.equal((await refund("alice", "10", "p1", "r1")).code, 0);
    refused(await refund("alice", "41", "p1", "r2"), /40 credits are not refunded yet/);
    refused(await refund("alice", "11", "p1", "r1"), /of payment "p1" with 10 credits instead of .* 11/);
    refused(await refund("bob", "10", "p2", "r1"), /Refund "r1" was made on account alice before/);
    refused(await refund("carl", "10", "p2", "r3"), /There is no account carl/);
    wrongUsage(await refund("alice", "0", "p1", "r4"), /from 1 to/);
    assert.equal(ledger.store.account("alice").additional, 40_000_000);
    assert.equal(ledger.store.account("bob").additional, 50_000_000);
  });

  test("adjust prints the document of the operator API with --json", async () => {
    await ledger.openAccount();
    const document = await ledger.documentOf("credits", "adjust", "alice", "7", "--reason", "r", "--id", "i");
    const balance = await ledger.documentOf("balance", "alice");
    assert.deepEqual(document, { account: "alice", operation_id: "i", credits: 7, again: false, balance });
  });

  test("adjust goes up and down, but not below zero", async () => {
    await ledger.openAccount();
    const adjust = (credits: string, id: string, reason = "a gift") =>
      ledger.inkwell("credits", "adjust", "alice", credits, "--reason", reason, "--id", id);
    assert.match((await adjust("30", "i1")).stderr, /Account alice has 30 additional credits now\./);
    assert.match((await adjust("-10", "i2")).stderr, /has 20 additional credits now\./);
    assert.match((await adjust("-10", "i2")).stderr, /Adjustment i2 was made before/);
    refused(
      await adjust("-9", "i2"),
      /was made before, with -10 credits and the reason "a gift" instead of -9 and "a gift"/,
    );
    refused(await adjust("-10", "i2", "a slip"), /the reason "a gift" instead of -10 and "a slip"/);
    refused(await adjust("-21", "i3"), /has 20 additional credits\. An adjustment cannot take away more/);
    assert.equal(ledger.store.account("alice").additional, 20_000_000);
  });

  test("refuse an unknown account", async () => {
    refused(await ledger.inkwell("credits", "add", "bob", "5", "--payment", "p"), /There is no account bob/);
  });

  for (const amount of ["0", "-5", "1.5", "1e3", "9000001", "ten", ""]) {
    test(`add refuses ${JSON.stringify(amount)} credits`, async () => {
      wrongUsage(
        await ledger.inkwell("credits", "add", "alice", amount, "--payment", "p"),
        /Credits are a whole number from 1 to 9000000/,
      );
    });
  }

  test("require their ids", async () => {
    wrongUsage(await ledger.inkwell("credits", "add", "alice", "5"), /required option '--payment <id>'/);
    wrongUsage(
      await ledger.inkwell("credits", "adjust", "alice", "5", "--reason", "x"),
      /required option '--id <id>'/,
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
      /^The balance cannot be read \(account alice: the database has no version of its plan "gone"\)\. If the plan of an account is missing, choose another with "npm run -s inkwell -- account set NAME --plan PLAN"/,
    );
    assert.doesNotMatch(ran.stderr, /The operator of this service/, "that is who reads it");
  });
});
