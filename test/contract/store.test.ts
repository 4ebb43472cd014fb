/** The contract of every store, method by method. */
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, test } from "node:test";
import { factFields } from "../../src/ledger/fact-values.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { overdueMax, timesAt } from "../../src/ledger/snapshot.ts";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle, settledBy, tokens } from "../fixtures/ledger-operations.ts";
import { addKey, credits, freeIn, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, minute, start } from "../fixtures/times.ts";

const plans = plansOf(planOf("starter", 100, 10), planOf("bought", 0, 0));

/** Returns a hash for a key: 64 hexadecimal digits. */
function hashOf(n: number): string {
  return n.toString(16).padStart(64, "0");
}

for (const backend of backends) {
  describe(`the store on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    const databases: Database[] = [];
    after(async () => {
      for (const used of databases) await used.remove();
    });
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plans);
      databases.push(database);
      store = await database.open();
      await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("key", "ada", { hash: hashOf(1) }));
    });
    afterEach(async () => {
      await store.close();
      await assertSound(database);
    });

    test("a commit answers the operations in order and writes account, hold, journal and receipt", async () => {
      assert.deepEqual(
        await store.commit([
          hold("h1", credits(3)),
          { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
          { kind: "topup", account: "nobody", payment: "p1", amountMicro: 1, by: "test" },
          hold("h2", credits(2), { price: { prompt: 7, completion: 9, cachedPrompt: 2 }, promptTokens: 4 }),
        ]),
        [
          { kind: "held", amountMicro: credits(3), reserved: false, rates: {} },
          { kind: "added", additionalMicro: credits(5), replayed: false },
          { kind: "account_not_found", account: "nobody" },
          { kind: "held", amountMicro: credits(2), reserved: false, rates: {} },
        ],
      );
      database.clock.advance(250);
      const usage = { promptTokens: 4, cachedTokens: 3, completionTokens: 5, reasoningTokens: 2 };
      assert.partialDeepStrictEqual(
        await store.commit([settle("h2", 0, { usage, ending: "length", estimated: true, note: "odd" })]),
        [settledBy({ base: 58 })],
      );

      const snapshot = await store.accountSnapshot("ada");
      assert.deepEqual(snapshot, {
        account: {
          id: "ada",
          plan: "starter",
          nextPlan: null,
          planSinceMs: start,
          state: "active",
          endsMs: null,
          seq: 6,
          createdMs: start,
          atMs: start + 250,
          base: {
            seq: 2,
            amountMicro: credits(100),
            spentMicro: 58,
            heldMicro: credits(3),
            fromMs: start,
            untilMs: start + day,
            anchorMs: start,
            plan: "starter",
            version: 1,
          },
          overage: {
            seq: 3,
            amountMicro: credits(10),
            spentMicro: 0,
            heldMicro: 0,
            fromMs: start,
            untilMs: start + 31 * day,
            anchorMs: start,
            plan: "starter",
            version: 1,
          },
          additional: [
            { seq: 5, amountMicro: credits(5), spentMicro: 0, heldMicro: 0, isPayment: true, untilMs: null },
          ],
          later: { count: 0, freeMicro: 0, heldMicro: 0, untilMs: null },
          holds: 1,
          counters: [],
          running: [{ model: "model", heldMicro: credits(3), costMicro: 0 }],
          requestsTatMs: 0,
          tokensTatMs: 0,
          tokensLimit: null,
        },
        problem: null,
        overdue: [],
        later: [],
        times: timesAt(start + 250),
        plans: await store.plans(),
      });
      assert.deepEqual(await store.usage({ limit: 10 }), [
        {
          account: "ada",
          id: "h2",
          seq: 6,
          memoMicro: 0,
          atMs: start + 250,
          key: "key",
          planVersion: 1,
          model: "model",
          ending: "length",
          estimated: true,
          note: "odd",
          late: false,
          ...usage,
          pricePrompt: 7,
          priceCompletion: 9,
          priceCachedPrompt: 2,
          costMicro: 58,
          baseMicro: 58,
          overageMicro: 0,
          additionalMicro: 0,
          shortfallMicro: 0,
          paid: [{ grant: 2, bucket: "base", amountMicro: 58 }],
          by: null,
        },
      ]);
      const journal = await store.journal("ada", { limit: 10 });
      assert.deepEqual(
        journal.map(({ seq, kind, op }) => [seq, kind, op]),
        [
          [1, "open", null],
          [2, "window", null],
          [3, "window", null],
          [4, "key", null],
          [5, "payment", "payment:p1"],
          [6, "charge", null],
        ],
      );
      assert.deepEqual(journal[4], {
        account: "ada",
        seq: 5,
        atMs: start,
        kind: "payment",
        op: "payment:p1",
        by: "test",
        bucket: "additional",
        amountMicro: credits(5),
        grantSeq: null,
        subject: "p1",
        before: null,
        after: null,
        outcome: null,
      });
      assert.deepEqual(journal[5], {
        account: "ada",
        seq: 6,
        atMs: start + 250,
        kind: "charge",
        op: null,
        by: "service",
        bucket: null,
        amountMicro: -58,
        grantSeq: null,
        subject: "h2",
        before: null,
        after: null,
        outcome: null,
      });
    });

    test("repeated operations get the same answers and change nothing", async () => {
      const operations: Operation[] = [
        { kind: "open", account: "bob", plan: "bought", by: "test" },
        { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
        hold("h1", credits(3)),
        settle("h1", 100),
      ];
      const [, , held, settled] = await store.commit(operations);
      assert.equal(held?.kind, "held");
      const before = [await store.accountSnapshot("ada"), await store.journal("ada", { limit: 100 })];
      assert.deepEqual(await store.commit(operations), [
        { kind: "exists", plan: "bought" },
        { kind: "added", additionalMicro: credits(5), replayed: true },
        { kind: "ended" },
        settled,
      ]);
      assert.deepEqual(
        [await store.accountSnapshot("ada"), await store.journal("ada", { limit: 100 })],
        before,
      );
    });

    test("an operation sent twice in one batch is done once (aws-samples/sample-agentic-ai-acceleration-kr#79)", async () => {
      const topup = {
        kind: "topup",
        account: "ada",
        payment: "p1",
        amountMicro: credits(5),
        by: "test",
      } as const;
      const outcomes = await store.commit([topup, topup, hold("h1", credits(3)), hold("h1", credits(3))]);
      assert.deepEqual(outcomes.slice(0, 2), [
        { kind: "added", additionalMicro: credits(5), replayed: false },
        { kind: "added", additionalMicro: credits(5), replayed: true },
      ]);
      const { account } = (await store.accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      assert.equal(freeIn(account).base, credits(97));
    });

    test("rejects a payment id with another amount, also after a restart (getlago/lago-api#3618)", async () => {
      await store.commit([
        { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
      ]);
      await store.close();
      store = await database.open();
      assert.deepEqual(
        await store.commit([
          { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(6), by: "test" },
        ]),
        [{ kind: "payment_differs", payment: "p1", beforeMicro: credits(5), nowMicro: credits(6) }],
      );
    });

    test("a batch with one defective operation writes nothing, and the store continues to work", async () => {
      const before = await store.accountSnapshot("ada");
      const broken = settle("h1", 0, {
        usage: { promptTokens: 0, cachedTokens: 0, completionTokens: 0.5, reasoningTokens: 0 },
      });
      const topup = {
        kind: "topup",
        account: "ada",
        payment: "p1",
        amountMicro: credits(5),
        by: "test",
      } as const;
      await assert.rejects(store.commit([topup, hold("h1", credits(3)), broken]), /whole/);
      assert.deepEqual(await store.accountSnapshot("ada"), before);
      assert.deepEqual(await store.journal("ada", { afterSeq: 4, limit: 10 }), []);
      assert.deepEqual(await store.commit([topup]), [
        { kind: "added", additionalMicro: credits(5), replayed: false },
      ]);
    });

    test("a write that the database rejects rolls back the whole batch", async () => {
      // The kernel never writes a bad row, so the database rejects a good one.
      const allow = await database.refuseReceipts("not today");
      const before = await store.accountSnapshot("ada");
      await assert.rejects(store.commit([hold("h1", credits(3)), settle("h1", 10)]), /not today/);
      assert.deepEqual(await store.accountSnapshot("ada"), before);
      await allow();
      const [, settled] = await store.commit([hold("h1", credits(3)), settle("h1", 10)]);
      assert.partialDeepStrictEqual(settled, settledBy({ base: 10 }));
    });

    test("keeps the checkpoint and the extension of a running hold", async () => {
      const usage = { promptTokens: 1, cachedTokens: 1, completionTokens: 9, reasoningTokens: 3 };
      await store.commit([hold("h1", credits(3))]);
      database.clock.advance(minute / 2);
      assert.deepEqual(
        await store.commit([
          {
            kind: "extend",
            account: "ada",
            requestId: "h1",
            n: 1,
            moreMicro: credits(2),
            usage,
            ttlMs: minute,
          },
        ]),
        [{ kind: "extended", amountMicro: credits(2), reserved: false }],
      );
      assert.deepEqual(await store.overdueHolds(start + minute, { limit: 10 }), []);
      const [row, ...others] = await store.overdueHolds(start + 2 * minute, { limit: 10 });
      assert.deepEqual(others, []);
      assert.deepEqual(row, {
        account: "ada",
        id: "h1",
        key: "key",
        model: "model",
        createdMs: start,
        expiresMs: start + 1.5 * minute,
        takings: [{ grant: 2, bucket: "base", amountMicro: credits(5) }],
        extension: 1,
        extendedMicro: credits(2),
        meteredTokens: 1,
        ...usage,
        pricePrompt: 1,
        priceCompletion: 1,
        priceCachedPrompt: 1,
      });
    });

    test("an overdue hold is in the snapshot, and the next hold of the account ends it (tigerbeetle#2118)", async () => {
      await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("bobs", "bob", { hash: hashOf(2) }));
      await store.commit([
        hold("h1", credits(110), { ttlMs: minute }),
        hold("b1", credits(1), { account: "bob", key: "bobs", ttlMs: minute }),
      ]);
      database.clock.advance(minute);
      assert.deepEqual(
        (await store.accountSnapshot("ada"))?.overdue.map((row) => row.id),
        ["h1"],
      );
      const [outcome] = await store.commit([hold("h2", credits(110))]);
      assert.equal(outcome?.kind, "held");
      assert.deepEqual((await store.accountSnapshot("ada"))?.overdue, []);
      assert.deepEqual(
        (await store.overdueHolds(database.clock.get(), { limit: 10 })).map((row) => row.id),
        ["b1"],
      );
    });

    test("ends a limited number of overdue holds in a commit, soonest first, and defers only their account", async () => {
      await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("bobs", "bob", { hash: hashOf(2) }));
      const left = overdueMax + 5;
      const ids = Array.from({ length: left }, (_, n) => `left-${n}`);
      // The last hold is the first to expire.
      await store.commit(ids.map((id, n) => hold(id, credits(1), { ttlMs: minute - n })));
      database.clock.advance(minute);
      const later = { kind: "topup", account: "ada", payment: "p1", amountMicro: 1, by: "test" } as const;
      const asked = [
        hold("h1", credits(100)),
        hold("b1", credits(1), { account: "bob", key: "bobs" }),
        later,
      ];
      const [first, bobs, put] = await store.commit(asked);
      assert.equal(first?.kind, "more_overdue");
      assert.deepEqual(
        first.expired?.map(({ id }) => id),
        ids.toReversed().slice(0, overdueMax),
      );
      assert.equal(bobs?.kind, "held");
      assert.deepEqual(put, { kind: "more_overdue" }, "operations on an account keep their order");
      assert.equal((await store.accountSnapshot("ada"))?.account.holds, 5);
      const [held, , added] = await store.commit(asked);
      assert.equal(held?.kind, "held");
      assert.equal(held.expired?.length, 5);
      assert.equal(added?.kind, "added");
    });

    test("an extension keeps its hold alive if the account has too many overdue holds, and is deferred for credits only", async () => {
      await store.commit([
        hold("h1", credits(1), { ttlMs: 2 * minute }),
        ...Array.from({ length: overdueMax + 1 }, (_, n) =>
          hold(`left-${n}`, credits(0.5), { ttlMs: minute }),
        ),
      ]);
      database.clock.advance(minute);
      const used = { promptTokens: 1, cachedTokens: 0, completionTokens: 9, reasoningTokens: 0 };
      const extend = {
        kind: "extend",
        account: "ada",
        requestId: "h1",
        usage: used,
        ttlMs: 9 * minute,
      } as const;
      const [asking] = await store.commit([{ ...extend, n: 1, moreMicro: credits(1) }]);
      assert.equal(asking?.kind, "more_overdue");
      const kept = (await store.holds({ account: "ada", limit: 10 })).find(({ id }) => id === "h1");
      assert.deepEqual([kept?.expiresMs, kept?.completionTokens], [start + 10 * minute, 9]);
      const [extended] = await store.commit([{ ...extend, n: 1, moreMicro: credits(1) }]);
      assert.partialDeepStrictEqual(extended, { kind: "extended", amountMicro: credits(1) });
    });

    test("a balance counts as many overdue holds as ended as a commit ends", async () => {
      const left = Array.from({ length: overdueMax + 5 }, (_, n) =>
        hold(`left-${n}`, credits(1), { ttlMs: 0 }),
      );
      await store.commit(left);
      assert.equal((await store.accountSnapshot("ada"))?.overdue.length, overdueMax);
    });

    test("a settlement after the expiry of its hold adds a charge, once", async () => {
      await store.commit([hold("h1", credits(3), { ttlMs: minute })]);
      database.clock.advance(minute);
      const [outcome] = await store.commit([{ kind: "expire", account: "ada", requestId: "h1" }]);
      assert.equal(outcome?.kind, "expired");
      const expired = outcome.expired?.map((charge) => ({ ...charge, memoMicro: 0 }));
      assert.partialDeepStrictEqual(expired, await store.usage({ id: "h1", limit: 10 }));
      const late = settledBy({ base: 700 }, 0, {});
      assert.partialDeepStrictEqual(await store.commit([settle("h1", 700)]), [late]);
      assert.partialDeepStrictEqual(await store.commit([settle("h1", 700)]), [late], "and the same again");
      assert.deepEqual(
        (await store.usage({ id: "h1", limit: 10 })).map(({ ending, late, costMicro, completionTokens }) => [
          ending,
          late,
          costMicro,
          completionTokens,
        ]),
        [
          ["expired", false, 0, 0],
          ["stop", true, 700, 700],
        ],
      );
    });

    test("memos stand on the receipt of their request, and not on its late charge", async () => {
      const memo = (op: string, amount: number, request: string) =>
        ({
          kind: "promote",
          account: "ada",
          op,
          amountMicro: amount,
          untilMs: null,
          reason: "cut off",
          requestId: request,
          by: "test",
        }) as const;
      await store.commit([hold("h1", credits(3), { ttlMs: minute }), hold("h2", credits(1))]);
      await store.commit([extend("h1", 1, 0, { usage: tokens(0, 5), ttlMs: minute }), settle("h2", 9)]);
      database.clock.advance(minute);
      await store.commit([{ kind: "expire", account: "ada", requestId: "h1" }]);
      await store.commit([settle("h1", 700)]);
      const receipts = async (query: { id?: string }) =>
        (await store.usage({ ...query, limit: 10 })).map(({ id, late, memoMicro }) => [id, late, memoMicro]);
      await store.commit([memo("m1", 300, "h1"), memo("m2", 7, "h1"), memo("m3", 2, "h2")]);
      assert.deepEqual(await receipts({}), [
        ["h2", false, 2],
        ["h1", false, 307],
        ["h1", true, 0],
      ]);
      assert.deepEqual(await receipts({ id: "h2" }), [["h2", false, 2]]);
    });

    test("lists overdue holds soonest first, up to the limit", async () => {
      await store.commit([5, 3, 4, 1, 2].map((n) => hold(`h${n}`, credits(1), { ttlMs: n * minute })));
      const ids = async (atMs: number, limit: number) =>
        (await store.overdueHolds(atMs, { limit })).map((row) => row.id);
      assert.deepEqual(await ids(start + 4 * minute, 10), ["h1", "h2", "h3", "h4"]);
      assert.deepEqual(await ids(start + 4 * minute, 2), ["h1", "h2"]);
      assert.deepEqual(await ids(start + minute - 1, 10), []);
    });

    test("finds a key by its hash, with the plan of its account", async () => {
      const key = keyOf("full", "ada", {
        hash: hashOf(2),
        name: "laptop",
        models: ["small", 'qu"ote', "größer"],
        requestsPerMinute: 3,
        tokensPerMinute: 4,
        concurrent: 5,
        expiresMs: start + day,
      });
      assert.deepEqual(await addKey(store, key), { kind: "issued", key });
      const found = await store.findKey(hashOf(2));
      assert.deepEqual(found?.key, key);
      assert.deepEqual([found.plan?.id, found.plan?.version], ["starter", 1]);
      assert.equal(await store.findKey(hashOf(3)), null);
      assert.deepEqual(await store.keyById("full"), key);
      assert.equal(await store.keyById("none"), null);
      await store.commit([{ kind: "plan", account: "ada", op: "1", plan: "bought", at: "now", by: "test" }]);
      assert.equal((await store.findKey(hashOf(2)))?.plan?.id, "bought");
    });

    test("keys are found with the state of their account, several at once by their present secrets", async () => {
      await store.commit([{ kind: "open", account: "eve", plan: "starter", by: "test" }]);
      for (const [id, account, n] of [
        ["k2", "ada", 2],
        ["k3", "eve", 3],
      ] as const) {
        await addKey(store, keyOf(id, account, { hash: hashOf(n + 10) }));
        const rotation = { hash: hashOf(n), lastFour: "efgh", overlap: "P1D" };
        const rotated = { kind: "key", account, key: id, op: id, set: { rotation }, by: "test" } as const;
        assert.equal((await store.commit([rotated]))[0]?.kind, "changed");
      }
      const found = async () => {
        const keys = await store.findKeys([hashOf(2), hashOf(3), hashOf(12), hashOf(9)]);
        return keys
          .map(({ key, account, plan }) => [key.id, account, plan?.id])
          .toSorted(([one], [other]) => (String(one) < String(other) ? -1 : 1));
      };
      const active = { state: "active", endsMs: null };
      assert.deepEqual(await found(), [
        ["k2", active, "starter"],
        ["k3", active, "starter"],
      ]);
      const end = { kind: "end", endsMs: start + day } as const;
      await store.commit([{ kind: "state", account: "ada", op: "1", to: end, by: "test" }]);
      await store.commit([{ kind: "state", account: "eve", op: "2", to: { kind: "close" }, by: "test" }]);
      assert.deepEqual(await found(), [
        ["k2", { state: "active", endsMs: start + day }, "starter"],
        ["k3", { state: "closed", endsMs: null }, "starter"],
      ]);
      assert.deepEqual((await store.findKey(hashOf(13)))?.account, { state: "closed", endsMs: null });
      assert.deepEqual(await store.findKeys([]), []);
    });

    test("the mark of an account changes with its credits, its checkpoints and the minute, and with nothing else", async () => {
      const seen = new Set<string>();
      let atMs = start;
      const mark = async () => (await store.accountMark("ada", atMs)) ?? "";
      const changes = async () => {
        const now = await mark();
        const isNew = !seen.has(now);
        seen.add(now);
        return isNew;
      };
      assert.ok(await changes());
      assert.ok(!(await changes()), "nothing has changed");
      await store.commit([{ kind: "open", account: "eve", plan: "starter", by: "test" }]);
      assert.ok(!(await changes()), "another account has changed");
      await store.commit([hold("h1", credits(1))]);
      assert.ok(await changes(), "a hold");
      await store.commit([extend("h1", 1, 0, { usage: tokens(0, 5) })]);
      assert.ok(await changes(), "a checkpoint");
      await store.commit([
        { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(3), by: "test" },
      ]);
      assert.ok(await changes(), "a payment");
      await store.commit([{ kind: "plan", account: "ada", op: "1", plan: "bought", at: "now", by: "test" }]);
      assert.ok(await changes(), "another plan");
      atMs = start + minute - 1;
      assert.ok(!(await changes()), "the minute lasts");
      atMs = start + minute;
      assert.ok(await changes(), "in another minute, a window or a promotion may have ended");
      assert.ok(!(await changes()));
      assert.equal(await store.accountMark("nobody", start), null);
    });

    test("the limits that a hold counts on its key are read with the key", async () => {
      await addKey(
        store,
        keyOf("limited", "ada", { hash: hashOf(2), requestsPerMinute: 7, tokensPerMinute: 11 }),
      );
      database.clock.advance(5);
      await store.commit([hold("h1", credits(1), { key: "limited", promptTokens: 3 })]);
      const found = await store.findKey(hashOf(2));
      // Sevenths and elevenths of a minute: a rate limit must keep the fraction.
      assert.deepEqual(found?.key, {
        ...keyOf("limited", "ada", { hash: hashOf(2), requestsPerMinute: 7, tokensPerMinute: 11 }),
        lastUsedMs: start + 5,
        requestsTatMs: start + 5 + minute / 7,
        tokensTatMs: start + 5 + (3 * minute) / 11,
        tokensLimit: 11,
        holds: 1,
        running: [{ model: "model", heldMicro: credits(1), costMicro: 0 }],
      });
    });

    test("does not add a key for an account that does not exist", async () => {
      assert.deepEqual(await addKey(store, keyOf("key2", "nobody", { hash: hashOf(2) })), {
        kind: "account_not_found",
        account: "nobody",
      });
      assert.equal(await store.findKey(hashOf(2)), null);
    });

    test("rejects a second key with the same hash or id", async () => {
      await assert.rejects(addKey(store, keyOf("key2", "ada", { hash: hashOf(1) })), /UNIQUE/i);
      const issued = await addKey(store, keyOf("key", "ada", { hash: hashOf(2) }));
      assert.equal(issued.kind, "key_exists");
      assert.equal((await store.keyById("key"))?.hash, hashOf(1));
    });

    test("revokes a key once, and refuses the next hold with it", async () => {
      database.clock.advance(5);
      const revoke = { kind: "revoke", account: "ada", key: "key", by: "test" } as const;
      for (const replayed of [false, true]) {
        const [revoked] = await store.commit([revoke]);
        assert.partialDeepStrictEqual(revoked, { kind: "revoked", key: { revokedMs: start + 5 }, replayed });
        database.clock.advance(5);
      }
      assert.equal((await store.findKey(hashOf(1)))?.key.revokedMs, start + 5);
      assert.deepEqual(await store.commit([{ ...revoke, key: "nothing" }]), [
        { kind: "key_not_found", key: "nothing" },
      ]);
      assert.deepEqual(await store.commit([hold("h1", credits(1))]), [
        { kind: "invalid_api_key", why: "was revoked" },
      ]);
    });

    test("lists keys in the order of creation, of one account or of all", async () => {
      await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      database.clock.advance(1);
      await addKey(store, keyOf("b", "bob", { hash: hashOf(2) }));
      database.clock.advance(1);
      await addKey(store, keyOf("a", "ada", { hash: hashOf(3) }));
      const ids = async (account: string) => (await store.keys(account)).map((key) => key.id);
      assert.deepEqual(await ids("ada"), ["key", "a"]);
      assert.deepEqual(await ids("nobody"), []);
      await addKey(store, keyOf("c", "bob", { hash: hashOf(4) }));
      const pages: string[][] = [];
      for (let last: KeyRow | null | undefined = null; last !== undefined; ) {
        const page: KeyRow[] = await store.keysAfter(last, 2);
        pages.push(page.map((key) => key.id));
        last = page.at(-1);
      }
      assert.deepEqual(pages, [["key", "b"], ["a", "c"], []]);
    });

    test("lists accounts by page, in the order of their ids", async () => {
      await store.commit(
        ["cy", "bob", "dan"].map(
          (account) => ({ kind: "open", account, plan: "bought", by: "test" }) as const,
        ),
      );
      const ids = async (query: { after?: string; limit: number }) =>
        (await store.accounts(query)).map((account) => account.id);
      assert.deepEqual(await ids({ limit: 2 }), ["ada", "bob"]);
      assert.deepEqual(await ids({ after: "bob", limit: 2 }), ["cy", "dan"]);
      assert.deepEqual(await ids({ after: "dan", limit: 2 }), []);
      assert.equal(await store.accountSnapshot("nobody"), null);
    });

    test("lists usage by page, account, request, key, model and time", async () => {
      await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("bobs", "bob", { hash: hashOf(2) }));
      for (const [account, key, id] of [
        ["bob", "bobs", "h1"],
        ["ada", "key", "h2"],
        ["bob", "bobs", "h3"],
        ["ada", "key", "h4"],
      ] as const) {
        const model = id === "h4" ? "other" : "model";
        await store.commit([hold(id, 10, { account, key, model }), settle(id, 1, { account })]);
        database.clock.advance(1000);
      }
      const ids = async (query: Omit<Parameters<Store["usage"]>[0], "limit">, limit = 10) =>
        (await store.usage({ ...query, limit })).map((row) => row.id);
      assert.deepEqual(await ids({}), ["h2", "h4", "h1", "h3"]);
      assert.deepEqual(await ids({ account: "bob" }), ["h1", "h3"]);
      assert.deepEqual(await ids({ id: "h3" }), ["h3"]);
      assert.deepEqual(await ids({ key: "bobs" }), ["h1", "h3"]);
      assert.deepEqual(await ids({ model: "other" }), ["h4"]);
      assert.deepEqual(await ids({ key: "bobs", model: "other" }), []);
      assert.deepEqual(await ids({ fromMs: start + 1000, toMs: start + 3000 }), ["h2", "h3"]);
      const page = await store.usage({ limit: 3 });
      const last = page.at(-1);
      assert.ok(last !== undefined);
      assert.deepEqual(await ids({ after: { account: last.account, seq: last.seq } }), ["h3"]);
      assert.deepEqual(await ids({ newestFirst: true }), ["h3", "h1", "h4", "h2"]);
      assert.deepEqual(await ids({ newestFirst: true, key: "bobs" }), ["h3", "h1"]);
      assert.deepEqual(await ids({ newestFirst: true, toMs: start + 3000 }), ["h3", "h1", "h2"]);
      const [newest] = await store.usage({ account: "bob", newestFirst: true, limit: 1 });
      assert.equal(newest?.id, "h3");
      const after = { account: "bob", seq: newest.seq };
      for (const filter of [{ account: "bob" }, { key: "bobs" }]) {
        assert.deepEqual(await ids({ ...filter, newestFirst: true, after }), ["h1"]);
        assert.deepEqual(await ids({ ...filter, newestFirst: true, after }, 1), ["h1"]);
      }
      assert.deepEqual(await ids({ newestFirst: true, after }), ["h1", "h4", "h2"]);
    });

    test("lists open holds by page, of one account or of all, and adds them up", async () => {
      await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("bobs", "bob", { hash: hashOf(2) }));
      assert.deepEqual(await store.holdTotals(), { holds: 0, heldMicro: 0 });
      await store.commit([
        hold("h2", credits(108)),
        hold("h1", credits(3), { account: "bob", key: "bobs" }),
        hold("h3", credits(1)),
        hold("h4", credits(1)),
        settle("h4", 0),
      ]);
      const ids = async (query: Parameters<Store["holds"]>[0]) =>
        (await store.holds(query)).map((row) => row.id);
      assert.deepEqual(await ids({ limit: 10 }), ["h2", "h3", "h1"]);
      assert.deepEqual(await ids({ limit: 2 }), ["h2", "h3"]);
      assert.deepEqual(await ids({ after: { account: "ada", id: "h2" }, limit: 10 }), ["h3", "h1"]);
      assert.deepEqual(await ids({ account: "ada", after: { account: "ada", id: "h2" }, limit: 10 }), ["h3"]);
      assert.deepEqual(await ids({ account: "bob", limit: 10 }), ["h1"]);
      // A day later, part of their credits is from a past base window, and still counts.
      database.clock.advance(minute - 1);
      const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
      await store.commit([
        { kind: "extend", account: "ada", requestId: "h2", n: 1, moreMicro: 0, usage, ttlMs: 2 * day },
        { kind: "extend", account: "ada", requestId: "h3", n: 1, moreMicro: 0, usage, ttlMs: 2 * day },
      ]);
      database.clock.advance(day);
      await store.commit([
        {
          kind: "extend",
          account: "ada",
          requestId: "h2",
          n: 2,
          moreMicro: credits(1),
          usage,
          ttlMs: 2 * day,
        },
      ]);
      assert.deepEqual(await store.holdTotals(), { holds: 3, heldMicro: credits(113) });
    });

    test("lists the journal by page, in order", async () => {
      for (const n of [1, 2, 3]) {
        await store.commit([{ kind: "topup", account: "ada", payment: `p${n}`, amountMicro: n, by: "test" }]);
      }
      const seqs = async (query: { afterSeq?: number; limit: number }) =>
        (await store.journal("ada", query)).map((row) => row.seq);
      assert.deepEqual(await seqs({ limit: 2 }), [1, 2]);
      assert.deepEqual(await seqs({ afterSeq: 4, limit: 2 }), [5, 6]);
      assert.deepEqual(await seqs({ afterSeq: 7, limit: 2 }), []);
    });

    test("keeps text of any kind unchanged", async () => {
      const odd = `'";-- \\ \n\t ${String.fromCodePoint(0x1f58b)} größer`;
      await store.commit([
        {
          kind: "promote",
          account: "ada",
          op: odd,
          amountMicro: 5,
          reason: odd,
          untilMs: null,
          requestId: null,
          by: "test",
        },
      ]);
      const [entry] = await store.journal("ada", { afterSeq: 4, limit: 10 });
      assert.equal(entry?.op, `operation:${odd}`);
      assert.equal(factFields(entry?.after ?? null).reason, odd);
      assert.deepEqual(
        await store.commit([
          {
            kind: "promote",
            account: "ada",
            op: odd,
            amountMicro: 5,
            reason: odd,
            untilMs: null,
            requestId: null,
            by: "test",
          },
        ]),
        [{ kind: "added", additionalMicro: 5, replayed: true }],
      );
    });

    test("finds nothing for text that no row can contain", async () => {
      const odd = "a\0b";
      assert.deepEqual(await store.usage({ model: odd, limit: 10 }), []);
      assert.deepEqual(await store.usage({ id: odd, key: odd, limit: 10 }), []);
      assert.deepEqual(await store.keys(odd), []);
      assert.equal(await store.findKey(odd), null);
      assert.equal(await store.keyById(odd), null);
      assert.equal(await store.accountSnapshot(odd), null);
    });

    test("keeps the largest amounts exactly", async () => {
      const most = Number.MAX_SAFE_INTEGER;
      assert.deepEqual(
        await store.commit([{ kind: "topup", account: "ada", payment: "p1", amountMicro: most, by: "test" }]),
        [{ kind: "added", additionalMicro: most, replayed: false }],
      );
      assert.deepEqual(
        await store.commit([{ kind: "topup", account: "ada", payment: "p2", amountMicro: 1, by: "test" }]),
        [{ kind: "too_many_credits", account: "ada" }],
      );
      const { account } = (await store.accountSnapshot("ada")) ?? {};
      assert.ok(account !== undefined);
      assert.equal(freeIn(account).additional, most);
    });

    test("throws if a page is longer than allowed", async () => {
      await assert.rejects(store.usage({ limit: 1001 }), /1 to 1000/);
      await assert.rejects(store.journal("ada", { limit: 0 }), /1 to 1000/);
      await assert.rejects(store.accounts({ limit: 1.5 }), /1 to 1000/);
      await assert.rejects(store.holds({ limit: 0 }), /1 to 1000/);
    });

    test("close waits for earlier calls and is idempotent, and later calls are rejected", async () => {
      const answer = store.commit([
        { kind: "topup", account: "ada", payment: "p1", amountMicro: 7, by: "test" },
      ]);
      await Promise.all([store.close(), store.close()]);
      await store.close();
      assert.deepEqual(await answer, [{ kind: "added", additionalMicro: 7, replayed: false }]);
      await assert.rejects(store.commit([]), /closed/);
      await assert.rejects(store.findKey(hashOf(1)), /closed|open/);
    });

    test("has all rows after the store is opened again", async () => {
      await store.commit([hold("h1", credits(3)), hold("h2", credits(4)), settle("h2", 70)]);
      const before = await store.accountSnapshot("ada");
      await store.close();
      store = await database.open();
      assert.deepEqual(await store.accountSnapshot("ada"), before);
      assert.partialDeepStrictEqual(await store.commit([settle("h1", 5)]), [settledBy({ base: 5 })]);
    });
  });
}
