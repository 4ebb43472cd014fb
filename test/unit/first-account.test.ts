/** The first account of an installation with its key, and nodes that start together. */
import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { keyFileLeft, openFirstAccount } from "../../src/accounts/first-account.ts";
import { hashKey, mintKey } from "../../src/accounts/keys.ts";
import { OperatorError } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10));

function newStore() {
  const store = memoryStore(plans, () => start);
  return { store, ledger: new Ledger(store) };
}

test("issues one key if another node opens the account and issues the key in between", async () => {
  const { store, ledger } = newStore();
  const keysAfter = store.keysAfter.bind(store);
  // The second node has read the keys before the first one issued its key.
  const [noKeys] = [await keysAfter(null, 1)];
  const first = await openFirstAccount(store, ledger, null);
  store.keysAfter = async () => noKeys;
  const second = await openFirstAccount(store, ledger, null);
  assert.match(first?.key ?? "", /^ink_/);
  assert.equal(second, null);
  assert.equal((await keysAfter(null, 2)).length, 1);
});

test("completes a start that ended before the key was issued", async () => {
  const { store, ledger } = newStore();
  await ledger.apply({ kind: "open", account: "default", plan: "starter", by: "test" });
  const first = await openFirstAccount(store, ledger, null);
  assert.match(first?.key ?? "", /^ink_/);
  assert.equal(await openFirstAccount(store, ledger, null), null);
});

/** A new data folder, and the file of the first key in it. */
function newKeyFile() {
  const folder = mkdtempSync(path.join(tmpdir(), "inkwell-first-"));
  const dispose = () => rmSync(folder, { recursive: true });
  return { folder, file: path.join(folder, "first-key"), [Symbol.dispose]: dispose };
}

test("writes the key to a file that only its owner can read, and the key of the file works", async () => {
  using data = newKeyFile();
  const { store, ledger } = newStore();
  const first = await openFirstAccount(store, ledger, data.file);
  assert.deepEqual(first, { account: "default", plan: "starter", key: null, keyFile: data.file });
  const key = readFileSync(data.file, "utf8");
  assert.match(key, /^ink_\w{40}\n$/);
  if (process.platform !== "win32") assert.equal(statSync(data.file).mode & 0o777, 0o600);
  assert.equal((await store.findKey(hashKey(key.trim())))?.key.account, "default");
  assert.deepEqual(readdirSync(data.folder), ["first-key"]);
  assert.equal(await openFirstAccount(store, ledger, data.file), null, "the second start");
});

test("the key is in its file before it is in the ledger; the next start issues the same key", async () => {
  using data = newKeyFile();
  const { store, ledger } = newStore();
  const crash = () => Promise.reject(new Error("the process ends here"));
  for (const kind of ["open", "issue"]) {
    store.hooks.before = ([operation]) => (operation?.kind === kind ? crash() : undefined);
    const ending = new Ledger(store, { retriesMs: [] });
    await assert.rejects(openFirstAccount(store, ending, data.file), /ends here/);
    assert.equal((await store.accounts({ limit: 1 })).length, kind === "open" ? 0 : 1);
    assert.deepEqual(await store.keysAfter(null, 500), []);
  }
  store.hooks = {};
  const key = readFileSync(data.file, "utf8").trim();
  assert.equal((await openFirstAccount(store, ledger, data.file))?.keyFile, data.file);
  assert.equal(readFileSync(data.file, "utf8").trim(), key);
  assert.ok((await store.findKey(hashKey(key))) !== null);
});

test("opens nothing if the file cannot be written, or if it is not one that Inkwell wrote", {
  skip: process.platform === "win32" ? "needs links and modes" : false,
}, async () => {
  const key = `${mintKey()}\n`;
  const cases: [what: string, prepare: (file: string, folder: string) => void, message: RegExp][] = [
    ["a link", (file, folder) => symlinkSync(path.join(folder, "elsewhere"), file), /symbolic link/],
    ["a text", (file) => writeFileSync(file, "precious", { mode: 0o600 }), /exists and has no key/],
    ["a key that others can read", (file) => writeFileSync(file, key, { mode: 0o644 }), /can read it/],
    ["a folder", (file) => mkdirSync(file), /not a file with a secret/],
    ["no folder", (_, folder) => rmSync(folder, { recursive: true }), /ENOENT/],
  ];
  for (const [what, prepare, message] of cases) {
    const data = newKeyFile();
    const { store, ledger } = newStore();
    prepare(data.file, data.folder);
    const before = existsSync(data.folder) ? readdirSync(data.folder) : null;
    await assert.rejects(openFirstAccount(store, ledger, data.file), (error) => {
      assert.ok(error instanceof OperatorError, what);
      assert.match(error.message, message, what);
      assert.match(error.message, /No account was opened/);
      return true;
    });
    assert.deepEqual(await store.accounts({ limit: 1 }), [], what);
    if (before !== null) {
      assert.deepEqual(readdirSync(data.folder), before, `${what}: nothing is written or removed`);
      data[Symbol.dispose]();
    }
  }
});

test("of two nodes that start together, one issues its key, and the other one removes its file", async () => {
  using one = newKeyFile();
  using two = newKeyFile();
  const { store, ledger } = newStore();
  const firsts = await Promise.all([one, two].map(({ file }) => openFirstAccount(store, ledger, file)));
  assert.equal(firsts.filter((first) => first !== null).length, 1);
  const left = [one, two].filter(({ file }) => existsSync(file));
  assert.equal(left.length, 1);
  const [winner] = firsts.filter((first) => first !== null);
  assert.equal(winner?.keyFile, left[0]?.file);
});

test("two nodes that share a data folder issue the key of the same file", async () => {
  using data = newKeyFile();
  const { store, ledger } = newStore();
  const firsts = await Promise.all([1, 2].map(() => openFirstAccount(store, ledger, data.file)));
  const [key] = await store.keysAfter(null, 500);
  assert.equal(hashKey(readFileSync(data.file, "utf8").trim()), key?.hash);
  assert.equal(firsts.filter((first) => first?.keyFile === data.file).length, firsts.length);
});

test("reports whether the key of a file that is still there works", async () => {
  using data = newKeyFile();
  const { store, ledger } = newStore();
  assert.equal(await keyFileLeft(store, data.file), null);
  await openFirstAccount(store, ledger, data.file);
  assert.deepEqual(await keyFileLeft(store, data.file), { works: true });
  await revokeKey(store, "key_0000000000000001");
  assert.deepEqual(await keyFileLeft(store, data.file), { works: false });
});

test("uses the plans of the database, even if another node replaces them in between", async () => {
  const { store, ledger } = newStore();
  const read = store.plans.bind(store);
  store.plans = async () => {
    const before = await read();
    store.plans = read;
    await store.applyPlans(plansOf(planOf("pro", 100, 10)), { force: false, by: "test" });
    return before;
  };
  assert.equal((await openFirstAccount(store, ledger, null))?.plan, "pro");
});
