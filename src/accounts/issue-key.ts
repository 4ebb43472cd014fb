/** Makes a key for an account: the secret to be shown once, the row that stays. */
import { randomBytes } from "node:crypto";
import type { KeyRow } from "../ledger/rows.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { hashKey, mintKey } from "./keys.ts";

/** Absent: an id at random, no name, every model of the plan, no end, no limits beside the plan's. */
export interface KeyOptions {
  /** Must be new. */
  id?: string;
  name?: string;
  models?: readonly string[];
  expiresMs?: EpochMs;
  requestsPerMinute?: number;
  tokensPerMinute?: number;
  concurrent?: number;
}

/** Null where there is no such account. `key` is the secret itself: show it once, or use it and forget it. */
export async function issueKey(
  store: Store,
  account: string,
  options: KeyOptions,
  nowMs: EpochMs,
): Promise<{ key: string; row: KeyRow } | null> {
  const key = mintKey();
  const row: KeyRow = {
    id: options.id ?? `key_${randomBytes(8).toString("hex")}`,
    account,
    hash: hashKey(key),
    name: options.name ?? null,
    lastFour: key.slice(-4),
    models: options.models ?? ["*"],
    requestsPerMinute: options.requestsPerMinute ?? null,
    tokensPerMinute: options.tokensPerMinute ?? null,
    concurrent: options.concurrent ?? null,
    createdMs: nowMs,
    expiresMs: options.expiresMs ?? null,
    revokedMs: null,
    lastUsedMs: null,
    requestsTatMs: 0,
    tokensTatMs: 0,
    holds: 0,
  };
  return (await store.addKey(row)) ? { key, row } : null;
}
