/**
 * Opens the first account of a new installation, so that the first start prints a key that works.
 */
import { invariant } from "../errors.ts";
import type { Ledger } from "../ledger/batcher.ts";
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
 * Opens the account `default` on the first plan of the database and issues a key. Returns
 * null if the store has other accounts or any key. A start that ended between the two steps is
 * completed by the next start.
 */
export async function openFirstAccount(store: Store, ledger: Ledger): Promise<FirstAccount | null> {
  const [only, ...others] = await store.accounts({ limit: 2 });
  if (others.length > 0 || (only !== undefined && only.id !== account)) return null;
  if ((await store.keys()).length > 0) return null;
  const plan = only?.plan ?? (await openOnFirstPlan(store, ledger));
  // Another node has just opened the account, and issues the key.
  if (plan === null) return null;
  const issued = await issueFirstKey(store);
  return issued === null ? null : { account, plan, key: issued.key };
}

/** Returns the plan, or null if another node has just opened the account. */
async function openOnFirstPlan(store: Store, ledger: Ledger): Promise<string | null> {
  for (;;) {
    const [plan] = (await store.plans()).offered;
    invariant(plan !== undefined, "a plans section has at least one plan");
    const opened = await ledger.apply({ kind: "open", account, plan });
    if (opened.kind === "exists") return null;
    // Otherwise another node has just replaced the plans.
    if (opened.kind === "opened") return plan;
    invariant(opened.kind === "retired_plan", "a plan of the database can be opened");
  }
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
