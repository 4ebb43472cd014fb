/** `inkwell credits` and `inkwell balance`: each payment and correction counts once. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { additionalOf } from "../../src/ledger/additional.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";

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
    assert.equal(additionalOf(ledger.store.account("alice")), 50_000_000);
    refused(
      await ledger.inkwell("credits", "add", "alice", "51", "--payment", "p1"),
      /with 50 credits instead of 51/,
    );
    assert.equal(additionalOf(ledger.store.account("alice")), 50_000_000);
  });

  test("refund takes what is free of a payment once, and reports the rest", async () => {
    await ledger.openAccount();
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    const { id: key } = await ledger.makeKey();
    // The base and the overage credits, 5 credits of the payment that are spent, and 10 that are
    // held.
    const hold1 = hold("r1", 1_205_000_000, { account: "alice", key });
    await ledger.store.commit([hold1, settle("r1", 1_205_000_000, { account: "alice" })]);
    await ledger.store.commit([hold("r2", 10_000_000, { account: "alice", key })]);
    const refund = ["credits", "refund", "alice", "40", "--payment", "p1", "--id", "r1"];
    const first = await ledger.inkwell(...refund);
    assert.equal(
      first.stderr,
      "35 credits refunded from alice. The other 5 are held by running requests, and can be refunded when these have ended. It has 10 additional credits now.\n",
    );
    assert.match(
      (await ledger.inkwell(...refund)).stderr,
      /Refund r1 was made before, of 35 credits\. Nothing has changed\./,
    );
    const balance = await ledger.documentOf("balance", "alice");
    assert.deepEqual(await ledger.documentOf(...refund), {
      ...{ account: "alice", refund_id: "r1", payment_id: "p1", credits: 40 },
      ...{ refunded_micro: 35_000_000, rest_micro: 5_000_000, again: true, balance },
    });
    await ledger.store.commit([settle("r2", 0, { account: "alice" })]);
    const rest = await ledger.inkwell("credits", "refund", "alice", "5", "--payment", "p1", "--id", "r2");
    assert.equal(rest.stderr, "5 credits refunded from alice. It has 5 additional credits now.\n");
  });

  test("refund never takes a promotion", async () => {
    await ledger.openAccount();
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    await ledger.inkwell("credits", "add", "alice", "100", "--promotional", "--id", "g1");
    const { id: key } = await ledger.makeKey();
    // The promotion is spent first.
    await ledger.store.commit([hold("r1", 1_320_000_000, { account: "alice", key })]);
    await ledger.store.commit([settle("r1", 1_320_000_000, { account: "alice" })]);
    await ledger.inkwell("credits", "adjust", "alice", "100", "--reason", "goodwill", "--id", "g2");
    const refund = (credits: string, id: string) =>
      ledger.inkwell("credits", "refund", "alice", credits, "--payment", "p1", "--id", id);
    refused(await refund("31", "r1"), /30 credits are neither spent nor refunded/);
    assert.equal((await refund("30", "r1")).code, 0);
    assert.equal(additionalOf(ledger.store.account("alice")), 100_000_000);
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
      /^The balance cannot be read \(account alice: the database has no version of its plan "gone"\)\. If the plan of an account is missing, choose another with "npm run -s inkwell -- account set NAME --plan PLAN"/,
    );
    assert.doesNotMatch(ran.stderr, /The operator of this service/, "that is who reads it");
  });
});
