/**
 * API keys: generating, parsing and hashing them, and authenticating requests by them.
 *
 * A key is `ink_` and 40 base62 characters: 34 random characters (202 bits) and their CRC32 in 6
 * characters. With the checksum, a typing error is detected without the store, and secret scanners
 * recognise a key. Only the SHA-256 of a key is stored; 202 random bits need no slow hash.
 * Nothing is cached: a revoked key is refused at the next request. No message or detail contains a
 * key or a part of one.
 */
import { hash, randomBytes, timingSafeEqual } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { crc32 } from "node:zlib";
import { Refusal } from "../errors.ts";
import type { KeyCap } from "../ledger/cap-rows.ts";
import { capsAfter, newKeyOf } from "../ledger/key-facts.ts";
import type { CapSettings, NewKey } from "../ledger/operations.ts";
import type { Plan } from "../ledger/plan.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { type ActsFor, type KeyRow, type SomeSettings, settingsIn, works } from "../ledger/rows.ts";
import type { Alignment } from "../ledger/windows.ts";
import { defined } from "../objects.ts";
import type { FoundKey, Store } from "../store/store.ts";
import { type Credits, type EpochMs, microOf } from "../units.ts";

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

/** A cap as the API names it. Absent parts have the defaults of `CapSettings`. */
export interface CapInput {
  credits: Credits;
  every: string;
  align?: Alignment | undefined;
  timezone?: string | undefined;
  name?: string | undefined;
  models?: readonly string[] | undefined;
  /** Holders of keys may only lower the amount. Default: true. */
  byOperator?: boolean | undefined;
}

export function capSettings({ credits, byOperator = true, ...cap }: CapInput): CapSettings {
  return { ...defined(cap), every: cap.every, amountMicro: microOf(credits), byOperator };
}

/**
 * An absent property means: a random id, no name, all models of the plan, no expiry, no limits, no
 * caps of its own, and in the portal no rights beyond itself.
 */
export interface KeyOptions extends SomeSettings {
  /** Must be new. */
  id?: string | undefined;
  spendingCaps?: readonly CapInput[] | undefined;
  /** The front end whose key it is. */
  actsFor?:
    | (Pick<ActsFor, "name" | "header"> & {
        [Name in Exclude<keyof ActsFor, "name" | "header">]?: ActsFor[Name] | undefined;
      })
    | undefined;
  /** The key itself. Absent: a new one. */
  secret?: string | undefined;
}

/** A key that is not stored yet, and its secret, which is stored nowhere: show it once. */
interface MintedKey {
  key: string;
  row: NewKey;
}

/** Returns a key that is not stored yet. */
export function newKey(account: string, options: KeyOptions): MintedKey {
  const key = options.secret ?? mintKey();
  const row: NewKey = {
    id: options.id ?? `key_${randomBytes(8).toString("hex")}`,
    account,
    hash: hashKey(key),
    lastFour: key.slice(-4),
    ...settingsIn(options),
    actsFor: actsForIn(options),
  };
  return { key, row };
}

function actsForIn({ actsFor }: KeyOptions): ActsFor | null {
  if (actsFor === undefined) return null;
  const { name, header, nameHeader, emailHeader, plan, newAccountsPerDay } = actsFor;
  const none = { nameHeader: null, emailHeader: null, plan: null, newAccountsPerDay: null };
  return { name, header, ...none, ...defined({ nameHeader, emailHeader, plan, newAccountsPerDay }) };
}

/** Reports whether a key is as these options ask for, whatever its secret. */
export function isAsAsked(row: KeyRow, options: KeyOptions): boolean {
  const asked = newKey(row.account, { ...options, id: row.id });
  if (!isDeepStrictEqual(settingsOf(row), settingsOf(asked.row))) return false;
  const settings = (options.spendingCaps ?? []).map((cap, n) =>
    // The zone of the plan may have changed since.
    capSettings({ ...cap, timezone: cap.timezone ?? row.caps[n]?.timezone }),
  );
  const caps = capsAfter(row.caps, settings, { zone: undefined, atMs: row.createdMs });
  return !("kind" in caps) && isDeepStrictEqual(row.caps.map(withoutAuthor), caps.map(withoutAuthor));
}

function withoutAuthor({ byOperator: _, ...cap }: KeyCap): Omit<KeyCap, "byOperator"> {
  return cap;
}

function settingsOf(row: NewKey): Omit<NewKey, "hash" | "lastFour"> {
  const { hash: _, lastFour: __, ...settings } = newKeyOf(row);
  return settings;
}

