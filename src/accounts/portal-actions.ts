/**
 * Everything that the holder of a key sees and does in the portal: receipts, sums, models, keys.
 *
 * Guarantees that the account is that of the session's key, and never a parameter. A key with the
 * right `own` sees only itself. A key that the session may not see is refused as one that does not
 * exist. The actions are those of operators, after the rules of portal-rights.ts.
 */

import { type Actor, keyHolder } from "../actors.ts";
import { Refusal } from "../errors.ts";
import type { KeyRow } from "../ledger/rows.ts";
import { limits } from "../limits/limits.ts";
import { Slots } from "../limits/slots.ts";
import { TokenBucket } from "../limits/token-bucket.ts";
import { unknownName } from "../spelling.ts";
import type { FoundKey, Receipt, Store, UsageQuery } from "../store/store.ts";
import type { Hour, UsageHour } from "../store/usage-hours.ts";
import type { UsageSumsQuery } from "../store/usage-sums.ts";
import type { KeyActions } from "./key-actions.ts";
import type { KeyOptions } from "./keys.ts";
import type { OperatorActions } from "./operator-actions.ts";
import {
  inherited,
  type OwnKeyChange,
  requireChanges,
  requireCreates,
  requireRevokes,
  requireRotates,
  requireWithin,
} from "./portal-rights.ts";
import { invalidValue, keyNotFound, newIdNeeded, OperatorRefusal, requireId } from "./refusals.ts";
import type { UsageReport } from "./usage-sums.ts";
import { accountKeysMax } from "./value-rules.ts";

/** The key of a session, with its account and plan, as they were when the request arrived. */
export type Viewer = FoundKey;

/** A key, and its secret unless it was shown before. */
interface ShownKey {
  key: string | null;
  row: KeyRow;
}

type NewKeyOptions = Omit<KeyOptions, "id" | "portal">;

interface PortalActionDependencies {
  store: Pick<Store, "keyById" | "times">;
  /** Returns the ids of the models that a key may use. */
  usableModels(viewer: Viewer): readonly string[];
  operator: Pick<OperatorActions, "usage" | "usageReport" | "usageHours"> & {
    keys: Pick<KeyActions, "find" | "list">;
    /** Returns the actions of the holder of a key. */
    as(actor: Actor): { keys: Pick<KeyActions, "issueOnce" | "change" | "rotate" | "revoke"> };
  };
}

export class PortalActions {
  readonly #deps: PortalActionDependencies;
  /** Each change is a commit, and journal entries and keys are never deleted. */
  readonly #changes = new TokenBucket(limits.changes);
  /** Reads of receipts. A page has three or four at a time. */
  readonly #reads = new Slots(limits.usageReads, limits.usageReads.most, limits.waitingUsageReads);

  constructor(dependencies: PortalActionDependencies) {
    this.#deps = dependencies;
  }

  /** Lists receipts, newest first. `afterSeq`: the journal number of the last receipt before. */
  async receipts(
    viewer: Viewer,
    {
      afterSeq,
      ...query
    }: Pick<UsageQuery, "model" | "key" | "fromMs" | "toMs" | "limit"> & {
      afterSeq?: number | undefined;
    },
  ): Promise<Receipt[]> {
    const scope = await this.#scope(viewer, query.key);
    const after = afterSeq === undefined ? undefined : { account: scope.account, seq: afterSeq };
    const wanted = { ...query, ...scope, after, newestFirst: true };
    return await this.#inTurn(scope.account, () => this.#deps.operator.usage(wanted));
  }

  async usageReport(viewer: Viewer, query: Omit<UsageSumsQuery, "account">): Promise<UsageReport> {
    const scope = await this.#scope(viewer, query.key);
    return await this.#inTurn(scope.account, () => this.#deps.operator.usageReport({ ...query, ...scope }));
  }

