/** `inkwell key`: issuing, listing and revoking keys. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { shown } from "../../src/actions/columns.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

test("create prints only the key on stdout", async () => {
  await ledger.openAccount();
  const ran = await ledger.inkwell("key", "create", "alice");
  assert.match(ran.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
  assert.match(
    ran.stderr,
    /^The key of alice is shown only now\. .* npm run -s inkwell -- key revoke key_[0-9a-f]{16}\n$/,
  );
  const [row] = await ledger.store.keys("alice");
  assert.equal(row?.hash, hashKey(ran.stdout.trim()));
  assert.deepEqual([row.models, row.expiresMs], [["*"], null]);
});

test("list hides revoked and expired keys without --all", async () => {
  await ledger.openAccount();
  await ledger.openAccount("bob");
  const { id } = await ledger.makeKey();
  const kept = await ledger.makeKey();
  await ledger.inkwell("key", "create", "bob");
  await ledger.inkwell("key", "revoke", id);
  const ran = await ledger.inkwell("key", "list", "alice");
  assert.deepEqual(ran.stdout.match(/key_[0-9a-f]+/g), [kept.id]);
  assert.equal(ran.stderr, "1 more, revoked or expired: npm run -s inkwell -- key list alice --all\n");
  assert.match(
    (await ledger.inkwell("key", "list", "--json")).stderr,
    /: npm run -s inkwell -- key list --all\n$/,
  );
  const all = await ledger.documentOf("key", "list", "--all");
  assert.ok(Array.isArray(all) && all.length === 3);
  refused(await ledger.inkwell("key", "list", "carol"), /There is no account carol/);
});

test("list shows how to begin if there are none", async () => {
  await ledger.openAccount();
  assert.match(
    (await ledger.inkwell("key", "list", "alice")).stderr,
    /To issue one: npm run -s inkwell -- key create alice\n$/,
  );
  assert.match((await ledger.inkwell("key", "list")).stderr, /npm run -s inkwell -- key create ACCOUNT\n$/);
});

test("set changes the named settings and keeps the others", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey("--name", "ci", "--rpm", "5", "--tpm", "6", "--expires", "2100-01-01");
  const ran = await ledger.inkwell("key", "set", id, "--rpm", "9", "--no-tpm", "--models", "small");
  assert.equal(ran.code, 0, ran.stderr);
  assert.match(ran.stderr, /is changed\. Its next request uses these settings/);
  assert.match(ran.stdout, /Limits +9 requests\/min\n/);
  assert.partialDeepStrictEqual(ledger.store.key(id), {
    name: "ci",
    requestsPerMinute: 9,
    tokensPerMinute: null,
    models: ["small"],
    expiresMs: Date.UTC(2100, 0, 2),
    portal: "own",
  });
  const raised = await ledger.inkwell("key", "set", id, "--portal", "account");
  assert.match(raised.stdout, /portal +manages all keys of the account\n/);
  await ledger.inkwell("key", "set", id, "--no-name", "--no-rpm", "--expires", "never", "--concurrent", "2");
  assert.partialDeepStrictEqual(ledger.store.key(id), {
    name: null,
    requestsPerMinute: null,
    concurrent: 2,
    models: ["small"],
    expiresMs: null,
    portal: "account",
  });
});

test("show has each described field of a key", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey("--budget", "5", "--every", "P1D");
  const { stdout } = await ledger.inkwell("key", "show", id);
  for (const [name, [title]] of Object.entries(shown.key))
    if (name !== "id") assert.match(stdout, new RegExp(`^  ${title} +\\S`, "m"));
});

test("set changes amount and period of a budget, and removes it", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey();
  refused(
    await ledger.inkwell("key", "set", id, "--budget", "5"),
    /has no budget, so a new budget needs both/,
  );
  await ledger.inkwell("key", "set", id, "--budget", "5", "--every", "P1D");
  ledger.nowMs += 3_600_000;
  const changed = await ledger.documentOf("key", "set", id, "--budget", "8");
  assert.partialDeepStrictEqual(changed, {
    budget: {
      credits: 8,
      every: "P1D",
      left_micro: 8_000_000,
      spent_micro: 0,
      held_micro: 0,
      started_at: "2027-01-15T12:00:00.000Z",
      refreshes_at: "2027-01-16T12:00:00.000Z",
    },
  });
  assert.match((await ledger.inkwell("key", "list")).stdout, /BUDGET LEFT.*\n.*8 of 8 \(P1D\)/);
  await ledger.inkwell("key", "set", id, "--every", "P1M");
  assert.match((await ledger.inkwell("key", "show", id)).stdout, /refreshes +2027-02-15 13:00Z/);
  await ledger.inkwell("key", "set", id, "--no-budget");
  assert.equal(ledger.store.key(id).budgetMicro, null);
  assert.doesNotMatch((await ledger.inkwell("key", "list")).stdout, /BUDGET/);
});

test("set needs a setting, and half a budget is refused", async () => {
  const set = (...options: string[]) => ledger.inkwell("key", "set", "key_0", ...options);
  wrongUsage(await set(), /nothing to change: name at least one setting/);
  wrongUsage(await set("--no-budget", "--every", "P1D"), /--no-budget excludes --every/);
  const create = (...options: string[]) => ledger.inkwell("key", "create", "alice", ...options);
  wrongUsage(await create("--budget", "5"), /--every is missing/);
  wrongUsage(await create("--every", "P1D"), /--budget is missing/);
});

test("rotate prints only the new secret, and the old one stays valid for a day", async () => {
  await ledger.openAccount();
  const { id, key } = await ledger.makeKey("--name", "ci");
  const ran = await ledger.inkwell("key", "rotate", id);
  assert.match(ran.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
  assert.match(ran.stderr, /shown only now.*stays valid until 2027-01-16 12:00Z/);
  assert.partialDeepStrictEqual(ledger.store.key(id), {
    name: "ci",
    hash: hashKey(ran.stdout.trim()),
    lastFour: ran.stdout.trim().slice(-4),
    oldHash: hashKey(key),
    oldUntilMs: ledger.nowMs + 86_400_000,
  });
  assert.match((await ledger.inkwell("key", "list")).stdout, /OLD SECRET UNTIL\n.*2027-01-16 12:00Z/);
  assert.match(
    (await ledger.inkwell("key", "rotate", id, "--overlap", "none")).stderr,
    /old secret has ended/,
  );
  assert.partialDeepStrictEqual(await ledger.documentOf("key", "show", id), { old_secret_until: null });
});

test("rotate refuses an overlap above a year, and a key that has expired", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey("--expires", "2027-01-16T00:00:00Z");
  refused(await ledger.inkwell("key", "rotate", id, "--overlap", "P2Y"), /overlap must be at most a year/);
  const { hash } = ledger.store.key(id);
  ledger.nowMs += 86_400_000;
  refused(
    await ledger.inkwell("key", "rotate", id),
    /expired at 2027-01-16T00:00:00\.000Z\. Set a later expiry/,
  );
  assert.equal(ledger.store.key(id).hash, hash);
});

test("lookup reads a secret from stdin and shows its key, even after its end", async () => {
  await ledger.openAccount();
  const { id, key } = await ledger.makeKey("--name", "ci");
  const lookUp = (stdin: string, ...options: string[]) =>
    ledger.run(["key", "lookup", ...options], { stdin });
  const found = await lookUp(`${key}\n`);
  assert.match(
    found.stdout,
    new RegExp(`^Key ${id}\n  Secret +ink_\\.\\.\\.${key.slice(-4)}\n  Account +alice\n`),
  );
  assert.equal(found.stderr, "Requests with this secret are authenticated.\n");
  await ledger.inkwell("key", "revoke", id);
  const revoked = await lookUp(key, "--json");
  assert.partialDeepStrictEqual(JSON.parse(revoked.stdout), {
    secret: "present",
    usable: false,
    key: { id, account: "alice" },
  });
  refused(await lookUp(""), /This is not a key of Inkwell\./);
  refused(await lookUp(key.slice(0, -1)), /The key is mistyped or incomplete/);
});
