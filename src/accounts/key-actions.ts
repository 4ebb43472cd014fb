/**
 * Everything that operators do with keys: issuing, listing, changing, rotating and revoking them.
 *
 * Each operation id takes effect once. Actions throw refusals, and then nothing has changed.
 * Returned rows are in the windows of this moment.
 */
import { hash } from "node:crypto";
import { Refusal } from "../errors.ts";
import { keyAt } from "../ledger/key-facts.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { KeyOperation, KeySettings } from "../ledger/operations.ts";
import { newIdNeeded, refusalOf } from "../ledger/refusals.ts";
import { type KeyAuthority, type KeyRow, type SomeSettings, works } from "../ledger/rows.ts";
import { endOf } from "../ledger/windows.ts";
import { defined } from "../objects.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import {
  type CapInput,
  capSettings,
  hashKey,
  isAsAsked,
  isCurrent,
  type KeyOptions,
  keyFormat,
  mintKey,
  newKey,
  parseKey,
  secretWith,
} from "./keys.ts";
import { invalidValue, requireUsableKey } from "./refusals.ts";
import { defaultOverlap, noOverlap } from "./value-rules.ts";

const overlapMsMax = 366 * 86_400_000;

/** New settings of a key. Undefined: the setting stays. Null removes it. */
export interface KeyChange extends SomeSettings {
  /** An absent part stays. `byOperator` (default): holders of keys may only lower the amount. */
  spendingCaps?: readonly CapInput[] | undefined;
}

/** Conditions of issuing a key. */
interface IssueConditions {
  /** The key that creates it is as here. */
  creator?: KeyAuthority | null;
  /** The account has fewer keys, ended keys included. */
  keysMax?: number | null;
  /** Fewer keys of the account work. */
  workingMax?: number | undefined;
  /** The caps are those of a holder, who may change them. Default: if a key creates it. */
  isByHolder?: boolean;
}

/** Conditions of changing a key: it has this authority, and fewer work if it does not. */
type ChangeConditions = Pick<KeyOperation, "seen" | "workingMax">;

/** A key, and its secret unless it was shown before. */
export interface ShownKey {
  key: string | null;
  row: KeyRow;
}

/** The key of a secret. */
export interface KeyOfSecret {
  row: KeyRow;
  /** `old`: the secret before the last rotation. */
  secret: "present" | "old";
  /** Whether a request with this secret is authenticated now. */
  isUsable: boolean;
}

interface KeyActionDependencies {
  store: Store;
  ledger: Ledger;
  /** Models that keys may name. */
  modelIds(): readonly string[];
  /** Who acts. The journal names them. */
  by: string;
}

export class KeyActions {
  readonly #deps: KeyActionDependencies;

  constructor(dependencies: KeyActionDependencies) {
    this.#deps = dependencies;
  }

