/** The format of keys, and authentication by the Authorization header. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { authenticate, hashKey, keyCallerOf, mintKey, parseKey } from "../../src/accounts/keys.ts";
import { type CallerCode, Refusal } from "../../src/errors.ts";
import type { PlanVersion } from "../../src/ledger/plan.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { anyCharacter } from "../fixtures/characters.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { share } from "../fixtures/thorough.ts";
import { day, start } from "../fixtures/times.ts";

const plan = planOf("starter", 100, 10);
const version = { ...plan, version: 1, createdMs: start };
const activeAccount = { state: "active", endsMs: null } as const;
const key = mintKey();

/** A store that knows one key. */
function storeOf(change: Partial<KeyRow> = {}, planVersion: PlanVersion | null = version) {
  const row = keyOf("key_1", "ada", { hash: hashKey(key), ...change });
  const problem = planVersion === null ? "the database has no version of its plan" : null;
  return {
    lookups: 0,
    async findKey(hash: string) {
      this.lookups += 1;
      return hash === row.hash || hash === row.oldHash
        ? { key: row, account: activeAccount, plan: planVersion, problem }
        : null;
    },
  };
}

async function refusal(header: string | undefined, store = storeOf()): Promise<Refusal> {
  try {
    keyCallerOf(await authenticate(store, header, start));
  } catch (error) {
    assert.ok(error instanceof Refusal);
    assertNoKey(error, header);
    return error;
  }
  throw new assert.AssertionError({ message: `the header ${header} was accepted` });
}

/** Neither the message nor the log detail may contain a recognisable part of a key. */
function assertNoKey(error: Refusal, header: string | undefined): void {
  const said = `${error.message} ${error.detail} ${error.stack}`;
  for (const word of (header ?? "").split(/\s+/).filter((word) => word.length > 12)) {
    assert.ok(
      !said.includes(word.slice(0, 8)) && !said.includes(word.slice(-8)),
      "the message contains the key",
    );
  }
}

async function refused(header: string | undefined, code: CallerCode, says: RegExp, store = storeOf()) {
  const error = await refusal(header, store);
  assert.equal(error.code, code);
  assert.match(error.message, says);
}

test("a key is ink_ and 40 base62 characters; the last six are the CRC32 of the 34 before", () => {
  assert.match(key, /^ink_[0-9A-Za-z]{40}$/);
  assert.equal(parseKey(key), "ok");
  // A fixed example keeps old keys valid: the CRC32 of 34 zeros is 0x277f8325, in base62 0iqUEf.
  assert.equal(parseKey(`ink_${"0".repeat(34)}0iqUEf`), "ok");
});

