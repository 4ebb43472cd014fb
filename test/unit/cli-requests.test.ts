/** `inkwell requests`: lists what runs on all nodes, and stops one request. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { minute } from "../fixtures/times.ts";

const ledger = cliLedger();

/** Opens two accounts with a key each, and takes holds for them. */
async function startRequests(): Promise<void> {
  for (const account of ["alice", "bob"]) {
    await ledger.openAccount(account);
    const made = await ledger.documentOf("key", "create", account);
    const { id } = Object(made);
    await ledger.store.commit([hold(`${account}-1`, 1_500_000, { account, key: id, ttlMs: minute })]);
  }
  const [key] = await ledger.store.keys("alice");
  ledger.nowMs += 1000;
  await ledger.store.commit([
    hold("alice-2", 10, { account: "alice", key: key?.id ?? "", ttlMs: minute }),
    extend("alice-1", 1, 20, { account: "alice", ttlMs: minute }),
  ]);
}

/** What the process of a request does when it finds the stop. */
function stopsIts(request: string, end: () => Promise<void>): void {
  const { holdOf } = ledger.store.stopRequests;
  let asked = 0;
  ledger.store.stopRequests.holdOf = async (id) => {
    asked += 1;
    if (id === request && asked === 3) await end();
    return await holdOf(id);
  };
}

describe("requests list", () => {
  test("shows the requests of all accounts or one, oldest first, with their held credits", async () => {
    await startRequests();
    const { stdout, stderr } = await ledger.inkwell("requests", "list");
    assert.match(stdout, /^STARTED +ACCOUNT +KEY +MODEL +PROMPT +COMPLETION +HELD +REQUEST\n/);
    const rows = stdout.trim().split("\n").slice(1);
    assert.deepEqual(
      rows.map((row) => row.split(/ +/).at(-1)),
      ["alice-1", "bob-1", "alice-2"],
    );
    assert.match(rows[0] ?? "", /^2027-01-15 12:00Z +alice +key_\S+ .* 1\.50002 +alice-1$/);
    assert.equal(stderr, "3 requests, 3.00003 credits held. Tokens are those of the last checkpoint.\n");
    assert.match((await ledger.inkwell("requests", "list", "bob")).stdout, /bob-1\n$/);
    assert.doesNotMatch((await ledger.inkwell("requests", "list", "bob")).stdout, /alice/);
  });

  test("prints the objects of the operator API with --json", async () => {
    await startRequests();
    const [first, ...others] = Object(await ledger.documentOf("requests", "list", "alice"));
    assert.equal(others.length, 1);
    assert.deepEqual(
      [first.request_id, first.account, first.held_micro, first.created_at],
      ["alice-1", "alice", 1_500_020, "2027-01-15T12:00:00.000Z"],
    );
    assert.deepEqual(await ledger.documentOf("requests", "list", "bob").then((all) => Object(all).length), 1);
  });

  test("reads all pages", async () => {
    await startRequests();
    const [row] = await ledger.store.holds({ limit: 1 });
    assert.ok(row !== undefined);
    const all = Array.from({ length: 2500 }, (_, n) => ({ ...row, id: `r${String(n).padStart(4, "0")}` }));
    ledger.store.holds = async ({ after, limit }) => {
      const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after.id) + 1;
      return all.slice(from, from + limit);
    };
    assert.equal(Object(await ledger.documentOf("requests", "list")).length, 2500);
  });

  test("says that nothing runs, and that a process has died", async () => {
    await ledger.openAccount();
    const none = await ledger.inkwell("requests", "list");
    assert.deepEqual([none.stdout, none.stderr], ["", "No request is running.\n"]);
    ledger.begin();
    await startRequests();
    ledger.nowMs += minute;
    assert.match((await ledger.inkwell("requests", "list")).stderr, /\nRequests whose process has died: 3\./);
    refused(await ledger.inkwell("requests", "list", "zoe"), /There is no account zoe/);
  });
});

describe("requests stop", () => {
  test("waits until the request has ended, and names the command that shows its charge", async () => {
    await startRequests();
    stopsIts("alice-1", async () => {
      const [stop, ...others] = await ledger.store.stopRequests.since(0);
      assert.ok(stop !== undefined && others.length === 0);
      assert.equal(stop.id, "alice-1");
      const ended = { account: "alice", ending: "stopped", by: stop.by } as const;
      await ledger.store.commit([settle("alice-1", 1_250_000, ended)]);
    });
    const { code, stdout, stderr } = await ledger.inkwell("requests", "stop", "alice-1");
    assert.deepEqual([code, stdout], [0, ""]);
    assert.match(
      stderr,
      /^The request is stopped\. To see what it cost: \.\/inkwell usage --request-id alice-1\n$/,
    );
  });

  test("refuses a request that ended by itself", async () => {
    await startRequests();
    stopsIts("bob-1", async () => {
      await ledger.store.commit([settle("bob-1", 30, { account: "bob", ending: "stop" })]);
    });
    refused(await ledger.inkwell("requests", "stop", "bob-1"), /Request "bob-1" ended at \S+ \(stop\)\./);
  });

  test("refuses an unknown request and one that has ended, and changes nothing", async () => {
    await startRequests();
    refused(
      await ledger.inkwell("requests", "stop", "nothing"),
      /No request "nothing" is running\. It may have ended without a charge, or holds no credits yet\. Nothing has changed\. .*requests list/,
    );
    await ledger.store.commit([settle("bob-1", 30, { account: "bob", ending: "stop" })]);
    refused(
      await ledger.inkwell("requests", "stop", "bob-1"),
      /Request "bob-1" ended at 2027-01-15T12:00:01\.000Z \(stop\)\. Nothing has changed\./,
    );
    assert.deepEqual(await ledger.store.stopRequests.since(0), []);
  });
});

test("requests stop ends a request whose process is gone at its last checkpoint", async (t) => {
  let monotonicMs = 0;
  t.mock.method(performance, "now", () => (monotonicMs += 3000));
  await startRequests();
  const checkpoint = { account: "alice", usage: tokens(0, 500_000), ttlMs: minute };
  await ledger.store.commit([extend("alice-1", 2, 0, checkpoint)]);
  assert.deepEqual(await ledger.documentOf("requests", "stop", "alice-1"), {
    request_id: "alice-1",
    stopped: true,
  });
  assert.deepEqual(
    ledger.store.openHolds("alice").map(({ id }) => id),
    ["alice-2"],
  );
  const [charge] = ledger.store.charges("alice", "alice-1");
  assert.equal(charge?.costMicro, 500_000);
  const [stop] = await ledger.store.stopRequests.since(0);
  assert.equal(charge?.by, stop?.by, "the receipt names who stopped it");
  assert.ok(charge?.by !== null);
});
