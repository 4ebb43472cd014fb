/**
 * The ledger operations of a request, for benchmarks that omit everything else: a hold, optional
 * extensions of one token each, and a settlement when the hold is on disk.
 */

import type { Ledger } from "../src/ledger/ledger.ts";
import type { Store } from "../src/store/store.ts";
import { newRequestId } from "../src/telemetry/request-record.ts";
import { addKey, keyOf } from "../test/fixtures/ledger-rows.ts";
import { accountId, keyId, price, usage } from "./ledger-file.ts";

/** An account without limits, with a key. */
export async function openAccount(
  store: Store,
  ledger: Ledger,
  n: number,
  { key = keyId(n), hash = String(n).padStart(64, "0"), lastFour = "abcd" } = {},
): Promise<void> {
  const account = accountId(n);
  await ledger.apply({ kind: "open", account, plan: "bench", by: "test" });
  await addKey(store, keyOf(key, account, { hash, lastFour, createdMs: Date.now() }));
}

/** `generate` runs while the hold is open. */
export async function holdAndSettle(
  ledger: Ledger,
  n: number,
  { extensions = 0, generate }: { extensions?: number; generate?: () => Promise<void> } = {},
): Promise<void> {
  const account = accountId(n);
  const hold = newRequestId();
  const held = await ledger.apply({
    kind: "hold",
    account,
    requestId: hold,
    key: keyId(n),
    model: "bench",
    price,
    promptTokens: usage.promptTokens,
    minMicro: usage.promptTokens + 1,
    wantMicro: usage.promptTokens + usage.completionTokens,
    ttlMs: 30_000,
  });
  if (held.kind !== "held") throw new Error(`a hold was answered with ${JSON.stringify(held)}`);
  for (let step = 1; step <= extensions; step += 1) {
    const extension = {
      kind: "extend",
      account,
      requestId: hold,
      n: step,
      moreMicro: 1,
      usage,
      ttlMs: 30_000,
    } as const;
    const extended = await ledger.apply(extension);
    if (extended.kind !== "extended") throw new Error(`an extension was answered with ${extended.kind}`);
  }
  await generate?.();
  const settled = await ledger.apply({
    kind: "settle",
    account,
    requestId: hold,
    usage,
    ending: "stop",
    estimated: false,
    by: null,
  });
  if (settled.kind !== "settled") throw new Error(`a settlement was answered with ${settled.kind}`);
}
