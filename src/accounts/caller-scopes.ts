/**
 * The two scopes of a caller that share a resource. An account has several keys, so each of them
 * may take a part of what the account may. The key of a front end has several accounts, and each
 * of them may take a part: nobody blocks the others behind it.
 */
import type { Caller } from "./keys.ts";

export type CallerScopes = Pick<Caller, "keyId" | "accountId" | "isShared">;

/** Returns the names of the narrow scope and of the wide one: `key ID` and `account ID`. */
export function scopesOf({ keyId, accountId, isShared }: CallerScopes): [narrow: string, wide: string] {
  const [key, account] = [`key ${keyId}`, `account ${accountId}`];
  return isShared === true ? [account, key] : [key, account];
}
