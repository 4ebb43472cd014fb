/**
 * Everything that operators do with keys: issuing, listing, changing, rotating and revoking them.
 *
 * Changes and rotations take effect once for each operation id. Only `issue` issues another key
 * with each call. Actions throw the errors of accounts/refusals.ts, and then nothing has changed.
 * Returned rows are in the budget's window of this moment.
 */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { Refusal } from "../errors.ts";
import type { Ledger } from "../ledger/batcher.ts";
import { keyAt } from "../ledger/key-budget.ts";
import type { KeyOperation, KeySettings } from "../ledger/operations.ts";
import type { KeyAuthority, KeyRow, PortalRights } from "../ledger/rows.ts";
import { isRefillPeriod, refillPeriodRule, windowAt } from "../ledger/windows.ts";
import { defined } from "../objects.ts";
import type { AddKeyConditions, Store } from "../store/store.ts";
import { type Credits, type EpochMs, microOf } from "../units.ts";
import {
  hashKey,
  type IssuedKey,
  issueKey,
  type KeyOptions,
  keyFormat,
  keyProperties,
  mintKey,
  parseKey,
  propertiesOf,
  secretWith,
} from "./keys.ts";
import {
  accountNotFound,
  accountRefusal,
  invalidValue,
  keyChanged,
  keyExpired,
  keyNotFound,
  keyRevoked,
  newIdNeeded,
  OperatorRefusal,
  requireUsableKey,
  secretNotFound,
  tooManyKeys,
} from "./refusals.ts";

/** Time for which the old secret stays valid after a rotation, if none is given. */
export const defaultOverlap = "P1D";
/** In place of a period: the old secret ends at once. */
export const noOverlap = "none";
const overlapMsMax = 366 * 86_400_000;

/** New settings of a key. Undefined: the setting stays. Null removes it. */
export interface KeyChange {
  name?: string | null | undefined;
  models?: readonly string[] | undefined;
  expiresMs?: EpochMs | null | undefined;
  requestsPerMinute?: number | null | undefined;
  tokensPerMinute?: number | null | undefined;
  concurrent?: number | null | undefined;
  portal?: PortalRights | undefined;
  /** An absent part stays. */
  budget?: { credits?: Credits | undefined; every?: string | undefined } | null | undefined;
}

/** A key, and its secret unless it was shown before. */
interface ShownKey {
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
}

export class KeyActions {
  readonly #deps: KeyActionDependencies;

  constructor(dependencies: KeyActionDependencies) {
    this.#deps = dependencies;
  }

