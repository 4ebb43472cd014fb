/** The export of a person with long lists: on SQLite, and before a release on both databases. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { Check } from "typebox/value";
import { OperatorActions } from "../../src/accounts/operator-actions.ts";
import { personData } from "../../src/accounts/person-data.ts";
import { personDataSchema } from "../../src/accounts/person-objects.ts";
import { owner } from "../../src/actors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { linkChange } from "../../src/store/person-changes.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { personRow } from "../fixtures/person-rows.ts";
import { some } from "../fixtures/thorough.ts";
import { start } from "../fixtures/times.ts";

/** More than a page of each list. */
const [requests, contacts] = [700, 150];

for (const backend of some(backends, 2)) {
  describe(`the data of a person on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    beforeEach(async () => {
      database = backend.create(plansOf(planOf("starter", 1000, 10)));
      store = await database.open();
    });
    afterEach(() => database.remove());

    test("has every row, and no part with more than a page", async () => {
      const person = await store.addPerson(personRow(1, { sub: "ada", name: "Ada" }));
      const by = `person:${person.id}`;
      const options = { by, dryRun: false };
      for (let n = 0; n < contacts; n += 1) {
        database.clock.advance(1);
        const draft = { id: "ada", plan: n === 0 ? "starter" : null, contact: { note: `note ${n}` } };
        await store.putAccount(draft, options);
      }
      const link = { account: "ada", by: "owner", isFirst: false };
      await store.linkPerson(person.id, link, linkChange(person.id, "ada", { by: "owner", atMs: start }));
      await addKey(store, keyOf("key_1", "ada"));
      const ids = Array.from({ length: requests }, (_, n) => `r${n}`);
      await store.commit(ids.map((id) => hold(id, credits(1), { account: "ada", key: "key_1" })));
      await store.commit(ids.map((id) => settle(id, 3, { account: "ada" })));

      const parts: string[] = [];
      const ledger = new Ledger(store);
      const actions = new OperatorActions({
        store,
        ledger,
        modelIds: () => [],
        actor: owner,
        timezone: () => "UTC",
        token: async () => "",
      });
      const linked = await store.person(person.id);
      assert.ok(linked !== null);
      for await (const part of personData(actions, linked)) parts.push(part);
      const rowsIn = (part: string) => part.split("\n").length;
      assert.ok(Math.max(...parts.map(rowsIn)) <= 501, "rows of a part");
      const data: unknown = JSON.parse(parts.join(""));
      assert.ok(Check(personDataSchema, data));
      assert.equal(data.receipts.length, requests);
      assert.equal(new Set(data.receipts.map(({ request_id }) => request_id)).size, requests);
      const journal = data.journal.map(({ seq }) => seq);
      assert.deepEqual(
        journal,
        journal.toSorted((a, b) => a - b),
      );
      assert.equal(data.journal.filter(({ kind }) => kind === "charge").length, requests);
      const notes = data.changes_about.flatMap(({ after }) => after?.note ?? []);
      assert.equal(new Set(notes).size, contacts);
      assert.equal(data.changes_by.filter(({ kind }) => kind === "contact").length, contacts);
      assert.ok(data.changes_by.every(({ before, after }) => before === null && after === null));
    });
  });
}
