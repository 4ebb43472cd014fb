/** Parts of the service that a reload changes while requests use them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Catalog } from "../../src/chat/catalog.ts";
import { FairQueue } from "../../src/collections.ts";
import { RefusalAllowance } from "../../src/http/public/refusal-allowance.ts";
import { Uploads } from "../../src/http/public/uploads.ts";
import { type ConfigFingerprint, type NodeRegistry, startNodeWatch } from "../../src/store/nodes.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { PuppetEngine } from "../fixtures/puppet-engine.ts";

function modelOf(engine: PuppetEngine, prompt = 1) {
  return { id: "m", engine, price: { prompt, completion: 1 }, outputTokensMax: null, created: 0 };
}

test("a request keeps its model and price, and its engine is in use until it ends", async () => {
  const [before, after] = [new PuppetEngine(), new PuppetEngine()];
  const catalog = new Catalog([modelOf(before)]);
  const uses = [catalog.use("m"), catalog.use("m")];
  catalog.replace([modelOf(after, 2)]);
  assert.deepEqual(
    uses.map((use) => [use?.model.engine === before, use?.model.price.prompt]),
    [
      [true, 1],
      [true, 1],
    ],
  );
  using next = catalog.use("m");
  assert.deepEqual([next?.model.engine === after, next?.model.price.prompt], [true, 2]);
  let isUnused = false;
  const unused = catalog.unused(before).then(() => {
    isUnused = true;
  });
  uses[0]?.[Symbol.dispose]();
  await new Promise(setImmediate);
  assert.equal(isUnused, false, "one request still uses it");
  uses[1]?.[Symbol.dispose]();
  await unused;
  catalog.replace([]);
  assert.equal(catalog.use("m"), undefined);
});

test("an engine without requests is unused at once", async () => {
  const engine = new PuppetEngine();
  const catalog = new Catalog([modelOf(engine)]);
  catalog.use("m")?.[Symbol.dispose]();
  await catalog.unused(engine);
});

test("a queue follows its limit", () => {
  let max = 1;
  const queue = new FairQueue<number>(() => max);
  assert.deepEqual([queue.push("a", 1), queue.push("a", 2)], [true, false]);
  max = 2;
  assert.deepEqual([queue.push("a", 2), queue.push("a", 3)], [true, false]);
});

test("uploads of a known account follow changed limits", () => {
  const caller = { accountId: "a", plan: planOf("p", 1, 1), key: keyOf("k", "a") };
  const limits = { bodyBytesMax: 100, uploadBytesMax: 200, uploadMs: 1000 };
  const uploads = new Uploads(limits);
  const admit = () => uploads.admit(caller, { "content-length": "60" });
  const running = admit();
  assert.throws(admit, /limit is 100 bytes in total/);
  uploads.configure({ ...limits, uploadBytesMax: 4000 });
  const second = admit();
  uploads.configure({ ...limits, uploadBytesMax: 100 });
  assert.throws(admit, /limit is 100 bytes in total/);
  running.release();
  second.release();
  assert.deepEqual([uploads.count, uploads.bytes], [0, 0]);
});

test("refused work that was done before counts against a changed limit", () => {
  const allowance = new RefusalAllowance({ refusedBytesPerMinute: 1000, refusedMsPerMinute: 1000 }, () => 0);
  const caller = { accountId: "a", plan: planOf("p", 1, 1), key: keyOf("k", "a") };
  allowance.charge(caller, { bytes: 500, ms: 0 });
  allowance.require(caller);
  allowance.configure({ refusedBytesPerMinute: 100, refusedMsPerMinute: 1000 });
  assert.throws(() => allowance.require(caller), /The limit is 100 bytes/);
  allowance.configure({ refusedBytesPerMinute: 1000, refusedMsPerMinute: 1000 });
  allowance.require(caller);
});

test("a node reports a changed fingerprint, even if a heartbeat with the earlier one is under way", async () => {
  const sent: ConfigFingerprint[] = [];
  let answer: (() => void) | null = null;
  let isSlow = false;
  const registry: NodeRegistry = {
    async heartbeat(self) {
      sent.push(self.fingerprint);
      if (isSlow) {
        isSlow = false;
        await new Promise<void>((resolve) => {
          answer = resolve;
        });
      }
      const other = { ...self, id: "other", fingerprint: { price: "1" } };
      return [self, other].map((row) => ({ ...row, startedMs: 0, seenMs: 0 }));
    },
    leave: async () => {},
  };
  const reports: number[] = [];
  const watch = await startNodeWatch(
    registry,
    { id: "self", version: "0", fingerprint: { price: "1" } },
    { jobs: testJobs(), everyMs: 5, onDiffers: (nodes) => reports.push(nodes.length) },
  );
  isSlow = true;
  while (answer === null) await new Promise((resolve) => setTimeout(resolve, 1));
  const changed = watch.changed({ price: "2" });
  const finish: () => void = answer;
  finish();
  await changed;
  assert.deepEqual(sent.at(-1), { price: "2" });
  assert.deepEqual(
    watch.nodes().map(({ differs }) => differs),
    [[], ["price"]],
  );
  assert.deepEqual(reports, [1]);
  await watch.changed({ price: "1" });
  assert.deepEqual(reports, [1, 0], "the nodes agree again");
  await watch.stop();
});
