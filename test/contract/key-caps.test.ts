/** Caps of keys and plans under concurrent requests on two nodes, on every store. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { authenticate, hashKey, mintKey } from "../../src/accounts/keys.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { HoldOperation, KeySettings } from "../../src/ledger/operations.ts";
import type { OutcomeOf } from "../../src/ledger/outcomes.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, freeIn, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { day, minute } from "../fixtures/times.ts";

function capOf(amountMicro: number): KeySettings {
  return { caps: [{ amountMicro, every: "P1D", byOperator: true }] };
}

/** What a key with one cap has spent, and what its requests hold. */
function countedOf(key: KeyRow | null): { spentMicro: number; heldMicro: number } {
  assert.ok(key !== null);
  const heldMicro = key.running.reduce((sum, each) => sum + each.heldMicro, 0);
  return { spentMicro: key.counters[0]?.spentMicro ?? 0, heldMicro };
}

/** One credit is a million micro-credits, and the price of a million tokens. */
const plan = planOf("one", 1, 0);

for (const backend of backends) {
  describe(`caps of keys on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let stores: [Store, Store];
    let ledgers: Ledger[];
    beforeEach(async () => {
      database = backend.create(plansOf(plan));
      stores = [await database.open(), await database.open()];
      ledgers = stores.map((store) => new Ledger(store));
      await stores[0].commit([{ kind: "open", account: "ada", plan: plan.id, by: "test" }]);
      await addKey(stores[0], keyOf("key", "ada", { hash: "1".repeat(64) }));
      await addKey(stores[0], keyOf("other", "ada", { hash: "2".repeat(64) }));
      // Charges within a minute of the start of a window are not audited exactly.
      for (const key of ["key", "other"]) await set(key, capOf(100_000));
      database.clock.advance(2 * minute);
    });
    afterEach(async () => {
      await database.remove();
    });

    async function freeBase(): Promise<number> {
      const { account } = (await stores[0].accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      return freeIn(account).base;
    }

    let changes = 0;
    async function set(key: string, settings: KeySettings, node = 0) {
      changes += 1;
      const operation = {
        kind: "key",
        account: "ada",
        key,
        op: `c${changes}`,
        set: settings,
        by: "test",
      } as const;
      return await ledgers[node]?.apply(operation);
    }

    /** Takes 7,000 and uses 6,000, again while running requests hold the rest. */
    async function request(id: string, key: string, node: number): Promise<string> {
      const ledger = ledgers[node];
      assert.ok(ledger !== undefined);
      for (let attempt = 0; ; attempt += 1) {
        const held: OutcomeOf<HoldOperation> = await ledger.apply(
          hold(`${id}-${attempt}`, 7000, { key, minMicro: 1000 }),
        );
        if (held.kind === "held") {
          await ledger.apply(settle(`${id}-${attempt}`, Math.min(6000, held.amountMicro)));
          return "held";
        }
        if (held.kind !== "credits_reserved") return held.kind;
      }
    }

    test("are exact for one key", async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 50 }, (_, n) => request(`r${n}`, "key", n % 2)),
      );
      const { spentMicro, heldMicro } = countedOf(await stores[0].keyById("key"));
      assert.equal(heldMicro, 0);
      assert.ok(spentMicro > 99_000 && spentMicro <= 100_000, String(spentMicro));
      assert.deepEqual(new Set(outcomes), new Set(["held", "cap_reached"]));
      await assertSound(database);
    });

    test("of the plan are exact for all keys, and so are those of some models", async () => {
      const caps = [
        { name: "P1D", credits: 1, every: "P1D", align: "opening", models: ["*"] },
        { name: "dear", credits: 1, every: "P1M", align: "calendar", models: ["mod*"] },
      ] as const;
      // Enough credits for all: the caps are what is short.
      const rich = plansOf(planOf("one", 50, 0, { caps }), planOf("rich", 50, 0, { caps }));
      await stores[0].applyPlans(rich, { force: false, by: "test" });
      await stores[0].commit([{ kind: "open", account: "bob", plan: "rich", by: "test" }]);
      for (const [n, id] of ["b1", "b2"].entries())
        await addKey(stores[0], keyOf(id, "bob", { hash: `${n + 5}`.repeat(64) }));
      database.clock.advance(2 * minute);
      const outcomes = await Promise.all(
        Array.from({ length: 60 }, async (_, n) => {
          const ledger = ledgers[n % 2];
          const of = { account: "bob", key: n % 4 < 2 ? "b1" : "b2" };
          const held = await ledger?.apply(hold(`b${n}`, 70_000, { ...of, minMicro: 10_000 }));
          if (held?.kind === "held") await ledger?.apply(settle(`b${n}`, 60_000, of));
          return held?.kind;
        }),
      );
      const { account } = (await stores[1].accountSnapshot("bob")) ?? {};
      const spent = account?.counters.map(({ name, spentMicro }) => [name, spentMicro]) ?? [];
      for (const [name, micro] of spent)
        assert.ok(Number(micro) > 600_000 && Number(micro) <= 1_000_000, `${name}: ${micro}`);
      assert.deepEqual(spent.map(([name]) => name).toSorted(), ["P1D", "dear"]);
      assert.deepEqual(account?.running, []);
      assert.ok(
        outcomes.every((kind) => kind === "held" || kind === "cap_reached" || kind === "credits_reserved"),
      );
      await assertSound(database);
    });

    test("are exact for two keys that share a pool", async () => {
      await addKey(stores[0], keyOf("third", "ada", { hash: "3".repeat(64) }));
      await ledgers[0]?.apply(hold("r", 850_000, { key: "third" }));
      await ledgers[0]?.apply(settle("r", 850_000));
      const outcomes = await Promise.all(
        Array.from({ length: 100 }, (_, n) => request(`r${n}`, n % 4 < 2 ? "key" : "other", n % 2)),
      );
      const spent = await Promise.all(
        ["key", "other"].map(async (key) => countedOf(await stores[1].keyById(key)).spentMicro),
      );
      const sum = spent.reduce((total, each) => total + each, 0);
      assert.ok(
        spent.every((each) => each <= 100_000),
        spent.join(),
      );
      assert.ok(sum > 149_000 && sum <= 150_000, spent.join());
      assert.ok(outcomes.includes("insufficient_credits"));
      assert.equal(await freeBase(), 150_000 - sum);
      await assertSound(database);
    });

    test("follow a change on another node in the next commit, while requests run", async () => {
      const running = Array.from({ length: 20 }, (_, n) => request(`r${n}`, "key", n % 2));
      await set("key", capOf(30_000), 1);
      const inTime = countedOf(await stores[0].keyById("key"));
      await Promise.all(running);
      const { spentMicro } = countedOf(await stores[0].keyById("key"));
      // Requests that already held more when the cap became smaller have finished.
      const most = Math.max(30_000, inTime.spentMicro + inTime.heldMicro);
      assert.ok(spentMicro <= most, `${spentMicro} of ${most}`);
      assert.equal(await request("late", "key", 0), "cap_reached");
      await set("key", capOf(40_000 + most), 1);
      assert.equal(await request("more", "key", 0), "held");
      await assertSound(database);
    });

    test("keep both secrets of a rotated key valid on every node, and revocation ends both", async () => {
      const secrets = Array.from({ length: 5 }, mintKey);
      const isValid = async (secret: string, node: number) => {
        const store = stores[node];
        assert.ok(store !== undefined);
        try {
          const { key } = await authenticate(store, `Bearer ${secret}`, database.clock.get());
          return key.id === "key";
        } catch {
          return false;
        }
      };
      for (const [n, secret] of secrets.entries()) {
        const before = n === 0 ? [] : Array.from({ length: 20 }, () => isValid(secrets[n - 1] ?? "", n % 2));
        const rotation = { hash: hashKey(secret), lastFour: secret.slice(-4), overlap: "P1D" };
        assert.equal((await set("key", { rotation }, n % 2))?.kind, "changed");
        const answers = await Promise.all(before);
        assert.ok(answers.every(Boolean), `rotation ${n}`);
        for (const node of [0, 1]) {
          assert.ok(await isValid(secret, node));
          if (n > 0) assert.ok(await isValid(secrets[n - 1] ?? "", node));
          if (n > 1) assert.ok(!(await isValid(secrets[n - 2] ?? "", node)));
        }
      }
      const [old = "", present = ""] = secrets.slice(-2);
      database.clock.advance(day - 1);
      assert.ok(await isValid(old, 0));
      database.clock.advance(1);
      assert.deepEqual([await isValid(old, 0), await isValid(present, 0)], [false, true]);
      const next = mintKey();
      await set("key", { rotation: { hash: hashKey(next), lastFour: next.slice(-4), overlap: "P1D" } });
      await Promise.all([revokeKey(stores[1], "key"), set("key", { name: "x" })]);
      for (const secret of [present, next]) assert.ok(!(await isValid(secret, 0)));
      assert.ok((await stores[0].keyById("key"))?.revokedMs);
      await assertSound(database);
    });
  });
}
