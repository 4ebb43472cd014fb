/**
 * A balance that a manual change of the database made invalid. Every path answers the same, no
 * credits move until the balance is repaired, and other accounts are not affected.
 * test/contract/damaged-accounts.test.ts damages every field on every store.
 */

import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { errorOf, startService, type TestService } from "../fixtures/service.ts";

/** Damage that an SQL statement does without any checks, and the statement that repairs it. */
const damages: Record<string, [damage: string, mend: string]> = {
  "an amount below zero": ["base_amount = -1", "base_amount = 1000000000"],
  "spent credits below zero": ["base_spent = -1", "base_spent = 0"],
  "additional credits that are no list": ["additional = 1000000", "additional = null"],
  "additional credits below zero": ["additional = '[[4,1,2,0,1,null]]'", "additional = null"],
  "later grants below zero": ["later_free = -1", "later_free = 0"],
  "more than can be counted exactly": ["later_free = 9007199254740993", "later_free = 0"],
  "held credits below zero": ["base_held = -1", "base_held = 0"],
  "held credits of no request": ["overage_held = 1", "overage_held = 0"],
  "fewer than no holds": ["holds = -1", "holds = 0"],
  "a window that ends before it begins": [
    "base_until_ms = base_from_ms - 1",
    "base_until_ms = base_from_ms + 86400000",
  ],
  "a window that ends after all dates": [
    "base_until_ms = 9000000000000000",
    "base_until_ms = base_from_ms + 86400000",
  ],
  "a plan version that there is not": ["base_version = 9", "base_version = 1"],
  "a closed account with windows": ["state = 'closed'", "state = 'active'"],
  "a state that there is not": ["state = 'asleep'", "state = 'active'"],
  "a plan that there is not": ["plan = 'abolished'", "plan = 'test'"],
  "a scheduled plan that there is not": ["next_plan = 'abolished'", "next_plan = null"],
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
  assert.doesNotMatch(message, /negative|cap|window|plan|whole|journal/, "why is for the operator alone");
}

for (const [what, [damage, mend]] of Object.entries(damages)) {
  test(`${what}: balance and chat answer 500 balance_unavailable until the balance is repaired`, async () => {
    await using service = await startService();
    await service.ledger.apply({ kind: "open", account: "other", plan: "test", by: "test" });
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
      assert.match(
        String(detail),
        /^account test: .*(negative|the database holds|exactly|without a running|window|plan|state)/,
      );
    assert.equal((await service.store.journal("test", { limit: 10 })).length, before, "nothing has moved");
    const outcome = await service.ledger.apply({
      kind: "topup",
      account: "test",
      payment: "p",
      amountMicro: 1,
      by: "test",
    });
    // Only requests need the plans. A payment counts without them.
    assert.equal(outcome.kind, /^(next_)?plan =/.test(damage) ? "added" : "balance_unavailable");

    write(service, mend);
    assert.equal((await service.request("GET", "/v1/balance")).status, 200);
    assert.equal((await service.chat()).status, 200);
  });
}

test("the key of a deleted account gets 500 balance_unavailable, and other keys are served", async () => {
  await using service = await startService();
  await service.ledger.apply({ kind: "open", account: "other", plan: "test", by: "test" });
  const other = {
    headers: { authorization: `Bearer ${await service.addKey({ account: "other", id: "k" })}` },
  };
  const db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
  db.exec("pragma foreign_keys = off; create table kept as select * from account where id = 'test'");
  db.exec("delete from account where id = 'test'");
  await assertUnavailable(await service.request("GET", "/v1/balance"));
  await assertUnavailable(await service.request("GET", "/v1/models"));
  await assertUnavailable(await service.chat());
  await assertUnavailable(await service.chat({ stream: true }));
  const details = service.log.flatMap(({ detail }) => (detail === undefined ? [] : [detail]));
  assert.deepEqual(details, Array(4).fill("account test: it has no row"));
  assert.equal((await service.request("GET", "/v1/balance", other)).status, 200);
  assert.equal((await service.chat({}, other)).status, 200);
  assert.equal(service.engine.options.length, 1, "no engine was asked for the deleted account");
  // A key that is wrong in itself gets 401 as ever.
  db.exec("update api_key set revoked_ms = 1 where account = 'test'");
  assert.equal((await service.request("GET", "/v1/balance")).status, 401);
  db.exec("update api_key set revoked_ms = null; insert into account select * from kept; drop table kept");
  db.close();
  assert.equal((await service.chat()).status, 200);
});
