/** Memory does not grow with the number of requests. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const soak = fileURLToPath(new URL("../fixtures/soak.ts", import.meta.url));
/**
 * 2,400 requests are answered between the first look and the last: half a kilobyte kept of each
 * would be more.
 */
const grownBytesMax = 1024 * 1024;

test("frees the memory of thousands of requests (BerriAI/litellm#12685, #27954)", {
  timeout: 240_000,
}, async (t) => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--expose-gc", soak]);
  const { isCollected, usedBytes }: { isCollected: boolean; usedBytes: number[] } = JSON.parse(stdout);
  assert.ok(isCollected, "garbage is collected before memory is looked at");
  t.diagnostic(`bytes in use: ${usedBytes.join(", ")}`);
  const [first = 0] = usedBytes;
  const grown = (usedBytes.at(-1) ?? 0) - first;
  assert.ok(grown < grownBytesMax, `grew by ${grown} bytes: ${usedBytes.join(", ")}`);
});
