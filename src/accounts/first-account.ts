/**
 * Opens the first account of a new installation, so that the first start has a key that works.
 *
 * Without a terminal, the key is in a file of the data folder. The file is on disk before the key
 * is in the ledger, so a start that ends in between loses no key: the next start issues the key of
 * the file. Nothing but the operator removes the file of a key that works.
 */
import { rm } from "node:fs/promises";
import { invariant, messageOf, OperatorError, Refusal } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { createSecretFile, readSecretFile } from "../secret-file.ts";
import type { Store } from "../store/store.ts";
import { findUsableKey, mintKey, newKey, parseKey } from "./keys.ts";

export const firstAccount = "default";
/** The same id on every node: if several nodes start together, one of them issues the key. */
export const firstKeyId = "key_0000000000000001";

/** Name of the file in the data folder. */
export const firstKeyFileName = "first-key";

export interface FirstAccount {
  account: string;
  plan: string;
  /** To be shown at a terminal. Null: it is in the file. */
  key: string | null;
  keyFile: string | null;
}

/**
 * Opens the account `default` on the first plan of the database and issues a key. Returns
 * null if the store has other accounts or any key. A start that ended between the two steps is
 * completed by the next start. `keyFile` null: a terminal shows the key. Throws an `OperatorError`
 * if the file cannot be written; nothing is opened then.
 */
export async function openFirstAccount(
  store: Store,
  ledger: Ledger,
  keyFile: string | null,
): Promise<FirstAccount | null> {
  const [only, ...others] = await store.accounts({ limit: 2 });
  if (others.length > 0 || (only !== undefined && only.id !== firstAccount)) return null;
  if ((await store.keysAfter(null, 1)).length > 0) return null;
  const key = keyFile === null ? mintKey() : await keyInNewFile(keyFile);
  const plan = only?.plan ?? (await openOnFirstPlan(store, ledger));
  if (await issueFirstKey(ledger, key)) {
    return { account: firstAccount, plan, key: keyFile === null ? key : null, keyFile };
  }
  // Another node has just issued another key.
  if (keyFile !== null) await rm(keyFile, { force: true });
  return null;
}

/** Writes a new key to the file, or returns the key of a start that did not get further. */
async function keyInNewFile(file: string): Promise<string> {
  try {
    await createSecretFile(file, mintKey());
    const key = (await readSecretFile(file)) ?? "";
    if (parseKey(key) === "ok") return key;
  } catch (error) {
    throw new OperatorError(
      `The first key cannot be written to ${file}: ${messageOf(error)}. No account was opened.`,
      error,
    );
  }
  throw new OperatorError(
    `The first key cannot be written to ${file}: that file exists and has no key. No account was opened. Move the file away; the next start writes it.`,
  );
}

/**
 * Reports whether the key in the file of an earlier first start works. Null if there is no file.
 * Throws if the file cannot be read, or is not as Inkwell writes it.
 */
export async function keyFileLeft(store: Store, file: string): Promise<{ works: boolean } | null> {
  const key = await readSecretFile(file);
  if (key === null) return null;
  try {
    await findUsableKey(store, key, store.times().atMs);
    return { works: true };
  } catch (error) {
    if (error instanceof Refusal && error.code === "invalid_api_key") return { works: false };
    throw error;
  }
}

async function openOnFirstPlan(store: Store, ledger: Ledger): Promise<string> {
  for (;;) {
    const [plan] = (await store.plans()).offered;
    invariant(plan !== undefined, "a plans section has at least one plan");
    const opened = await ledger.apply({ kind: "open", account: firstAccount, plan, by: "service" });
    if (opened.kind === "opened") return plan;
    // Another node has just opened the account. One of the two issues the key.
    if (opened.kind === "exists") return opened.plan;
    // Otherwise another node has just replaced the plans.
    invariant(opened.kind === "retired_plan", "a plan of the database can be opened");
  }
}

/** Returns false if another node has just issued another key. */
async function issueFirstKey(ledger: Ledger, secret: string): Promise<boolean> {
  const { row } = newKey(firstAccount, { id: firstKeyId, name: "first", secret });
  const issuing = {
    kind: "issue",
    account: firstAccount,
    key: row.id,
    row,
    caps: [],
    keysMax: null,
    creator: null,
  } as const;
  const issued = await ledger.apply({ ...issuing, by: "service" });
  invariant(issued.kind === "issued" || issued.kind === "key_exists", "the account has just been opened");
  return issued.kind === "issued";
}
