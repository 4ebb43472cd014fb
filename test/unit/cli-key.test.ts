/** `inkwell key`: issuing, listing and revoking keys. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

test("create prints only the key on stdout", async () => {
  await ledger.openAccount();
  const ran = await ledger.inkwell("key", "create", "alice");
  assert.match(ran.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
  assert.match(ran.stderr, /^The key of alice is shown only now\. .* inkwell key revoke key_[0-9a-f]{16}\n$/);
  const [row] = await ledger.store.keys("alice");
  assert.equal(row?.hash, hashKey(ran.stdout.trim()));
  assert.deepEqual([row.models, row.expiresMs], [["*"], null]);
});

test("create accepts a name, models, an expiry and limits", async () => {
  await ledger.openAccount();
  const options = [
    "--name",
    "ci",
    "--models",
    "small",
    "--expires",
    "2100-02-28",
    "--rpm",
    "5",
    "--tpm",
    "6",
    "--concurrent",
    "7",
  ];
  const { id } = await ledger.makeKey(...options);
  const row = ledger.store.key(id);
  assert.equal(row.name, "ci");
  assert.deepEqual(row.models, ["small"]);
  assert.equal(row.expiresMs, Date.UTC(2100, 1, 28));
  assert.deepEqual([row.requestsPerMinute, row.tokensPerMinute, row.concurrent], [5, 6, 7]);
});

test("create refuses an unknown account, an unknown model and a past expiry", async () => {
  refused(await ledger.inkwell("key", "create", "bob"), /There is no account bob/);
  await ledger.openAccount();
  refused(
    await ledger.inkwell("key", "create", "alice", "--models", "small,smal"),
    /no model "smal"\. Did you mean small\?/,
  );
  refused(
    await ledger.inkwell("key", "create", "alice", "--expires", "2020-01-01"),
    /would have expired already/,
  );
  assert.deepEqual(await ledger.store.keys(), []);
});

const bad: [option: string, value: string, message: RegExp][] = [
  ["--expires", "tomorrow", /ISO 8601 with its zone/],
  ["--expires", "2027-02-31", /ISO 8601 with its zone/],
  ["--expires", "2027-01-01T12:00:00", /ISO 8601 with its zone/],
  ["--rpm", "0", /A limit is a whole number from 1/],
  ["--tpm", "1.5", /A limit is a whole number/],
  ["--concurrent", "many", /A limit is a whole number/],
  ["--models", "a,,b", /list of model ids/],
  ["--name", "a\nb", /on one line/],
];
for (const [option, value, message] of bad) {
  test(`create refuses ${option} ${JSON.stringify(value)}`, async () => {
    wrongUsage(await ledger.inkwell("key", "create", "alice", option, value), message);
  });
}

test("list hides revoked and expired keys without --all", async () => {
  await ledger.openAccount();
  await ledger.openAccount("bob");
  const { id } = await ledger.makeKey();
  const kept = await ledger.makeKey();
  await ledger.inkwell("key", "create", "bob");
  await ledger.inkwell("key", "revoke", id);
  const ran = await ledger.inkwell("key", "list", "alice");
  assert.deepEqual(ran.stdout.match(/key_[0-9a-f]+/g), [kept.id]);
  assert.equal(ran.stderr, "1 more, revoked or expired: inkwell key list alice --all\n");
  assert.match((await ledger.inkwell("key", "list", "--json")).stderr, /: inkwell key list --all\n$/);
  const all = await ledger.documentOf("key", "list", "--all");
  assert.ok(Array.isArray(all) && all.length === 3);
  refused(await ledger.inkwell("key", "list", "carol"), /There is no account carol/);
});

test("revoke ends a key once and can be repeated", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey();
  assert.match(
    (await ledger.inkwell("key", "revoke", id)).stderr,
    /is revoked\. Requests with it are refused from now on/,
  );
  assert.ok(ledger.store.key(id).revokedMs !== null);
  const earlier = await ledger.makeKey();
  await ledger.store.revokeKey(earlier.id, Date.UTC(2026, 0, 1));
  assert.match(
    (await ledger.inkwell("key", "revoke", earlier.id)).stderr,
    /was revoked before, at 2026-01-01 00:00Z/,
  );
  assert.equal(ledger.store.key(earlier.id).revokedMs, Date.UTC(2026, 0, 1));
});

test("revoke refuses an unknown id", async () => {
  refused(await ledger.inkwell("key", "revoke", "key_0"), /There is no key "key_0"/);
});

test("list shows how to begin if there are none", async () => {
  await ledger.openAccount();
  assert.match(
    (await ledger.inkwell("key", "list", "alice")).stderr,
    /To issue one: inkwell key create alice\n$/,
  );
  assert.match((await ledger.inkwell("key", "list")).stderr, /inkwell key create ACCOUNT\n$/);
});
