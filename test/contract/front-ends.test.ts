/** Keys of front ends on two nodes and both databases: one cap over the accounts of people. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { HoldOperation } from "../../src/ledger/operations.ts";
import type { OutcomeOf } from "../../src/ledger/outcomes.ts";
import { newPerson } from "../../src/store/people.ts";
import { linkChange } from "../../src/store/person-changes.ts";
import { pageRowsMax, type Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, frontEndOf, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { minute, start } from "../fixtures/times.ts";

const plan = planOf("one", 1, 0);
const actsFor = frontEndOf("webui", "x-person");
const people = Array.from({ length: 30 }, (_, n) => `person-${n}`);

for (const backend of backends) {
  describe(`keys of front ends on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let stores: [Store, Store];
    let ledgers: [Ledger, Ledger];
    beforeEach(async () => {
      database = backend.create(plansOf(plan));
      stores = [await database.open(), await database.open()];
      ledgers = [new Ledger(stores[0]), new Ledger(stores[1])];
      const accounts = ["front", ...people];
      await stores[0].commit(
        accounts.map((account) => ({ kind: "open", account, plan: plan.id, by: "test" })),
      );
      for (const [n, key] of ["fe", "fe2"].entries())
        await addKey(stores[0], keyOf(key, "front", { hash: `${n}`.repeat(64), actsFor }));
      await addKey(stores[0], keyOf("own", "front", { hash: "9".repeat(64) }));
      const set = { caps: [{ amountMicro: 100_000, every: "P1D", byOperator: true }] };
      const change = { kind: "key", account: "front", key: "fe", op: "caps", set, by: "test" } as const;
      await stores[0].commit([change]);
      // Charges within a minute of the start of a window are not audited exactly.
      database.clock.advance(2 * minute);
    });
    afterEach(() => database.remove());

    const keyRow = async (key = "fe") => {
      const row = await stores[1].keyById(key);
      assert.ok(row !== null);
      return row;
    };

    const counted = async () => {
      const { holds, running, counters } = await keyRow();
      const heldMicro = running.reduce((sum, each) => sum + each.heldMicro, 0);
      return { holds, heldMicro, spentMicro: counters[0]?.spentMicro ?? 0 };
    };

    let requests = 0;
    /** Takes 7,000 and uses 6,000, again while running requests hold the rest. */
    async function request(account: string, node: 0 | 1, key = "fe"): Promise<string> {
      for (;;) {
        requests += 1;
        const id = `r${requests}`;
        const asked = hold(id, 7000, { account, key, minMicro: 1000 });
        const held: OutcomeOf<HoldOperation> = await ledgers[node].apply(asked);
        if (held.kind === "held") {
          await ledgers[node].apply({ ...settle(id, Math.min(6000, held.amountMicro)), account });
          return "held";
        }
        if (held.kind !== "credits_reserved") return held.kind;
      }
    }

    test("spend exactly what the cap of the key allows, whoever asks on whichever node", async () => {
      const outcomes = await Promise.all(
        people.flatMap((person, n) => [1, 2].map(() => request(person, n % 2 === 0 ? 0 : 1))),
      );
      assert.deepEqual(new Set(outcomes), new Set(["held", "cap_reached"]));
      const { heldMicro, holds, spentMicro } = await counted();
      assert.deepEqual([heldMicro, holds], [0, 0]);
      assert.ok(spentMicro > 99_000 && spentMicro <= 100_000, `${spentMicro}`);
      const rows = (
        await Promise.all(people.map((account) => stores[0].usage({ account, limit: 100 })))
      ).flat();
      assert.equal(
        rows.reduce((sum, { baseMicro }) => sum + baseMicro, 0),
        spentMicro,
      );
      assert.ok(rows.every(({ key }) => key === "fe"));
      await assertSound(database);
    });

    test("several keys in the same commits of two nodes never wait for each other for long", async () => {
      const outcomes = await Promise.all(
        people.flatMap((person, n) => [
          request(person, 0, n % 2 === 0 ? "fe2" : "fe"),
          request(person, 1, n % 2 === 0 ? "fe" : "fe2"),
        ]),
      );
      assert.ok(outcomes.every((outcome) => outcome === "held" || outcome === "cap_reached"));
      await assertSound(database);
    });

    test("count extensions, expiries and late settlements of all accounts", async () => {
      const [one = "", two = "", three = ""] = people;
      const ttlMs = minute;
      for (const account of [one, two, three])
        await ledgers[0].apply(hold("r", 1000, { account, key: "fe", ttlMs }));
      await ledgers[1].apply({ ...extend("r", 1, 500), account: one, ttlMs });
      const { holds, heldMicro } = await counted();
      assert.deepEqual([holds, heldMicro], [3, 3500]);
      await assertSound(database);
      database.clock.advance(2 * minute);
      await ledgers[1].apply({ kind: "expire", account: two, requestId: "r" });
      await ledgers[0].apply({ ...settle("r", 900), account: two });
      await ledgers[0].apply({ ...settle("r", 800), account: one });
      await ledgers[1].apply(hold("next", 10, { account: three, key: "fe", ttlMs }));
      assert.deepEqual(await counted(), { holds: 1, heldMicro: 10, spentMicro: 1700 });
      await assertSound(database);
    });

    test("a key that is no front end's, or that is revoked, pays with no other account", async () => {
      const account = people[0] ?? "";
      const refusal = async (key: string) => {
        const held = await ledgers[0].apply(hold(`r ${key}`, 1000, { account, key }));
        return "why" in held ? held.why : held.kind;
      };
      assert.equal(await refusal("own"), "is not known");
      await ledgers[0].apply(hold("running", 1000, { account, key: "fe" }));
      await revokeKey(stores[1], "fe");
      assert.equal(await refusal("fe"), "was revoked");
      await ledgers[0].apply({ ...settle("running", 700), account });
      assert.deepEqual(await counted(), { holds: 0, heldMicro: 0, spentMicro: 700 });
      await assertSound(database);
    });

    test("an operator changes the key while requests of other accounts run, and loses nothing", async () => {
      const set = (n: number) => ({ name: `name ${n}` });
      const changes = Array.from({ length: 20 }, (_, n) =>
        ledgers[n % 2 === 0 ? 0 : 1].apply({
          kind: "key",
          account: "front",
          key: "fe",
          op: `n${n}`,
          set: set(n),
          by: "test",
        }),
      );
      await Promise.all([
        ...changes,
        ...people.slice(0, 10).map((person, n) => request(person, n % 2 === 0 ? 1 : 0)),
      ]);
      assert.equal((await counted()).spentMicro, 60_000);
      await assertSound(database);
    });

    /** A change of what the only cap has counted, and back. */
    const counterChanges = async () => {
      const [counter] = (await keyRow()).counters;
      assert.ok(counter !== undefined);
      const { name, every, align, timezone, fromMs, untilMs, anchorMs, spentMicro } = counter;
      const [change = "", back = ""] = [spentMicro - 1, spentMicro].map((micro) => {
        const cells = [name, every, align, timezone, fromMs, untilMs, anchorMs, micro];
        return `counters = '${JSON.stringify([cells])}'`;
      });
      return [[change, back] as const];
    };

    test("the audit names a key that holds or has counted something else", async () => {
      const account = people[0] ?? "";
      await ledgers[0].apply(hold("a", 1000, { account, key: "fe" }));
      await ledgers[0].apply({ ...settle("a", 900), account });
      await ledgers[0].apply(hold("b", 1000, { account, key: "fe" }));
      await assertSound(database);
      for (const [change, back] of [
        [`running = '[["model",1001,0]]'`, `running = '[["model",1000,0]]'`],
        ["holds = holds + 1", "holds = holds - 1"],
        ...(await counterChanges()),
        ["acts_for_header = 'x-other'", "acts_for_header = 'x-person'"],
      ] as const) {
        await database.sql(`update api_key set ${change} where id = 'fe'`);
        const { broken } = await database.audit();
        assert.equal(broken.length, 1, change);
        await database.sql(`update api_key set ${back} where id = 'fe'`);
      }
      await database.sql("update api_key set acts_for_name = null, acts_for_header = null where id = 'fe'");
      assert.ok((await database.audit()).broken.length >= 2, "charges of other accounts name the key");
    });

    test("the names of front ends are those of their keys, each once", async () => {
      assert.deepEqual(await stores[1].frontEnds(), ["webui"]);
      const other = { ...actsFor, name: "chat" };
      await addKey(stores[0], keyOf("fe3", "front", { hash: "3".repeat(64), actsFor: other }));
      assert.deepEqual(await stores[1].frontEnds(), ["chat", "webui"]);
    });

    test("receipts and sums of the key are those of all people behind it", async () => {
      const [store] = stores;
      for (const [n, account] of people.slice(0, 3).entries()) {
        const person = await store.addPerson(newPerson({ issuer: "front_end:webui", sub: account }, start));
        const link = { account, by: "front_end", isFirst: true };
        await store.linkPerson(person.id, link, linkChange(person.id, account, { by: "test", atMs: start }));
        await request(account, n % 2 === 0 ? 0 : 1);
      }
      for (const isSummed of [false, true]) {
        if (isSummed) while (await store.sumUsage("UTC"));
        const receipts = await store.usage({ key: "fe", limit: pageRowsMax });
        assert.deepEqual(
          receipts.map(({ account }) => account),
          people.slice(0, 3).toSorted(),
        );
        const [first] = receipts;
        assert.ok(first !== undefined);
        assert.equal((await store.usage({ key: "fe", limit: 10, after: first })).length, 2);
        const sums = await store.usageSums({ by: "account", key: "fe", order: "name" });
        assert.deepEqual([sums.rows.length, sums.total.requests], [3, 3]);
        const byKey = { by: "key", order: "name", limit: 2 } as const;
        const page = (await store.usageSums(byKey)).rows;
        const last = { after: "fe", afterAccount: page.at(-1)?.account ?? undefined };
        const rest = (await store.usageSums({ ...byKey, ...last })).rows;
        assert.deepEqual(
          [...page, ...rest].map(({ name, account }) => `${name} ${account}`),
          people
            .slice(0, 3)
            .toSorted()
            .map((account) => `fe ${account}`),
        );
        const hour = Math.floor(database.clock.get() / 3_600_000);
        const hours = await store.usageHours({ from: hour - 1, to: hour + 1, key: "fe", byModel: false });
        assert.equal(
          hours.reduce((sum, { requests }) => sum + requests, 0),
          3,
        );
      }
      assert.deepEqual(await store.usage({ key: "nothing", limit: 1 }), []);
    });
  });
}
