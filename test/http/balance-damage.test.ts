/**
 * A balance that a manual change of the database made invalid. Every path answers the same, no
 * credits move until the balance is repaired, and other accounts are not affected.
 */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { errorOf, startService, type TestService } from "../fixtures/service.ts";

/** Damage that an SQL statement does without any checks, and the statement that repairs it. */
const damages: Record<string, [damage: string, mend: string]> = {
  "a bucket above its cap": ["overage = overage_cap + 1", "overage = overage_cap"],
  "a cap below zero": ["base_cap = -1", "base_cap = base"],
  "purchased credits below zero": ["additional = -1000000", "additional = 0"],
  "more than can be counted exactly": ["additional = 9007199254740993", "additional = 0"],
  "held credits below zero": ["base_held = -1", "base_held = 0"],
  "held credits beyond the cap": ["overage_held = 1", "overage_held = 0"],
  "fewer than no holds": ["holds = -1", "holds = 0"],
  "a window that ends before it begins": [
    "base_ends_ms = base_starts_ms - 1",
    "base_ends_ms = base_starts_ms + 86400000",
  ],
  "a plan that there is not": ["plan = 'abolished'", "plan = 'test'"],
};

function write(service: TestService, set: string): void {
  const db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
  try {
    db.exec("pragma ignore_check_constraints = on");
    assert.equal(db.prepare(`update account set ${set} where id = 'test'`).run().changes, 1);
  } finally {
    db.close();
  }
}

async function assertUnavailable(response: Response): Promise<void> {
  assert.equal(response.status, 500);
  const { type, code, message } = await errorOf(response);
  assert.deepEqual([type, code], ["server_error", "balance_unavailable"]);
  assert.doesNotMatch(message, /negative|cap|window|plan|whole/, "why is for the operator alone");
}

for (const [what, [damage, mend]] of Object.entries(damages)) {
  test(`${what}: balance and chat answer 500 balance_unavailable until the balance is repaired`, async () => {
    await using service = await startService();
    await service.ledger.apply({ kind: "open", account: "other", plan: "test" });
    const other = await service.addKey({ account: "other", id: "other-key" });
    const before = (await service.store.journal("test", { limit: 10 })).length;
    write(service, damage);

    await assertUnavailable(await service.request("GET", "/v1/balance"));
    await assertUnavailable(await service.chat());
    await assertUnavailable(await service.chat({ stream: true }));
    // Sent together with a request of another account, whose commit must not fail.
    const headers = { authorization: `Bearer ${other}` };
    const [damaged, sound] = await Promise.all([service.chat(), service.chat({}, { headers })]);
    await assertUnavailable(damaged);
    assert.equal(sound.status, 200);
    assert.equal(service.engine.open, 0, "no engine was asked");
    const reasons = service.log.map(({ detail }) => detail).filter((detail) => detail !== undefined);
    assert.equal(reasons.length, 4, "the log says why, each time");
    for (const detail of reasons)
      assert.match(String(detail), /account test: .*(negative|cap|window|plan|whole)/);
    assert.equal((await service.store.journal("test", { limit: 10 })).length, before, "nothing has moved");
    const outcome = await service.ledger.apply({ kind: "topup", account: "test", payment: "p", amount: 1 });
    // Only requests need the plan. A payment counts without it.
    assert.equal(outcome.kind, damage.startsWith("plan") ? "added" : "balance_invalid");

    write(service, mend);
    assert.equal((await service.request("GET", "/v1/balance")).status, 200);
    assert.equal((await service.chat()).status, 200);
  });
}

test("rejects the key of a deleted account", async () => {
  await using service = await startService();
  const db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
  db.exec("pragma foreign_keys = off; create table kept as select * from account; delete from account");
  const response = await service.chat();
  assert.equal(response.status, 401);
  assert.equal((await errorOf(response)).code, "invalid_api_key");
  db.exec("insert into account select * from kept; drop table kept");
  db.close();
});
