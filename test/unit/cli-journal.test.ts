/** `inkwell account journal` and `inkwell credits payments`: their rows and order. */
import assert from "node:assert/strict";
import { userInfo } from "node:os";
import { test } from "node:test";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

async function fill(): Promise<void> {
  await ledger.openAccount();
  await ledger.inkwell("credits", "add", "alice", "50", "--payment", "p1");
  await ledger.inkwell("credits", "add", "alice", "30", "--payment", "p2");
  await ledger.inkwell("credits", "refund", "alice", "20", "--payment", "p1", "--id", "r1");
}

/** The cells of the lines below the head. */
function cellsOf(stdout: string): string[][] {
  return stdout
    .trim()
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/ {2,}/));
}

test("the journal has the newest entries first, with signs, their grants and who made them", async () => {
  await fill();
  const { stdout, stderr } = await ledger.inkwell("account", "journal", "alice", "--kind", "refund,payment");
  assert.equal(stderr, "");
  const time = "2027-01-15 12:00Z";
  const by = `${userInfo().username} (command line)`;
  assert.deepEqual(cellsOf(stdout), [
    ["6", time, "additional", "-20", `${by} took back 20 credits of payment p1 from alice`],
    ["5", time, "additional", "+30", `${by} added 30 credits to alice, paid for by p2`],
    ["4", time, "additional", "+50", `${by} added 50 credits to alice, paid for by p1`],
  ]);
});

test("the journal reports that the limit leaves entries out", async () => {
  await fill();
  const list = ["account", "journal", "alice", "--oldest", "--limit"];
  const cut = await ledger.inkwell(...list, "3");
  assert.match(cut.stderr, /There are more entries\. Raise --limit/);
  assert.deepEqual(
    cellsOf(cut.stdout).map(([seq]) => seq),
    ["1", "2", "3"],
  );
  assert.equal((await ledger.inkwell(...list, "6")).stderr, "");
});

test("the journal reads as many pages as it needs", async () => {
  await ledger.openAccount();
  for (let n = 0; n < 501; n++) {
    const topup = { kind: "topup", account: "alice", payment: `p${n}`, amountMicro: 1, by: "test" } as const;
    await ledger.store.commit([topup]);
  }
  const document = await ledger.documentOf("account", "journal", "alice", "--limit", "600");
  assert.ok(Array.isArray(document));
  assert.deepEqual(
    document.map(({ seq }) => seq),
    Array.from({ length: 504 }, (_, n) => 504 - n),
  );
  const payments = await ledger.documentOf("credits", "payments", "alice", "--limit", "600");
  assert.ok(Array.isArray(payments));
  assert.equal(payments.length, 501);
});

test("the journal refuses an unknown kind and lists the kinds", async () => {
  await ledger.openAccount();
  for (const kind of ["gift", "topup,gift", ""]) {
    const ran = await ledger.inkwell("account", "journal", "alice", "--kind", kind);
    wrongUsage(ran, /open, window, plan, change, payment, .*close, key/);
  }
  refused(await ledger.inkwell("account", "journal", "bob"), /no account bob/);
});

test("payments have what was spent and refunded of each, the newest first", async () => {
  await ledger.openAccount();
  const none = await ledger.inkwell("credits", "payments", "alice");
  assert.deepEqual([none.stdout, none.stderr], ["", "alice has no payment.\n"]);
  await ledger.begin();
  await fill();
  const { stdout } = await ledger.inkwell("credits", "payments", "alice");
  assert.deepEqual(cellsOf(stdout), [
    ["2027-01-15 12:00Z", "30", "0", "0", "p2"],
    ["2027-01-15 12:00Z", "50", "0", "20", "p1"],
  ]);
});
