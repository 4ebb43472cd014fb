/** Settings of V8's heap, in a process of its own. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { until } from "../fixtures/until.ts";

const heap = new URL("../../src/heap.ts", import.meta.url).href;

/** Fills 100 MB, keeps nothing of it, and does nothing but report its heap. */
const program = `
  import { returnUnusedMemory } from ${JSON.stringify(heap)};
  returnUnusedMemory();
  let kept = Array.from({ length: 1_000_000 }, (_, n) => ({ n, text: [n] }));
  process.send({ length: kept.length, totalBytes: process.memoryUsage().heapTotal });
  kept = null;
  process.on("message", () => process.send({ totalBytes: process.memoryUsage().heapTotal }));
`;

test("memory of a busy moment is returned while the program has nothing to do", async (t) => {
  const args = ["--input-type=module", "--eval", program];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  t.after(() => child.kill());
  const [filled] = await once(child, "message");
  assert.ok(filled.totalBytes > 80e6, `${filled.totalBytes} bytes`);
  await until("the heap has less than 20 MB", async () => {
    child.send("how much?");
    const [{ totalBytes }] = await once(child, "message");
    return totalBytes < 20e6;
  });
});
