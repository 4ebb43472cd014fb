/**
 * Authenticates requests by their API key.
 *
 * Nothing is cached: a revoked key is refused at the next request. No message or detail contains a
 * key or a part of one.
 */
import { Refusal } from "../errors.ts";
import { balanceUnavailable } from "../ledger/balance.ts";
import type { Plan } from "../ledger/plan.ts";
import type { FoundKey, Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { hashKey, keyFormat, parseKey, secretWith } from "./keys.ts";

/** The account and key that a request is authenticated as. */
export interface Caller {
  accountId: string;
  keyId: string;
  /** Plan of the account. */
  plan: Plan;
  /** Requests that the key may run at the same time; null if only the plan limits them. */
  concurrent: number | null;
  /** Models that the key allows (`*` for all). The plan must allow the model too. */
  models: readonly string[];
}

/**
 * Authenticates the value of an `Authorization` header. Throws the refusals `missing_api_key` and
 * `invalid_api_key`, and `balance_unavailable` if the database lacks the account's plan.
 */
export async function authenticate(
  store: Pick<Store, "findKey">,
  header: string | undefined,
  nowMs: EpochMs,
): Promise<Caller> {
  return callerOf(await findUsableKey(store, keyIn(header), nowMs));
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
  if (secret === null || (secret === "old" && key.oldUntilMs === null)) throw unknownKey();
  if (secret === "old" && key.oldUntilMs !== null && key.oldUntilMs <= nowMs) {
    const until = new Date(key.oldUntilMs).toISOString();
    throw invalidKey(`This API key was replaced by a new one, and was valid until ${until}.`);
  }
  if (key.revokedMs !== null) throw invalidKey("This API key has been revoked.");
  if (key.expiresMs !== null && key.expiresMs <= nowMs) {
    throw invalidKey(`This API key expired at ${new Date(key.expiresMs).toISOString()}.`);
  }
  return found;
}

/** Throws the refusal `balance_unavailable` if the database lacks the account's plan. */
export function callerOf({ key, plan }: Pick<FoundKey, "key" | "plan">): Caller {
  if (plan === null) {
    throw balanceUnavailable(`account ${key.account}: the database has no version of its plan`);
  }
  const { account: accountId, id: keyId, models, concurrent } = key;
  return { accountId, keyId, plan, models, concurrent };
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
  switch (parseKey(key)) {
    case "ok":
      return;
    case "mistyped":
      throw invalidKey(
        `This API key is mistyped or incomplete: its check characters do not match. ${keyFormat} Copy the whole key again.`,
      );
    case "foreign":
      throw invalidKey(`This is not an API key of this service. ${keyFormat}`);
  }
}

export function invalidKey(message: string): Refusal {
  return new Refusal("invalid_api_key", `${message} Ask the operator of this service for a valid key.`);
}
