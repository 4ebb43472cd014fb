/**
 * Rows that the writer keeps between commits: a change by anybody else is seen by the next commit.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, afterEach, beforeEach, test } from "node:test";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { SqliteCommits } from "../../src/store/sqlite/commits.ts";
import { openToWrite } from "../../src/store/sqlite/open-to-write.ts";
import { RowCache } from "../../src/store/sqlite/row-cache.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";

const plans = plansOf(planOf("starter", 100, 10));
const folder = mkdtempSync(join(tmpdir(), "inkwell-row-cache-"));
after(() => rmSync(folder, { recursive: true }));

let path = "";
let count = 0;
beforeEach(() => {
  count += 1;
  path = join(folder, `${count}.db`);
});

const opened: Store[] = [];
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
});

async function open(): Promise<Store> {
  const store = await openSqliteStore({ path, plans });
  opened.push(store);
  return store;
}

/** A store whose writer keeps an account, its key and an open hold of 10 credits. */
async function warmStore(): Promise<Store> {
  const store = await open();
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  const [held] = await store.commit([hold("h1", credits(10))]);
  assert.equal(held?.kind, "held");
  return store;
}

function isSound(): void {
  assert.deepEqual(auditFile({ file: { path, busyMs: 5000 }, nowMs: Date.now() }).broken, []);
}

test("a commit sees credits that another process has added", async () => {
  const store = await warmStore();
  const other = await open();
  await other.commit([{ kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" }]);
  const outcomes = await store.commit([
    { kind: "topup", account: "ada", payment: "p2", amountMicro: credits(7), by: "test" },
  ]);
  assert.deepEqual(outcomes, [{ kind: "added", additionalMicro: credits(12), replayed: false }]);
  isSound();
});

test("a commit sees that another process has ended a hold, and charges it once", async () => {
  const store = await warmStore();
  const other = await open();
  const first = await other.commit([settle("h1", credits(4))]);
  assert.deepEqual(await store.commit([settle("h1", credits(9))]), first);
  const { account } = (await store.accountSnapshot("ada")) ?? {};
  assert.ok(account !== undefined);
  assert.equal(freeIn(account).base, credits(96));
  isSound();
});

test("a commit sees a hold and a checkpoint of another process", async () => {
  const store = await warmStore();
  const other = await open();
  const used = { promptTokens: 0, cachedTokens: 0, completionTokens: 5, reasoningTokens: 0 };
  const extension = { kind: "extend", account: "ada", requestId: "h1", usage: used, ttlMs: 60_000 } as const;
  await other.commit([{ ...extension, n: 1, moreMicro: credits(20) }, hold("h2", credits(30))]);
  const [extended] = await store.commit([{ ...extension, n: 2, moreMicro: credits(60) }]);
  // 100 and 10 less the holds of 10, 20 and 30.
  assert.deepEqual(extended, { kind: "extended", amountMicro: credits(50), reserved: true });
  isSound();
});

test("a commit sees a key that another connection has revoked", async () => {
  const store = await warmStore();
  await revokeKey(await open(), "key");
  assert.deepEqual(await store.commit([hold("h2", 1)]), [{ kind: "invalid_api_key", why: "was revoked" }]);
  isSound();
});

test("a commit sees a key that the same store has revoked", async () => {
  const store = await warmStore();
  await revokeKey(store, "key");
  assert.deepEqual(await store.commit([hold("h2", 1)]), [{ kind: "invalid_api_key", why: "was revoked" }]);
  isSound();
});

test("a commit that was rolled back leaves no trace in the next", async () => {
  const store = await warmStore();
  await store.close();
  const db = openToWrite({ path, busyMs: 500 }, { nowMs: Date.now(), plans });
  const ledger = new SqliteCommits(db, () => timesAt(Date.now()));
  assert.equal(ledger.commit([hold("h2", credits(20))])[0]?.kind, "held");
  db.exec("create temp trigger fail before insert on charge begin select raise(abort, 'a test'); end");
  assert.throws(() => ledger.commit([hold("h3", credits(30)), settle("h2", credits(1))]), /a test/);
  db.exec("drop trigger fail");
  const outcomes = ledger.commit([settle("h2", credits(1)), settle("h3", credits(30))]);
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ["settled", "unknown_hold"],
  );
  db.close();
  isSound();
});

test("rows are dropped above the limit, and not by commits of the ledger", async () => {
  const store = await warmStore();
  const snapshot = await store.accountSnapshot("ada");
  assert.ok(snapshot !== null);
  await store.close();
  const db = new DatabaseSync(path);
  const kept = new RowCache(db, 1);
  const commit = (id: string) => {
    db.exec("begin immediate");
    kept.begin();
    db.exec("update account set created_ms = created_ms + 1; commit");
    const accounts = [{ ...snapshot.account, id }];
    kept.end({
      accounts,
      keys: [],
      holdsPut: [],
      holdsEnded: [],
      journal: [],
      grants: [],
      charges: [],
      keysSet: [],
      keysNew: [],
      events: [],
      later: new Map(),
    });
    return [...kept.accounts.keys()];
  };
  assert.deepEqual(["a", "b", "c"].map(commit), [["a"], ["a", "b"], ["c"]]);
  db.close();
});
