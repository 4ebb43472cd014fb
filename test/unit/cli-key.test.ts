/** `inkwell key`: issuing, listing and revoking keys. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { shown } from "../../src/actions/columns.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { fieldsOf } from "../fixtures/operator.ts";

const ledger = cliLedger();

test("create prints only the key on stdout", async () => {
  await ledger.openAccount();
  const ran = await ledger.inkwell("key", "create", "alice");
  assert.match(ran.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
  assert.match(
    ran.stderr,
    /^The key of alice is shown only now\. .* \.\/inkwell key revoke key_[0-9a-f]{16}\n$/,
  );
  const [row] = await ledger.store.keys("alice");
  assert.equal(row?.hash, hashKey(ran.stdout.trim()));
  assert.deepEqual([row.models, row.expiresMs], [["*"], null]);
});

test("a repetition says that the secret was shown before", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey();
  for (const words of [
    ["key", "create", "alice"],
    ["key", "rotate", id],
  ]) {
    const once = [...words, "--id", `${words[0]}-${words[1]}`];
    const first = await ledger.inkwell(...once);
    assert.notEqual(first.stdout, "", first.stderr);
    const again = await ledger.inkwell(...once);
    assert.deepEqual([again.code, again.stdout], [0, ""]);
    assert.match(again.stderr, /^This was done before, and only the first answer has the secret of key_/);
  }
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
  assert.equal(ran.stderr, "1 more, revoked or expired: ./inkwell key list alice --all\n");
  assert.match((await ledger.inkwell("key", "list", "--json")).stderr, /: \.\/inkwell key list --all\n$/);
  const all = await ledger.documentOf("key", "list", "--all");
  assert.ok(Array.isArray(all) && all.length === 3);
  refused(await ledger.inkwell("key", "list", "carol"), /There is no account carol/);
});

test("list shows how to begin if there are none", async () => {
  await ledger.openAccount();
  assert.match(
    (await ledger.inkwell("key", "list", "alice")).stderr,
    /To issue one: \.\/inkwell key create alice\n$/,
  );
  assert.match((await ledger.inkwell("key", "list")).stderr, /\.\/inkwell key create ACCOUNT\n$/);
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

test("set changes amount and period of a budget, which is a list of one cap, and removes it", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey();
  await ledger.inkwell("key", "set", id, "--budget", "5", "--every", "P1D");
  ledger.nowMs += 3_600_000;
  const changed = fieldsOf(await ledger.documentOf("key", "set", id, "--budget", "8", "--every", "P1D"));
  assert.deepEqual(changed.spending_caps, [
    {
      ...{ name: "P1D", credits: 8, every: "P1D", align: "opening", timezone: "UTC", models: ["*"] },
      ...{ by_operator: true, left_micro: 8_000_000, spent_micro: 0, held_micro: 0 },
      ...{ started_at: "2027-01-15T12:00:00.000Z", refreshes_at: "2027-01-16T12:00:00.000Z" },
    },
  ]);
  assert.match((await ledger.inkwell("key", "list")).stdout, /CAPS LEFT.*\n.*8 of 8 \(P1D\)/);
  await ledger.inkwell("key", "set", id, "--budget", "8", "--every", "P1M");
  assert.match(
    (await ledger.inkwell("key", "show", id)).stdout,
    /Spending caps +P1M: 8 of 8 left \(P1M\); refreshes 2027-02-15 13:00Z\n/,
  );
  const own = { caps: [{ amountMicro: 7_000_000, every: "P1M", byOperator: false }] };
  const change = { kind: "key", account: "alice", key: id, op: "own", by: "test", set: own } as const;
  await ledger.store.commit([change]);
  const { stdout } = await ledger.inkwell("key", "show", id);
  assert.match(stdout, /P1M: 7 of 7 left \(P1M\); refreshes 2027-02-15 13:00Z; set in the portal\n/);
  await ledger.inkwell("key", "set", id, "--caps", "none");
  assert.deepEqual(ledger.store.key(id).caps, []);
  assert.match((await ledger.inkwell("key", "show", id)).stdout, /Spending caps +-\n/);
  assert.doesNotMatch((await ledger.inkwell("key", "list")).stdout, /CAPS/);
});

test("set takes a list of caps with names, alignments, zones and models", async () => {
  await ledger.openAccount();
  const { id } = await ledger.makeKey(
    "--caps",
    " 300/PT5H,1000/P1W/calendar, dear 200/P1D/calendar/Asia/Tokyo of sm*  small",
  );
  const shown = fieldsOf(await ledger.documentOf("key", "show", id)).spending_caps;
  assert.partialDeepStrictEqual(shown, [
    { name: "PT5H", credits: 300, every: "PT5H", align: "opening", models: ["*"] },
    { name: "P1W", credits: 1000, align: "calendar", timezone: "UTC" },
    { name: "dear", credits: 200, every: "P1D", timezone: "Asia/Tokyo", models: ["sm*", "small"] },
  ]);
  const { stdout } = await ledger.inkwell("key", "show", id);
  assert.match(
    stdout,
    /\n +dear: 200 of 200 left \(P1D, Asia\/Tokyo, of sm\* small\); refreshes 2027-01-15 15:00Z\n/,
  );
  assert.match(
    (await ledger.inkwell("key", "list")).stdout,
    /300 of 300 \(PT5H\), 1,000 of 1,000 \(P1W\), 200 of 200 \(dear\)/,
  );
  const [row] = ledger.store.key(id).caps;
  assert.equal(row?.byOperator, true);
  for (const [word, says] of [
    ["300", /--caps must be up to 4 caps/],
    ["300/PT5H 5/P1D", /--caps must be up to 4 caps/],
    ["x/P1D", /--caps must be up to 4 caps/],
  ] as const)
    wrongUsage(await ledger.inkwell("key", "set", id, "--caps", word), says);
  for (const [word, says] of [
    ["1/P1D,2/P1W,3/P1M,4/PT1H,5/PT2H", /--caps must be up to 4 caps/],
    ["300/monthly", /--caps.* must be an ISO 8601 period/],
    ["300/PT5H/calendar", /The period of the cap "PT5H" must be /],
    ["300/P1D/calendar/Mars", /--caps.* must be the name of a time zone/],
    ["300/P7D, P7D 5/P1W", /Two caps have the name "P7D" and the same period/],
  ] as const)
    refused(await ledger.inkwell("key", "set", id, "--caps", word), says);
  assert.deepEqual(fieldsOf(await ledger.documentOf("key", "show", id)).spending_caps, shown);
});

test("set needs a setting, and half a budget is refused", async () => {
  const set = (...options: string[]) => ledger.inkwell("key", "set", "key_0", ...options);
  wrongUsage(await set(), /nothing to change: name at least one setting/);
  wrongUsage(await set("--budget", "5"), /--every is missing/);
  wrongUsage(
    await set("--caps", "none", "--every", "P1D", "--budget", "5"),
    /--caps excludes --budget, --every/,
  );
  const create = (...options: string[]) => ledger.inkwell("key", "create", "alice", ...options);
  wrongUsage(await create("--budget", "5"), /--every is missing/);
  wrongUsage(await create("--every", "P1D"), /--budget is missing/);
  wrongUsage(await create("--caps", "5/P1D", "--budget", "5", "--every", "P1D"), /--caps excludes/);
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