  /** Issues a key, with an operation id that was not used before. */
  async #issue(
    account: string,
    op: string,
    options: KeyOptions,
    { creator = null, keysMax = null, workingMax, isByHolder = creator !== null }: IssueConditions = {},
  ): Promise<ShownKey> {
    const { store, ledger, modelIds, by } = this.#deps;
    requireUsableKey(options, modelIds(), store.times().atMs);
    const { key, row } = newKey(account, options);
    const caps = (options.spendingCaps ?? []).map((cap) => capSettings({ ...cap, byOperator: !isByHolder }));
    const id = { account, key: row.id, op };
    const operation = { kind: "issue", ...id, row, caps, creator, keysMax, workingMax, by } as const;
    const outcome = await ledger.apply(operation);
    if (outcome.kind === "issued") return { key, row: this.#present(outcome.key) };
    if (outcome.kind !== "key_exists") throw refusalOf(outcome);
    // An id that the operator or a random number chose twice.
    const message = `The key ${row.id} of ${outcome.key.account} exists already. ${newIdNeeded}`;
    throw new Refusal("operation_differs", message);
  }

  /**
   * Issues one key for each operation id. A repetition returns the key's row without the secret.
   */
  async issueOnce(
    account: string,
    operation: string,
    options: KeyOptions,
    conditions?: IssueConditions,
  ): Promise<ShownKey> {
    const id = keyIdOf(account, operation);
    let known = await this.#deps.store.keyById(id);
    if (known === null) {
      try {
        return await this.#issue(account, operation, { ...options, id }, conditions);
      } catch (error) {
        // The key may exist all the same: issued by a request at the same time, or just before the
        // store failed.
        known = await this.#deps.store.keyById(id);
        if (known === null) throw error;
      }
    }
    if (isAsAsked(known, { ...options, id })) return { key: null, row: this.#present(known) };
    throw new Refusal(
      "operation_differs",
      `Operation "${operation}" issued the key ${id} of ${known.account} before, and the properties of that key are different now. ${newIdNeeded}`,
      { param: "operation_id" },
    );
  }

  async find(id: string): Promise<KeyRow> {
    const row = await this.#deps.store.keyById(id);
    if (row === null) throw refusalOf({ kind: "key_not_found", key: id });
    return this.#present(row);
  }

  /**
   * Finds the key that has this secret, even if the key or the secret has ended. No message
   * contains the secret or a part of it.
   */
  async lookUp(secret: string): Promise<KeyOfSecret> {
    requireForm(secret);
    const hash = hashKey(secret);
    const found = await this.#deps.store.findKey(hash);
    const which = found && secretWith(hash, found.key);
    if (found === null || which === null) {
      throw new Refusal(
        "key_not_found",
        "No key has this secret. It may belong to another installation, or have been replaced by two rotations.",
      );
    }
    const row = this.#present(found.key);
    const { atMs } = this.#deps.store.times();
    return { row, secret: which, isUsable: works(row, atMs) && isCurrent(which, row, atMs) };
  }

  /**
   * Returns the keys of an account or of all, in the order of their creation: those after one, at
   * most so many. Null: no key has the id `after`.
   */
  async list(after: string | undefined, most: number, account?: string): Promise<KeyRow[] | null> {
    const { store } = this.#deps;
    if (account !== undefined && (await store.accountSnapshot(account)) === null)
      throw refusalOf({ kind: "account_not_found", account });
    const last = after === undefined ? null : await store.keyById(after);
    if (after !== undefined && (last === null || last.account !== (account ?? last.account))) return null;
    return (await store.keysAfter(last, most, account)).map((row) => this.#present(row));
  }

  /**
   * Changes settings of a key, from its next request on. Nothing changes unless the conditions are
   * true.
   */
  async change(
    id: string,
    operation: string,
    change: KeyChange,
    conditions?: ChangeConditions,
  ): Promise<KeyRow> {
    const { spendingCaps, ...others } = change;
    const settings: KeySettings = defined({ ...others, caps: spendingCaps?.map(capSettings) });
    if (Object.keys(settings).length === 0) throw nothingToChange();
    requireUsableKey(change, this.#deps.modelIds(), this.#deps.store.times().atMs);
    return await this.#apply(id, operation, settings, conditions);
  }

  /**
   * Gives the key a new secret. The present secret stays valid for the period `overlap`, and an
   * older one ends. A repetition returns the row without the secret.
   */
  async rotate(
    id: string,
    operation: string,
    overlap = defaultOverlap,
    seen?: KeyAuthority,
  ): Promise<ShownKey> {
    if (overlap !== noOverlap) requireOverlap(overlap, this.#deps.store.times().atMs);
    const key = mintKey();
    const rotation = {
      hash: hashKey(key),
      lastFour: key.slice(-4),
      overlap: overlap === noOverlap ? null : overlap,
    };
    const row = await this.#apply(id, operation, { rotation }, { seen });
    // A repetition inside of the ledger, after a lost reply of the store, has stored this secret.
    const isStored = row.hash === rotation.hash || row.oldHash === rotation.hash;
    return { key: isStored ? key : null, row };
  }

  /** Revokes a key for good. */
  async revoke(id: string): Promise<{ row: KeyRow; revokedBefore: boolean }> {
    const { account } = await this.find(id);
    const outcome = await this.#deps.ledger.apply({ kind: "revoke", account, key: id, by: this.#deps.by });
    if (outcome.kind === "revoked")
      return { row: this.#present(outcome.key), revokedBefore: outcome.replayed };
    throw refusalOf(outcome);
  }

  async #apply(
    id: string,
    operation: string,
    set: KeySettings,
    conditions: ChangeConditions = {},
  ): Promise<KeyRow> {
    const { account } = await this.find(id);
    const change: KeyOperation = {
      kind: "key",
      account,
      key: id,
      op: operation,
      set,
      by: this.#deps.by,
      ...conditions,
    };
    const outcome = await this.#deps.ledger.apply(change);
    if (outcome.kind === "changed") return this.#present(outcome.key);
    throw refusalOf(outcome);
  }

  #present(row: KeyRow): KeyRow {
    return keyAt(row, this.#deps.store.times().atMs);
  }
}

function nothingToChange(): Refusal {
  return new Refusal(
    "missing_required_parameter",
    "Nothing to change: name at least one setting of the key.",
  );
}

function requireForm(secret: string): void {
  const form = parseKey(secret);
  if (form === "ok") return;
  const fault =
    form === "mistyped"
      ? "The key is mistyped or incomplete: its check characters do not match."
      : "This is not a key of Inkwell.";
  throw invalidValue("key", `${fault} ${keyFormat}`);
}

function requireOverlap(overlap: string, nowMs: EpochMs): void {
  if (endOf(overlap, nowMs) - nowMs <= overlapMsMax) return;
  throw invalidValue("overlap", `overlap must be at most a year, not "${overlap}".`);
}

/** Derives the key's id from the operation, so that a repetition finds the key. */
function keyIdOf(account: string, operation: string): string {
  return `key_${hash("sha256", `${account}\n${operation}`, "hex").slice(0, 16)}`;
}
