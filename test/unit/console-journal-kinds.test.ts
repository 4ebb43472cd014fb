/** The groups of journal entries in the console name the kinds that the ledger has. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { journalKinds } from "../../src/ledger/rows.ts";
import { kindGroups } from "../../src/web/console/journal-kinds.ts";

test("each kind of the ledger is in one group, and the default has all but those of requests", () => {
  const kindsOf = (name: string) => [...(kindGroups.get(name)?.kinds ?? [])];
  const apart = ["payments", "windows", "states", "keys", "requests"].flatMap(kindsOf);
  assert.deepEqual(apart.toSorted(), ["charge", ...journalKinds].toSorted());
  assert.deepEqual(kindsOf("requests"), ["charge"]);
  assert.deepEqual(kindsOf("").toSorted(), journalKinds.toSorted());
});
