/**
 * API keys: generating, parsing, hashing and storing them.
 *
 * A key is `ink_` and 40 base62 characters: 34 random characters (202 bits) and their CRC32 in 6
 * characters. With the checksum, a typing error is detected without the store, and secret scanners
 * recognise a key. Only the SHA-256 of a key is stored; 202 random bits need no slow hash.
 */
import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
import type { KeyRow } from "../ledger/rows.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";

const prefix = "ink_";
const randomLength = 34;
const checksumLength = 6;
const keyLength = prefix.length + randomLength + checksumLength;
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/**
 * 4 * 62. Larger random bytes are skipped: they would make the first characters of the alphabet
 * likelier.
 */
const byteLimit = 248;

export const keyFormat = `A key is "${prefix}" and ${keyLength - prefix.length} letters and digits.`;

/**
 * An absent property means: a random id, no name, all models of the plan, no expiry, no limits of
 * its own.
 */
export interface KeyOptions {
  /** Must be new. */
  id?: string | undefined;
  name?: string | undefined;
  models?: readonly string[] | undefined;
  expiresMs?: EpochMs | undefined;
  requestsPerMinute?: number | undefined;
  tokensPerMinute?: number | undefined;
  concurrent?: number | undefined;
}

export interface IssuedKey {
  /** The key itself. It is stored nowhere: show it once. */
  key: string;
  row: KeyRow;
}

/** Adds a key to an account. Returns null if the account does not exist. */
export async function issueKey(
  store: Store,
  account: string,
  options: KeyOptions,
  nowMs: EpochMs,
): Promise<IssuedKey | null> {
  const key = mintKey();
  const row: KeyRow = {
    id: options.id ?? `key_${randomBytes(8).toString("hex")}`,
    hash: hashKey(key),
    lastFour: key.slice(-4),
    ...keyProperties(account, options),
    createdMs: nowMs,
    revokedMs: null,
    lastUsedMs: null,
    requestsTatMs: 0,
    tokensTatMs: 0,
    holds: 0,
  };
  return (await store.addKey(row)) ? { key, row } : null;
}

/** Returns the part of a key's row that its options determine. */
export function keyProperties(account: string, options: { [P in keyof KeyOptions]: KeyOptions[P] | null }) {
  return {
    account,
    name: options.name ?? null,
    models: options.models ?? ["*"],
    expiresMs: options.expiresMs ?? null,
    requestsPerMinute: options.requestsPerMinute ?? null,
    tokensPerMinute: options.tokensPerMinute ?? null,
    concurrent: options.concurrent ?? null,
  };
}

/** Returns a new key. */
export function mintKey(): string {
  let random = "";
  while (random.length < randomLength) {
    for (const byte of randomBytes(randomLength)) {
      if (byte < byteLimit && random.length < randomLength) random += base62.charAt(byte % 62);
    }
  }
  return prefix + random + checksumOf(random);
}

/**
 * `ok`: has the form of a key. `mistyped`: begins like a key. `foreign`: does not, as keys of
 * other services.
 */
export function parseKey(text: string): "ok" | "mistyped" | "foreign" {
  if (!text.startsWith(prefix)) return "foreign";
  if (text.length !== keyLength) return "mistyped";
  const random = text.slice(prefix.length, -checksumLength);
  return text.slice(-checksumLength) === checksumOf(random) ? "ok" : "mistyped";
}

/** Returns the SHA-256 of the whole key in lower-case hex. */
export function hashKey(key: string): string {
  return hash("sha256", key, "hex");
}

/** Returns the CRC32 of the random characters as 6 base62 digits: 62^6 is more than 2^32. */
function checksumOf(random: string): string {
  let rest = crc32(random);
  let digits = "";
  for (let n = 0; n < checksumLength; n += 1) {
    digits = base62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