  /** Issues a key. Every call issues another key. */
  async issue(
    account: string,
    options: KeyOptions,
    nowMs = this.#deps.store.nowMs(),
    conditions?: AddKeyConditions,
  ): Promise<IssuedKey> {
    requireUsableKey(options, this.#deps.modelIds(), nowMs);
    if (options.budget !== undefined) requireRefillPeriod(options.budget.every);
    const issued = await issueKey(this.#deps.store, account, options, nowMs, conditions);
    if (issued !== null) return issued;
    const keys = await this.list(account);
    if (conditions !== undefined && keys.length >= conditions.keysMax) throw tooManyKeys(conditions.keysMax);
    throw keyChanged();
  }

  /**
   * Issues one key for each operation id. A repetition returns the key's row without the secret.
   */
  async issueOnce(
    account: string,
    operation: string,
    options: KeyOptions,
    conditions?: AddKeyConditions,
  ): Promise<ShownKey> {
    const id = keyIdOf(account, operation);
    let known = await this.#deps.store.keyById(id);
    if (known === null) {
      try {
        return await this.issue(account, { ...options, id }, undefined, conditions);
      } catch (error) {
        // The key may exist all the same: issued by a request at the same time, or just before the
        // store failed.
        known = await this.#deps.store.keyById(id);
        if (known === null) throw error;
      }
    }
    if (isDeepStrictEqual(propertiesOf(known), keyProperties(account, options))) {
      return { key: null, row: this.#present(known) };
    }
    throw new OperatorRefusal(
      "operation_differs",
      `Operation "${operation}" issued the key ${id} of ${known.account} before, and the properties of that key are different now. ${newIdNeeded}`,
      "operation_id",
    );
  }

  async find(id: string): Promise<KeyRow> {
    const row = await this.#deps.store.keyById(id);
    if (row === null) throw keyNotFound(id);
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
    if (found === null || which === null) throw secretNotFound();
    const row = this.#present(found.key);
    const nowMs = this.#deps.store.nowMs();
    const hasEnded = row.revokedMs !== null || (row.expiresMs !== null && row.expiresMs <= nowMs);
    const isCurrent = which === "present" || (row.oldUntilMs !== null && row.oldUntilMs > nowMs);
    const isUsable = !hasEnded && isCurrent;
    return { row, secret: which, isUsable };
  }

  /** Returns the keys of one account, or of all accounts, in the order of their creation. */
  async list(account?: string): Promise<KeyRow[]> {
    const { store } = this.#deps;
    if (account !== undefined && (await store.accountSnapshot(account)) === null)
      throw accountNotFound(account);
    return (await store.keys(account)).map((row) => this.#present(row));
  }

  /**
   * Changes settings of a key, from its next request on. `seen`: nothing changes unless the key
   * has this authority.
   */
  async change(id: string, operation: string, change: KeyChange, seen?: KeyAuthority): Promise<KeyRow> {
    const { budget, ...others } = change;
    const settings: KeySettings = defined({
      ...others,
      budget: budget && defined({ micro: microOrUndefined(budget.credits), every: budget.every }),
    });
    const isEmpty = Object.keys(settings).length === 0;
    if (isEmpty || (settings.budget && Object.keys(settings.budget).length === 0)) throw nothingToChange();
    requireUsableKey(change, this.#deps.modelIds(), this.#deps.store.nowMs());
    if (budget?.every !== undefined) requireRefillPeriod(budget.every);
    return await this.#apply(id, operation, settings, seen);
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
    if (overlap !== noOverlap) requireOverlap(overlap, this.#deps.store.nowMs());
    const key = mintKey();
    const rotation = {
      hash: hashKey(key),
      lastFour: key.slice(-4),
      overlap: overlap === noOverlap ? null : overlap,
    };
    const row = await this.#apply(id, operation, { rotation }, seen);
    // A repetition inside of the ledger, after a lost reply of the store, has stored this secret.
    const isStored = row.hash === rotation.hash || row.oldHash === rotation.hash;
    return { key: isStored ? key : null, row };
  }

  /** Revokes a key for good. */
  async revoke(id: string): Promise<{ row: KeyRow; revokedBefore: boolean }> {
    const atMs = this.#deps.store.nowMs();
    const row = await this.#deps.store.revokeKey(id, atMs);
    if (row === null) throw keyNotFound(id);
    return { row: this.#present(row), revokedBefore: row.revokedMs !== null && row.revokedMs < atMs };
  }

  async #apply(id: string, operation: string, set: KeySettings, seen?: KeyAuthority): Promise<KeyRow> {
    const { account } = await this.find(id);
    const change: KeyOperation = {
      ...{ kind: "key", account, key: id, op: operation, set },
      ...(seen === undefined ? {} : { seen }),
    };
    const outcome = await this.#deps.ledger.apply(change);
    switch (outcome.kind) {
      case "changed":
        return this.#present(outcome.key);
      case "conflict":
        throw new OperatorRefusal(
          "operation_differs",
          `Operation "${operation}" made another change before: ${outcome.note}. ${newIdNeeded}`,
          "operation_id",
        );
      case "no_budget":
        throw invalidValue(
          "budget",
          `Key ${id} has no budget, so a new budget needs both: credits, and the period in which they refresh.`,
        );
      case "key_expired":
        throw keyExpired(id, outcome.expiresMs);
      case "key_revoked":
        throw keyRevoked(id);
      case "key_changed":
        throw keyChanged();
      case "key_unknown":
        throw keyNotFound(id);
      default:
        throw accountRefusal(account, outcome);
    }
  }

  #present(row: KeyRow): KeyRow {
    return keyAt(row, this.#deps.store.nowMs());
  }
}

function microOrUndefined(credits: Credits | undefined) {
  return credits === undefined ? undefined : microOf(credits);
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

function requireRefillPeriod(every: string): void {
  if (isRefillPeriod(every)) return;
  throw invalidValue("budget.every", `budget.every must be ${refillPeriodRule}.`);
}

function requireOverlap(overlap: string, nowMs: EpochMs): void {
  let endsMs: EpochMs;
  try {
    endsMs = windowAt(nowMs, overlap, nowMs).endsMs;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw invalidValue("overlap", `overlap is invalid: ${error.message}.`);
  }
  if (endsMs - nowMs <= overlapMsMax) return;
  throw invalidValue("overlap", `overlap must be at most a year, not "${overlap}".`);
}

/** Derives the key's id from the operation, so that a repetition finds the key. */
function keyIdOf(account: string, operation: string): string {
  return `key_${hash("sha256", `${account}\n${operation}`, "hex").slice(0, 16)}`;
}
