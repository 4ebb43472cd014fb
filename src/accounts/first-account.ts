/**
 * Opens the first account of a new installation, so that the first start prints a key that works.
 */
import { invariant } from "../errors.ts";
import type { Ledger } from "../ledger/batcher.ts";
import type { Plans } from "../ledger/plan.ts";
import type { Store } from "../store/store.ts";
import { type IssuedKey, issueKey } from "./keys.ts";

const account = "default";
/** The same id on every node: if several nodes start together, one of them issues the key. */
const firstKeyId = "key_0000000000000001";

interface FirstAccount {
  account: string;
  plan: string;
  key: string;
}

/**
 * Opens the account `default` on the first plan of the configuration and issues a key. Returns
 * null if the store has other accounts or any key. A start that ended between the two steps is
 * completed by the next start.
 */
export async function openFirstAccount(
  store: Store,
  ledger: Ledger,
  plans: Plans,
): Promise<FirstAccount | null> {
  const [only, ...others] = await store.accounts({ limit: 2 });
  if (others.length > 0 || (only !== undefined && only.id !== account)) return null;
  if ((await store.keys()).length > 0) return null;
  const [firstPlan] = plans.keys();
  const plan = only?.plan ?? firstPlan;
  invariant(plan !== undefined, "a configuration has at least one plan");
  const opened = await ledger.apply({ kind: "open", account, plan });
  invariant(opened.kind === "opened" || opened.kind === "exists", "the first plan can be opened");
  // Another node has just opened the account, and issues the key.
  if (opened.kind === "exists" && only === undefined) return null;
  const issued = await issueFirstKey(store);
  return issued === null ? null : { account, plan, key: issued.key };
}

/** Returns null if another node has just issued the key. */
async function issueFirstKey(store: Store): Promise<IssuedKey | null> {
  try {
    const issued = await issueKey(store, account, { id: firstKeyId, name: "first" }, store.nowMs());
    invariant(issued !== null, "the account has just been opened");
    return issued;
  } catch (error) {
    if ((await store.keyById(firstKeyId)) === null) throw error;
    return null;
  }
}
