/** The account that a new installation begins with, so that the first start ends with a key in hand. */

import { invariant } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Plans } from "../ledger/plan.ts";
import type { Store } from "../store/store.ts";
import { issueKey } from "./keys.ts";

const name = "default";

export interface FirstAccount {
  account: string;
  plan: string;
  key: string;
}

/**
 * Opens the account `default` on the first plan of the configuration, with one key, where the store has no accounts;
 * null where it has. A start that was cut off between the two is taken up where it stopped.
 */
export async function openFirstAccount(
  store: Store,
  ledger: Ledger,
  plans: Plans,
): Promise<FirstAccount | null> {
  const [only, ...others] = await store.accounts({ limit: 2 });
  if (others.length > 0 || (only !== undefined && only.id !== name)) return null;
  if ((await store.keys()).length > 0) return null;
  const [first] = plans.keys();
  invariant(first !== undefined, "a configuration has at least one plan");
  const opened = await ledger.apply({ kind: "open", account: name, plan: only?.plan ?? first });
  invariant(opened.kind === "opened" || opened.kind === "exists", "the first plan can be opened");
  // Another node has opened it in this moment, and makes the key.
  if (opened.kind === "exists" && only === undefined) return null;
  const issued = await issueKey(store, name, { name: "first" }, Date.now());
  invariant(issued !== null, "the account has just been opened");
  return { account: name, plan: only?.plan ?? first, key: issued.key };
}