/** Returns a new key. `beginning`: of an operator key, which has 4 characters too. */
export function mintKey(beginning = prefix): string {
  let random = "";
  while (random.length < randomLength) {
    for (const byte of randomBytes(randomLength)) {
      if (byte < byteLimit && random.length < randomLength) random += base62.charAt(byte % 62);
    }
  }
  return beginning + random + checksumOf(random);
}

/**
 * `ok`: has the form of a key. `mistyped`: begins like a key. `foreign`: does not, as keys of
 * other services.
 */
export function parseKey(text: string, beginning = prefix): "ok" | "mistyped" | "foreign" {
  if (!text.startsWith(beginning)) return "foreign";
  if (text.length !== keyLength) return "mistyped";
  const random = text.slice(beginning.length, -checksumLength);
  return text.slice(-checksumLength) === checksumOf(random) ? "ok" : "mistyped";
}

/** Returns the SHA-256 of the whole key in lower-case hex. */
export function hashKey(key: string): string {
  return hash("sha256", key, "hex");
}

/** Returns which secret of the key has this SHA-256, in constant time. */
export function secretWith(given: string, key: KeyRow): "present" | "old" | null {
  const isSame = (known: string) => timingSafeEqual(Buffer.from(known), Buffer.from(given));
  if (isSame(key.hash)) return "present";
  return key.oldHash !== null && isSame(key.oldHash) ? "old" : null;
}

/** Whether a secret is valid, as long as its key works. */
export function isCurrent(secret: "present" | "old", { oldUntilMs }: KeyRow, atMs: EpochMs): boolean {
  return secret === "present" || (oldUntilMs !== null && oldUntilMs > atMs);
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

/** The account that pays for a request, and the key that it is authenticated by. */
export interface Caller {
  accountId: string;
  /** Plan of the account. */
  plan: Plan;
  /** As of the authentication. */
  key: KeyRow;
}

/**
 * Finds the key of the value of an `Authorization` header. Throws the refusals `missing_api_key`
 * and `invalid_api_key`.
 */
export async function authenticate(
  store: Pick<Store, "findKey">,
  header: string | undefined,
  nowMs: EpochMs,
): Promise<FoundKey> {
  return await findUsableKey(store, keyIn(header), nowMs);
}

/**
 * Returns the key with this secret. Throws the refusal `invalid_api_key` if there is none, or if
 * the key or the secret has ended.
 */
export async function findUsableKey(
  store: Pick<Store, "findKey">,
  secretText: string,
  nowMs: EpochMs,
): Promise<FoundKey> {
  requireForm(secretText);
  const given = hashKey(secretText);
  const found = await store.findKey(given);
  if (found === null) throw unknownKey();
  const { key } = found;
  const secret = secretWith(given, key);
  if (secret === null) throw unknownKey();
  const { revokedMs, expiresMs, oldUntilMs } = key;
  if (!isCurrent(secret, key, nowMs)) {
    const until = new Date(oldUntilMs ?? 0).toISOString();
    throw invalidKey(`This API key was replaced by a new one, and was valid until ${until}.`);
  }
  if (works(key, nowMs)) return found;
  const expired = `expired at ${new Date(expiresMs ?? 0).toISOString()}` as const;
  throw refusalOf({ kind: "invalid_api_key", why: revokedMs === null ? expired : "was revoked" });
}

/**
 * Returns a caller of the account that pays. Throws the refusal `balance_unavailable` if the
 * database lacks the account or its plan.
 */
export function keyCallerOf(
  { key, plan, problem }: Pick<FoundKey, "key" | "plan" | "problem">,
  account = key.account,
): Caller {
  if (plan !== null) return { accountId: account, plan, key };
  throw refusalOf({ kind: "balance_unavailable", account, problem: problem ?? "it has no plan" });
}

function unknownKey(): Refusal {
  return invalidKey("This API key is unknown. It may belong to another service.");
}

function keyIn(header: string | undefined): string {
  const [scheme = "", key = "", ...rest] = (header ?? "").trim().split(/\s+/);
  const isBearer = scheme.toLowerCase() === "bearer";
  if (scheme === "" || (key === "" && isBearer)) {
    throw new Refusal(
      "missing_api_key",
      "This request has no API key. Send it in a header: Authorization: Bearer ink_...",
    );
  }
  if (!isBearer || rest.length > 0) {
    throw invalidKey("The Authorization header must have the form: Bearer ink_...");
  }
  return key;
}

function requireForm(key: string): void {
  const form = parseKey(key);
  if (form === "ok") return;
  throw invalidKey(
    form === "mistyped"
      ? `This API key is mistyped or incomplete: its check characters do not match. ${keyFormat} Copy the whole key again.`
      : `This is not an API key of this service. ${keyFormat}`,
  );
}

export function invalidKey(message: string): Refusal {
  return new Refusal("invalid_api_key", `${message} Ask the operator of this service for a valid key.`);
}
