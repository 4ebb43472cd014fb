/** Settings of V8's heap, in a process of its own. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const heap = new URL("../../src/heap.ts", import.meta.url).href;

/** Fills 100 MB, keeps nothing of it, and reports its heap before and after. */
const program = `
  import { returnMemoryOfStart } from ${JSON.stringify(heap)};
  let kept = Array.from({ length: 1_000_000 }, (_, n) => ({ n, text: [n] }));
  const filled = process.memoryUsage().heapTotal * Math.sign(kept.length);
  kept = null;
  returnMemoryOfStart();
  console.log(JSON.stringify([filled, process.memoryUsage().heapTotal, typeof gc]));
`;

test("memory of the start is returned", () => {
  const args = ["--input-type=module", "--eval", program];
  const [filled, left, gc] = JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" }));
  assert.ok(filled > 80e6, `${filled} bytes`);
  assert.ok(left < 20e6, `${left} bytes`);
  assert.equal(gc, "undefined");
});