test("generates every character of the alphabet with the same probability", () => {
  const counts = new Map<string, number>();
  const keys = 4000;
  for (let n = 0; n < keys; n += 1) {
    for (const character of mintKey().slice(4, 38)) counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  assert.equal(counts.size, 62);
  const expected = (keys * 34) / 62;
  let chiSquared = 0;
  for (const count of counts.values()) chiSquared += (count - expected) ** 2 / expected;
  // 61 degrees of freedom: above 140 once in ten million runs; a byte modulo 62 gives about 640.
  assert.ok(chiSquared < 140, `chi squared is ${chiSquared}`);
});

test("generates different keys", () => {
  const keys = new Set(Array.from({ length: 1000 }, mintKey));
  assert.equal(keys.size, 1000);
});

test("detects one wrong, missing, doubled or swapped character", () => {
  const other = (character: string) => (character === "a" ? "b" : "a");
  for (let at = 4; at < key.length; at += 1) {
    const before = key.slice(0, at);
    const here = key.charAt(at);
    const next = key.charAt(at + 1);
    assert.equal(parseKey(before + other(here) + key.slice(at + 1)), "mistyped");
    assert.equal(parseKey(before + key.slice(at + 1)), "mistyped");
    assert.equal(parseKey(before + here + key.slice(at)), "mistyped");
    if (next !== "" && next !== here) {
      assert.equal(parseKey(before + next + here + key.slice(at + 2)), "mistyped");
    }
  }
});

test("distinguishes a key of another service from a mistyped key", () => {
  for (const text of ["sk-proj-abcdef", "", "ink", "INK_", key.slice(4)])
    assert.equal(parseKey(text), "foreign");
  for (const text of ["ink_", `${key}x`, key.toLowerCase()]) assert.equal(parseKey(text), "mistyped");
});

test("refuses every malformed header without another error", async () => {
  const headers = fc.oneof(
    fc.string({ unit: anyCharacter }),
    fc.string().map((text) => `Bearer ${text}`),
    fc.string().map((text) => `Bearer ink_${text}`),
    fc.constantFrom("bearer", "Bearer  ", "Bearer\tink_", "Basic ink_x", "Bearer a b"),
  );
  await fc.assert(
    fc.asyncProperty(headers, async (header) => {
      const error = await refusal(header);
      assert.ok(error.code === "missing_api_key" || error.code === "invalid_api_key");
    }),
    { numRuns: share(500) },
  );
});

test("the hash is SHA-256 in lower-case hex", () => {
  assert.equal(hashKey("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});

test("authenticates a valid key as its account, with plan and models", async () => {
  const store = storeOf({ models: ["small"] });
  const row = keyOf("key_1", "ada", { hash: hashKey(key), models: ["small"] });
  const caller = { accountId: "ada", plan: version, key: row };
  assert.deepEqual(keyCallerOf(await authenticate(store, `Bearer ${key}`, start)), caller);
  assert.deepEqual(keyCallerOf(await authenticate(store, `  bearer   ${key} `, start)), caller);
});

test("reports a missing key for a missing or empty header and for Bearer alone", async () => {
  for (const header of [undefined, "", "  ", "Bearer", "Bearer "]) {
    await refused(header, "missing_api_key", /Authorization: Bearer ink_/);
  }
});

test("refuses another scheme and surplus words, and names the form of the header", async () => {
  await refused(`Basic ${key}`, "invalid_api_key", /must have the form: Bearer ink_/);
  await refused(`Bearer ${key} ${key}`, "invalid_api_key", /must have the form: Bearer ink_/);
  await refused(key, "invalid_api_key", /must have the form: Bearer ink_/);
});

test("refuses mistyped and foreign keys without reading the store", async () => {
  const store = storeOf();
  await refused(`Bearer ${key.slice(0, -1)}`, "invalid_api_key", /mistyped or incomplete/, store);
  await refused(`Bearer sk-${key.slice(4)}`, "invalid_api_key", /not an API key of this service/, store);
  assert.equal(store.lookups, 0);
});

test("refuses an unknown key", async () => {
  await refused(`Bearer ${mintKey()}`, "invalid_api_key", /is unknown/);
});

test("refuses a key if the store returns the row of another key", async () => {
  const store = {
    findKey: async () => ({
      key: keyOf("k", "ada", { hash: hashKey("other") }),
      account: activeAccount,
      plan: version,
      problem: null,
    }),
  };
  await assert.rejects(authenticate(store, `Bearer ${key}`, start), { code: "invalid_api_key" });
});

test("refuses a key from its expiry time on, and names that time", async () => {
  const store = storeOf({ expiresMs: start + day });
  const check = (header: string, nowMs: number) => authenticate(store, header, nowMs);
  assert.equal((await check(`Bearer ${key}`, start + day - 1)).key.id, "key_1");
  await assert.rejects(check(`Bearer ${key}`, start + day), {
    code: "invalid_api_key",
    message: /expired at 2026-01-16T12:00:00\.000Z/,
  });
});

test("accepts the old secret of a rotated key until the end of the overlap", async () => {
  const other = mintKey();
  const store = storeOf({ hash: hashKey(other), oldHash: hashKey(key), oldUntilMs: start + day });
  const check = (header: string, nowMs: number) => authenticate(store, header, nowMs);
  for (const secret of [key, other]) {
    assert.equal((await check(`Bearer ${secret}`, start + day - 1)).key.id, "key_1");
  }
  assert.equal((await check(`Bearer ${other}`, start + day)).key.id, "key_1");
  await assert.rejects(check(`Bearer ${key}`, start + day), {
    code: "invalid_api_key",
    message: /was valid until 2026-01-16T12:00:00\.000Z/,
  });
});

test("refuses both secrets of a revoked key", async () => {
  const other = mintKey();
  const rotated = { hash: hashKey(other), oldHash: hashKey(key), oldUntilMs: start + day };
  for (const secret of [key, other]) {
    const store = storeOf({ ...rotated, revokedMs: start - 1 });
    await refused(`Bearer ${secret}`, "invalid_api_key", /revoked/, store);
  }
});

test("reports balance_unavailable for a lost plan, with the reason only in the log detail", async () => {
  const error = await refusal(`Bearer ${key}`, storeOf({}, null));
  assert.equal(error.code, "balance_unavailable");
  assert.match(String(error.detail), /ada.*no version of its plan/);
  assert.doesNotMatch(error.message, /plan/);
});