  async usageHours(
    viewer: Viewer,
    query: { model?: string | undefined; key?: string | undefined; byModel: boolean },
    hours: number,
  ): Promise<{ from: Hour; to: Hour; rows: UsageHour[] }> {
    const scope = await this.#scope(viewer, query.key);
    return await this.#inTurn(scope.account, () =>
      this.#deps.operator.usageHours({ ...query, ...scope }, hours),
    );
  }

  /** Lists the keys that the session may see, in the order of their creation. */
  async keys({ key }: Viewer): Promise<KeyRow[]> {
    const { keys } = this.#deps.operator;
    return key.portal === "own" ? [await keys.find(key.id)] : await keys.list(key.account);
  }

  /**
   * Creates a key of the account, which manages only itself. Settings that are not given are those
   * of the session's key.
   */
  async createKey(viewer: Viewer, operation: string, options: NewKeyOptions): Promise<ShownKey> {
    const own = viewer.key;
    requireCreates(own, viewer.account.state);
    requireWithin(own, options);
    const settings = { ...options, ...inherited(own, options), portal: "own" as const };
    // The models of the key itself may be gone.
    this.#requireModels(viewer, settings.models);
    this.#countChange(own.account);
    const conditions = { creator: own, keysMax: accountKeysMax };
    const created = await onceFor(own, operation, (id) =>
      this.#keysOf(own).issueOnce(own.account, id, settings, conditions),
    );
    if (created.key !== null && (await this.#now(own)) === null) {
      await this.#keysOf(own).revoke(created.row.id);
      throw sessionEnded();
    }
    return created;
  }

  /** Changes settings of the key itself, or of another key of the account. */
  async changeKey(viewer: Viewer, id: string, operation: string, change: OwnKeyChange): Promise<KeyRow> {
    const own = viewer.key;
    const target = await this.#find(viewer, id);
    requireChanges(own, viewer.account.state, target, change);
    this.#requireModels(viewer, change.models);
    this.#countChange(own.account);
    return await onceFor(own, operation, (op) =>
      this.#keysOf(own).change(target.id, op, ofHolder(target, change), target),
    );
  }

  /** Gives the key itself, or another key of the account, a new secret. */
  async rotateKey(viewer: Viewer, id: string, operation: string, overlap?: string): Promise<ShownKey> {
    const { key: own, account } = viewer;
    const target = await this.#find(viewer, id);
    requireRotates(own, account.state, target);
    // Keys that manage only themselves do not use up the changes of those that manage others.
    this.#countChange(own.portal === "own" ? `own keys of ${own.account}` : own.account);
    const rotated = await onceFor(own, operation, (op) =>
      this.#keysOf(own).rotate(target.id, op, overlap, target),
    );
    if (target.id !== own.id) {
      // A session that has ended meanwhile, or lost its right, does not get the secret.
      const now = await this.#now(own);
      if (now === null) throw sessionEnded();
      requireRotates(now, account.state, target);
    }
    return rotated;
  }

  /** Revokes a key of the account, at once and for good. */
  async revokeKey(viewer: Viewer, id: string): Promise<KeyRow> {
    const target = await this.#find(viewer, id);
    requireRevokes(viewer.key);
    // Nobody else can keep a key from revoking others.
    this.#countChange(`revocations by ${viewer.key.id}`);
    return (await this.#keysOf(viewer.key).revoke(target.id)).row;
  }

  /** The changes of keys, made by the holder of this one. */
  #keysOf({ id }: KeyRow): Pick<KeyActions, "issueOnce" | "change" | "rotate" | "revoke"> {
    return this.#deps.operator.as(keyHolder(id)).keys;
  }

  /** Finds a key that the session may see. Its own key is as the session has seen it. */
  async #find({ key: own }: Viewer, id: string): Promise<KeyRow> {
    if (id === own.id) return own;
    if (own.portal === "own") throw keyNotFound(id);
    const row = await this.#deps.store.keyById(id);
    if (row === null || row.account !== own.account) throw keyNotFound(id);
    return row;
  }

  /** Returns what the session may see of what it asked for. */
  async #scope(
    viewer: Viewer,
    key: string | undefined,
  ): Promise<{ account: string; key: string | undefined }> {
    const { key: own } = viewer;
    if (key !== undefined) await this.#find(viewer, key);
    return { account: own.account, key: own.portal === "own" ? own.id : key };
  }

  /** Refuses models that the session may not use, naming no others. */
  #requireModels(viewer: Viewer, models: readonly string[] = []): void {
    const usable = this.#deps.usableModels(viewer);
    for (const [index, model] of models.entries()) {
      if (model !== "*" && !usable.includes(model))
        throw invalidValue(`models[${index}]`, unknownName("model", model, usable));
    }
  }

  /** Returns the key of a session as it is now, or null if the session has ended with it. */
  async #now({ id, hash }: KeyRow): Promise<KeyRow | null> {
    const now = await this.#deps.store.keyById(id);
    if (now === null || now.hash !== hash || now.revokedMs !== null) return null;
    return now.expiresMs !== null && now.expiresMs <= this.#deps.store.times().latestMs ? null : now;
  }

  /** `scope`: an account, or what else has changes of its own. */
  #countChange(scope: string): void {
    const seconds = Math.ceil(this.#changes.take(scope) / 1000);
    if (seconds === 0) return;
    throw new OperatorRefusal(
      "too_many_changes",
      `${limits.changes.most} changes were made within a minute. Try again in ${seconds} s. Nothing has changed.`,
      null,
      seconds,
    );
  }

  /**
   * Reads receipts for one request of an account at a time: a read can take seconds, and on SQLite
   * other reads of receipts wait for it. Requests whose client has left wait too.
   */
  async #inTurn<T>(account: string, read: () => Promise<T>): Promise<T> {
    const turn = this.#reads.wait(account);
    if (turn === null) throw tooManyReads();
    await turn;
    try {
      return await read();
    } finally {
      this.#reads.release(account);
    }
  }
}

/** A budget that a holder sets is the holder's, unless the operator has set it before. */
function ofHolder({ budgetByOperator }: KeyRow, change: OwnKeyChange): OwnKeyChange {
  const { budget } = change;
  if (!budget) return change;
  return { ...change, budget: { ...budget, byOperator: budgetByOperator ?? false } };
}

/**
 * Runs a change under an operation id that is apart from those of operators and of other keys.
 * Messages have the id of the session's own request, and nothing of earlier changes.
 */
async function onceFor<T>(own: KeyRow, operation: string, run: (id: string) => Promise<T>): Promise<T> {
  requireId("operation_id", operation);
  try {
    return await run(`portal ${own.id} ${operation}`);
  } catch (error) {
    if (!(error instanceof OperatorRefusal) || error.code !== "operation_differs") throw error;
    throw new OperatorRefusal(
      "operation_differs",
      `Operation "${operation}" made another change before. ${newIdNeeded}`,
      "operation_id",
    );
  }
}

function tooManyReads(): Refusal {
  return new Refusal(
    "overloaded",
    `The account has ${limits.waitingUsageReads.most} lists and sums of usage waiting. Try again in a moment.`,
    { retryAfterSeconds: 5 },
  );
}

function sessionEnded(): OperatorRefusal {
  return new OperatorRefusal("invalid_session", "The session has ended. Sign in again.");
}
