/**
 * Named changes by hand in the database: all of them on SQLite, and every sixth on PostgreSQL
 * (before a release all of them). The audit names each. If fact, row and sums were changed alike,
 * an earlier seal finds the change.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { backends } from "../fixtures/backends.ts";
import { openTampered, type TamperedLedger } from "../fixtures/tampered-ledger.ts";
import { silentCases, type TamperingCase, tamperingCases } from "../fixtures/tampering-cases.ts";
import { some } from "../fixtures/thorough.ts";

for (const backend of backends) {
  describe(`named changes on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let ledger: TamperedLedger;

    before(async () => {
      ledger = await openTampered(backend);
    });
    after(() => ledger.remove());

    const namedAfter = async ({ change }: Pick<TamperingCase, "change">) => {
      const { audit, seal } = await ledger.after(
        typeof change === "function" ? await change(ledger) : change,
      );
      return { audit: audit.map(({ invariant }) => invariant), seal: seal.map(({ list }) => list) };
    };

    for (const [subject, all] of Object.entries(tamperingCases)) {
      const cases = backend.name === "SQLite" ? all : some(all, 6);
      test(`of ${subject}: each is named`, async (t) => {
        const wrong: unknown[] = [];
        for (const each of cases) {
          const named = await namedAfter(each);
          const { audit, seal } = each;
          const isNamed =
            audit === undefined
              ? named.audit.length === 0 && String(named.seal) === String(seal)
              : named.audit.includes(audit);
          if (!isNamed) wrong.push({ name: each.name, expected: audit ?? seal, ...named });
        }
        assert.deepEqual(wrong, []);
        const bySeal = cases.filter(({ audit }) => audit === undefined).length;
        t.diagnostic(`${cases.length} changes of ${subject}, of which only a seal names ${bySeal}`);
      });
    }

    test("nobody names complete new facts, and what is no fact", async () => {
      for (const each of silentCases) {
        assert.deepEqual(await namedAfter(each), { audit: [], seal: [] }, each.name);
      }
    });

    test("the ledger is sound after all of them were taken back", async () => {
      assert.deepEqual(await ledger.after([]), { audit: [], seal: [] });
    });
  });
}

test("the cases have names of their own, and are many", (t) => {
  const names = Object.values(tamperingCases).flatMap((cases) => cases.map(({ name }) => name));
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length >= 80);
  t.diagnostic(`${names.length} named changes`);
});
