/**
 * A database that another process has locked: how long clients wait, and when they are charged.
 */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { readEvents } from "../fixtures/events.ts";
import { PuppetEngine } from "../fixtures/puppet-engine.ts";
import { errorOf, startService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

// One attempt waits 5 s for the lock. An answer waits for a checkpoint and its charge, a request
// for one attempt.
test("neither running nor new requests wait long for a locked database, and the charge follows", async () => {
  const engine = new PuppetEngine();
  engine.contextWindow = 100_000;
  await using service = await startService({ otherEngines: { puppet: engine } });
  const asked = service.chat({ model: "puppet", stream: true });
  await until("the engine is asked", () => engine.generations.length > 0);
  engine.last.begin();
  engine.last.token("x");
  const answer = await asked;
  using db = new DatabaseSync(service.databaseFile, { timeout: 5000 });
  db.exec("begin immediate");
  // After half a slice, the next slice is requested, and its commit waits for the lock.
  for (let n = 1; n < 128; n += 1) engine.last.token("x");
  for (let n = 0; n < 5; n += 1) await nextTurn();
  engine.last.end("stop");
  const { texts, done, error } = readEvents(await answer.text());
  assert.deepEqual({ texts: texts.length, done, error }, { texts: 128, done: true, error: null });
  assert.equal(service.ledger.late, 1);
  const refused = await service.chat();
  assert.equal(refused.status, 503);
  assert.equal((await errorOf(refused)).code, "store_unavailable");
  db.exec("rollback");
  await until("the charge is recorded", () => service.ledger.late === 0);
  const [receipt] = await service.store.usage({ limit: 1 });
  assert.deepEqual([receipt?.ending, receipt?.costMicro], ["stop", 100 + 128 * 30]);
});
