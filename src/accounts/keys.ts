/**
 * API keys: how one is made, told apart from a mistyped one, hashed and recognised.
 *
 * A key is `ink_` and 40 base62 characters: 34 random ones (202 bits) and their CRC32 in six, so that a typing
 * error is named as such without a look into the store, and secret scanners can know a key by itself. Only the
 * SHA-256 is kept; 202 random bits need no slow hash.
 *
 * Guarantees that no key, whole or in part, is in any message or detail, and that nothing is cached: a revoked key
 * is refused at the next request.
 */
import { hash, randomBytes, timingSafeEqual } from "node:crypto";
import { crc32 } from "node:zlib";
import { Refusal } from "../errors.ts";
import { balanceUnavailable } from "../ledger/balance.ts";
import type { Plans } from "../ledger/plan.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import type { Caller } from "./caller.ts";

const prefix = "ink_";
const randomLength = 34;
const checksumLength = 6;
const keyLength = prefix.length + randomLength + checksumLength;
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 4 * 62: a random byte from here on would make the first characters of the alphabet likelier. */
const byteLimit = 248;

/** A new key. It is nowhere else: show it once and forget it. */
export function mintKey(): string {
  let random = "";
  while (random.length < randomLength) {
    for (const byte of randomBytes(randomLength)) {
      if (byte < byteLimit && random.length < randomLength) random += base62.charAt(byte % 62);
    }
  }
  return prefix + random + checksumOf(random);
}

/** `ok`: made by `mintKey`, somewhere. `mistyped`: meant to be such a key. `foreign`: another service's, or no key. */
export function parseKey(text: string): "ok" | "mistyped" | "foreign" {
  if (!text.startsWith(prefix)) return "foreign";
  if (text.length !== keyLength) return "mistyped";
  const random = text.slice(prefix.length, -checksumLength);
  return text.slice(-checksumLength) === checksumOf(random) ? "ok" : "mistyped";
}

/** SHA-256 of the whole key, lower-case hex. */
export function hashKey(key: string): string {
  return hash("sha256", key, "hex");
}

/**
 * Who an `Authorization` header stands for. Throws the refusals `missing_api_key`, `invalid_api_key`, and
 * `balance_unavailable` where the account's plan is not in the configuration.
 */
export function authenticate(
  store: Pick<Store, "findKey">,
  plans: Plans,
): (header: string | undefined, nowMs: EpochMs) => Promise<Caller> {
  return async (header, nowMs) => {
    const given = hashKey(keyIn(header));
    const found = await store.findKey(given);
    if (found === null || !timingSafeEqual(Buffer.from(found.key.hash), Buffer.from(given))) {
      throw invalid("This API key is not known here: it may have been made for another service.");
    }
    const { key } = found;
    if (key.revokedMs !== null) throw invalid("This API key has been revoked.");
    if (key.expiresMs !== null && key.expiresMs <= nowMs) {
      throw invalid(`This API key expired at ${new Date(key.expiresMs).toISOString()}.`);
    }
    const plan = plans.get(found.plan);
    if (plan === undefined) {
      throw balanceUnavailable(
        `account ${key.account}: its plan "${found.plan}" is not in the configuration`,
      );
    }
    const { account: accountId, id: keyId, models, concurrent } = key;
    return { accountId, keyId, plan, models, concurrent };
  };
}

function keyIn(header: string | undefined): string {
  const [scheme = "", key = "", ...rest] = (header ?? "").trim().split(/\s+/);
  if (scheme === "" || (key === "" && isBearer(scheme))) {
    throw new Refusal(
      "missing_api_key",
      "There is no API key in this request. Send it in a header: Authorization: Bearer ink_...",
    );
  }
  if (!isBearer(scheme) || rest.length > 0) {
    throw invalid("The Authorization header is not of the form: Bearer ink_...");
  }
  switch (parseKey(key)) {
    case "ok":
      return key;
    case "mistyped":
      throw invalid(
        `This API key is mistyped or incomplete: its check characters do not fit. A key is ${prefix} and ${keyLength - prefix.length} letters and digits; copy it again, whole.`,
      );
    case "foreign":
      throw invalid(`This is not an API key of this service, whose keys begin with "${prefix}".`);
  }
}

function isBearer(scheme: string): boolean {
  return scheme.toLowerCase() === "bearer";
}

function invalid(message: string): Refusal {
  return new Refusal(
    "invalid_api_key",
    `${message} Ask the operator of this service for a key that is valid.`,
  );
}

/** CRC32 of the random characters, as six base62 digits: 62^6 is more than 2^32. */
function checksumOf(random: string): string {
  let rest = crc32(random);
  let digits = "";
  for (let n = 0; n < checksumLength; n += 1) {
    digits = base62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
