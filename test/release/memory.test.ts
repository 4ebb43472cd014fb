/** Memory does not grow with the number of requests. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { shownBy } from "../fixtures/checkout-programs.ts";

const soak = fileURLToPath(new URL("../fixtures/soak.ts", import.meta.url));
/**
 * 600 requests are answered between the second look and the last: a kilobyte kept of each would be
 * more. Before the second look, code is compiled and caches are filled.
 */
const grownBytesMax = 600 * 1024;

test("frees the memory of hundreds of requests (BerriAI/litellm#12685, #27954)", {
  timeout: 240_000,
}, async (t) => {
  const stdout = await shownBy("--expose-gc", soak);
  const { isCollected, usedBytes }: { isCollected: boolean; usedBytes: number[] } = JSON.parse(stdout);
  assert.ok(isCollected, "garbage is collected before memory is looked at");
  t.diagnostic(`bytes in use: ${usedBytes.join(", ")}`);
  const [, second = 0] = usedBytes;
  const grown = (usedBytes.at(-1) ?? 0) - second;
  assert.ok(grown < grownBytesMax, `grew by ${grown} bytes: ${usedBytes.join(", ")}`);
});
