/** Sessions of keys on every store: started on one node, used and ended on another. */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { afterEach, beforeEach, describe, test } from "node:test";
import { hashKey, mintKey } from "../../src/accounts/keys.ts";
import { PortalSessions } from "../../src/accounts/portal-sessions.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { addKey, keyOf, planOf, plansOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { start } from "../fixtures/times.ts";

const token = "a-token-of-operators";
const page = "a-secret-of-a-page";

for (const backend of backends) {
  describe(`sessions of keys on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let here: PortalSessions;
    let there: PortalSessions;
    const secret = mintKey();
    const fail = (error: unknown) => {
      throw error;
    };

    beforeEach(async () => {
      database = backend.create(plansOf(planOf("starter", 100, 10)));
      store = await database.open();
      const other = await database.open();
      here = new PortalSessions(store, token, fail);
      there = new PortalSessions(other, token, fail);
      await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
      await addKey(store, keyOf("key", "ada", { hash: hashKey(secret) }));
      await addKey(store, keyOf("other", "ada", { hash: hash("sha256", "other") }));
    });
    afterEach(() => database.remove());

    async function assertEnds(end: () => Promise<unknown>): Promise<void> {
      const { cookie, session } = await here.startByKey(secret, page);
      const found = await there.find({ cookie, page });
      assert.ok(found !== null && "key" in found);
      assert.deepEqual([found?.key.id, found?.account.state, found?.plan?.id], ["key", "active", "starter"]);
      const rest = await here.startFor(keyOf("other", "ada", { hash: hash("sha256", "other") }), page);
      const hashes = [session.hash, rest.session.hash];
      assert.deepEqual(await there.valid(hashes), new Set(hashes));
      await end();
      for (const node of [here, there]) {
        assert.equal(await node.find({ cookie, page }), null);
        assert.ok(!(await node.valid(hashes)).has(session.hash));
      }
    }

    const operations: [what: string, operation: Operation][] = [
      [
        "a rotation with an overlap",
        {
          kind: "key",
          account: "ada",
          key: "key",
          op: "1",
          by: "test",
          set: { rotation: { hash: hash("sha256", "next"), lastFour: "next", overlap: "P1D" } },
        },
      ],
      ["closing the account", { kind: "state", account: "ada", op: "1", to: { kind: "close" }, by: "test" }],
    ];
    for (const [what, operation] of operations) {
      test(`end with ${what}`, async () => {
        await assertEnds(() => store.commit([operation]));
      });
    }

    test("end with the revocation of the key", async () => {
      await assertEnds(() => revokeKey(store, "key"));
    });

    test("end by signing out on another node", async () => {
      const { cookie, session } = await here.startByKey(secret, page);
      await there.end(session);
      assert.equal(await here.find({ cookie, page }), null);
    });

    test("end at the expiry of the key and at the end of the account", async () => {
      for (const set of [
        { kind: "key", account: "ada", key: "key", op: "2", set: { expiresMs: start + 1_000 }, by: "test" },
        { kind: "state", account: "ada", op: "3", to: { kind: "end", endsMs: start + 3_000 }, by: "test" },
      ] as const) {
        const { cookie } = await here.startByKey(secret, page);
        await store.commit([set]);
        assert.ok((await there.find({ cookie, page })) !== null, "until then it is valid");
        database.clock.advance(1_500);
        assert.equal(await there.find({ cookie, page }), null);
        await store.commit([
          {
            kind: "key",
            account: "ada",
            key: "key",
            op: `back ${set.op}`,
            set: { expiresMs: null },
            by: "test",
          },
        ]);
      }
    });

    test("stay while the account is suspended", async () => {
      const { cookie, session } = await here.startByKey(secret, page);
      await store.commit([{ kind: "state", account: "ada", op: "1", to: { kind: "suspend" }, by: "test" }]);
      assert.equal((await there.find({ cookie, page }))?.account.state, "suspended");
      assert.deepEqual(await there.valid([session.hash]), new Set([session.hash]));
    });
  });
}
