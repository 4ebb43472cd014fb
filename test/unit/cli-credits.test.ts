/** `inkwell credits` and `inkwell balance`: each payment and correction counts once. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { additionalOf } from "../../src/ledger/additional.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { unclearIds } from "../fixtures/unclear-ids.ts";

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

  test("refund refuses what does not match, and changes nothing", async () => {
    await ledger.openAccount();
    await ledger.openAccount("bob");
    await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
    await ledger.inkwell("credits", "add", "bob", "50", "--payment", "p2");
    const refund = (account: string, credits: string, payment: string, id: string) =>
      ledger.inkwell("credits", "refund", account, credits, "--payment", payment, "--id", id);
    refused(await refund("alice", "1", "p2", "r1"), /Account alice has no payment "p2"/);
    refused(
      await refund("alice", "51", "p1", "r1"),
      /Of payment "p1", 50 credits are neither spent nor refunded/,
    );
    assert.equal((await refund("alice", "10", "p1", "r1")).code, 0);
    refused(await refund("alice", "41", "p1", "r2"), /40 credits are neither spent nor refunded/);
    refused(
      await refund("alice", "11", "p1", "r1"),
      /Refund "r1" was made before, with other values: 10 of p1\./,
    );
    refused(await refund("bob", "10", "p2", "r1"), /Refund "r1" was made on account alice before/);
    refused(await refund("carl", "10", "p2", "r3"), /There is no account carl/);
    wrongUsage(await refund("alice", "0", "p1", "r4"), /from 1 to/);
    assert.equal(additionalOf(ledger.store.account("alice")), 40_000_000);
    assert.equal(additionalOf(ledger.store.account("bob")), 50_000_000);
  });

  test("adjust prints the document of the operator API with --json", async () => {
    await ledger.openAccount();
    const document = await ledger.documentOf("credits", "adjust", "alice", "7", "--reason", "r", "--id", "i");
    const balance = await ledger.documentOf("balance", "alice");
    assert.deepEqual(document, { account: "alice", operation_id: "i", credits: 7, again: false, balance });
  });

  test("adjust gives and takes promotional credits, and never more than there are", async () => {
    await ledger.openAccount();
    const adjust = (credits: string, id: string, reason = "a gift") =>
      ledger.inkwell("credits", "adjust", "alice", credits, "--reason", reason, "--id", id);
    assert.match((await adjust("30", "i1")).stderr, /It has 30 additional credits now\./);
    assert.match((await adjust("-10", "i2")).stderr, /has 20 additional credits now\./);
    assert.match((await adjust("-10", "i2")).stderr, /Adjustment i2 was made before/);
    refused(await adjust("-9", "i2"), /Operation "i2" made another change before: -10: a gift\./);
    refused(await adjust("-10", "i2", "a slip"), /made another change before: -10: a gift\./);
    refused(
      await adjust("-21", "i3"),
      /has 20 promotional credits that no request holds\. An adjustment cannot take away more/,
    );
    assert.equal(additionalOf(ledger.store.account("alice")), 20_000_000);
  });

  test("refuse an unknown account", async () => {
    refused(await ledger.inkwell("credits", "add", "bob", "5", "--payment", "p"), /There is no account bob/);
  });

  for (const amount of ["0", "-5", "1.5", "1e3", "9000001", "ten", ""]) {
    test(`add refuses ${JSON.stringify(amount)} credits`, async () => {
      wrongUsage(
        await ledger.inkwell("credits", "add", "alice", amount, "--payment", "p"),
        /credits must be whole credits from 1 to 9000000/,
      );
    });
  }

  test("require their ids", async () => {
    wrongUsage(
      await ledger.inkwell("credits", "add", "alice", "5"),
      /give either --payment ID or --promotional/,
    );
    wrongUsage(
      await ledger.inkwell("credits", "add", "alice", "5", "--payment", "p", "--promotional"),
      /give either --payment ID or --promotional/,
    );
    wrongUsage(
      await ledger.inkwell("credits", "refund", "alice", "5", "--payment", "p"),
      /required option '--id <id>'/,
    );
    wrongUsage(await ledger.inkwell("credits", "adjust", "alice", "5"), /required option '--reason <text>'/);
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

describe("an id that looks like another one", () => {
  for (const [what, id, character] of unclearIds) {
    // Arguments of a process are UTF-8 without NUL.
    if (!id.isWellFormed() || id.includes("\u0000")) continue;
    test(`is refused with ${what}, and the character is named`, async () => {
      await ledger.openAccount();
      const named = new RegExp(character.replaceAll("+", "\\+"));
      for (const command of [
        ["add", "50", "--payment", id],
        ["add", "50", "--promotional", "--id", id],
        ["adjust", "50", "--reason", "a test", "--id", id],
        ["adjust", "50", "--reason", "a test", "--request", id],
        ["refund", "50", "--payment", id, "--id", "r1"],
        ["refund", "50", "--payment", "p1", "--id", id],
      ]) {
        const [name = "", ...others] = command;
        wrongUsage(await ledger.inkwell("credits", name, "alice", ...others), named);
      }
      for (const command of [
        ["set", "alice"],
        ["create", "bob", "--plan", "starter"],
      ])
        wrongUsage(await ledger.inkwell("account", ...command, "--external-id", id), named);
      assert.equal(additionalOf(ledger.store.account("alice")), 0);
    });
  }
});
