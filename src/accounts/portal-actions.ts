/**
 * Everything that the holder of a key, or a person, sees and does in the portal: receipts, sums,
 * models, keys, and running requests.
 *
 * Guarantees that the account is that of the session, and never a parameter. A key with the right
 * `own` sees only itself. A key that the session may not see is refused as one that does not
 * exist. The actions are those of operators, after the rules of portal-rights.ts.
 */

import type { Actor } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { newIdNeeded, refusalOf } from "../ledger/refusals.ts";
import { type KeyAuthority, type KeyRow, works } from "../ledger/rows.ts";
import { limits } from "../limits/limits.ts";
import { Slots } from "../limits/slots.ts";
import { TokenBucket } from "../limits/token-bucket.ts";
import { defined } from "../objects.ts";
import { type Contact, type MailChoices, noContact } from "../store/contacts.ts";
import type { FoundHolder } from "../store/people.ts";
import type { Receipt, Store, UsageQuery } from "../store/store.ts";
import type { Hour, UsageHour } from "../store/usage-hours.ts";
import type { UsageSumsQuery } from "../store/usage-sums.ts";
import type { KeyActions, ShownKey } from "./key-actions.ts";
import type { KeyOptions } from "./keys.ts";
import type { OperatorActions } from "./operator-actions.ts";
import {
  inherited,
  type OwnKeyChange,
  ofHolder,
  requireChanges,
  requireCreates,
  requireLife,
  requireRevokes,
  requireRotates,
  requireTighter,
  requireWithin,
} from "./portal-rights.ts";
import { isUsable } from "./portal-sessions.ts";
import { authorityOf, isPerson, type PersonKeys, type Viewer, viewerActorOf } from "./portal-viewer.ts";
import { requireId, requireModels } from "./refusals.ts";
import type { RefusedRequest } from "./refused-requests.ts";
import type { StoppedRequest } from "./request-stops.ts";
import type { SignedInPeople } from "./signed-in-people.ts";
import type { UsageReport } from "./usage-sums.ts";
import { accountKeysMax } from "./value-rules.ts";

type NewKeyOptions = Omit<KeyOptions, "id" | "portal">;

interface PortalActionDependencies {
  store: Pick<Store, "contact" | "findKey" | "keyById" | "keys" | "putAccount" | "times" | "stopRequests">;
  people: Pick<SignedInPeople, "holdersAmong">;
  /** Returns what people with an account on a plan may do with keys. */
  personKeys(plan: string | undefined): PersonKeys;
  /** Returns the ids of the models that a key may use. */
  usableModels(viewer: Viewer): readonly string[];
  /** The last requests of an account that ended with an error, in this service, newest first. */
  refusalsOf(account: string): Promise<readonly RefusedRequest[]>;
  operator: Pick<OperatorActions, "usage" | "usageReport" | "usageHours"> & {
    keys: Pick<KeyActions, "find" | "list">;
    /** Returns the actions of the viewer. */
    as(actor: Actor): {
      keys: Pick<KeyActions, "issueOnce" | "change" | "rotate" | "revoke">;
      stopRequest(requestId: string): Promise<StoppedRequest>;
    };
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

  /** Lists requests that were refused in this service, newest first. */
  async refusals(viewer: Viewer): Promise<RefusedRequest[]> {
    const { account, portal, id } = authorityOf(viewer);
    const all = await this.#deps.refusalsOf(account);
    return all.filter(({ isAccepted, key }) => !isAccepted && (portal !== "own" || key === id));
  }

  /** Lists keys that the session may see, as `KeyActions.list`. */
  async keys(viewer: Viewer, after: string | undefined, most: number): Promise<KeyRow[] | null> {
    const { keys } = this.#deps.operator;
    const { portal, id, account } = authorityOf(viewer);
    if (portal !== "own") return await keys.list(after, most, account);
    if (after === undefined) return [await keys.find(id)];
    return after === id ? [] : null;
  }

  /**
   * Creates a key of the account, which manages only itself. Settings that are not given are those
   * of the session's key.
   */
  async createKey(viewer: Viewer, operation: string, options: NewKeyOptions): Promise<ShownKey> {
    const own = authorityOf(viewer);
    requireCreates(own, viewer.account.state);
    requireWithin(own, options);
    const allowed = this.allowedKeys(viewer);
    if (allowed !== null) requireLife(allowed, options, this.#deps.store.times().atMs);
    const settings = { ...options, ...inherited(own, options), portal: "own" as const };
    this.#countChange(own.account);
    // The models of the key itself may be gone.
    this.#requireModels(viewer, settings.models);
    const creator = isPerson(viewer) ? null : own;
    const conditions = { creator, keysMax: accountKeysMax, workingMax: allowed?.most, isByHolder: true };
    const keys = this.#keysOf(viewer);
    const created = await onceFor(own, operation, (id) =>
      keys.issueOnce(own.account, id, settings, conditions),
    );
    if (created.key === null) return created;
    try {
      const now = await this.#now(viewer);
      requireCreates(authorityOf(now), now.account.state);
      return created;
    } catch (error) {
      await keys.revoke(created.row.id);
      throw error;
    }
  }

  /** Changes settings of the key itself, or of another key of the account. */
  async changeKey(viewer: Viewer, id: string, operation: string, asked: OwnKeyChange): Promise<KeyRow> {
    const own = authorityOf(viewer);
    const target = await this.#find(viewer, id);
    const change = ofHolder(target, asked);
    requireChanges(own, viewer.account.state, target, change);
    const allowed = this.allowedKeys(viewer);
    if (allowed !== null) requireTighter(target, change);
    if (allowed !== null && change.expiresMs !== undefined) {
      requireLife(allowed, change, this.#deps.store.times().atMs);
    }
    this.#countChange(own.account);
    this.#requireModels(viewer, change.models);
    const conditions = { seen: target, workingMax: allowed?.most };
    return await onceFor(own, operation, (op) =>
      this.#keysOf(viewer).change(target.id, op, change, conditions),
    );
  }

  /** Gives the key itself, or another key of the account, a new secret. */
  async rotateKey(viewer: Viewer, id: string, operation: string, overlap?: string): Promise<ShownKey> {
    const own = authorityOf(viewer);
    const target = await this.#find(viewer, id);
    requireRotates(own, viewer.account.state, target);
    // Keys that manage only themselves do not use up the changes of those that manage others.
    this.#countChange(own.portal === "own" ? `own keys of ${own.account}` : own.account);
    const rotated = await onceFor(own, operation, (op) =>
      this.#keysOf(viewer).rotate(target.id, op, overlap, target),
    );
    if (target.id !== own.id) {
      // A session that has ended meanwhile, or lost its right, does not get the secret.
      const now = await this.#now(viewer);
      requireRotates(authorityOf(now), now.account.state, target);
    }
    return rotated;
  }

  /** Revokes a key of the account, at once and for good. */
  async revokeKey(viewer: Viewer, id: string): Promise<KeyRow> {
    const target = await this.#find(viewer, id);
    const own = authorityOf(viewer);
    requireRevokes(own);
    // Nobody else can keep a key from revoking others.
    this.#countChange(`revocations by ${own.id}`);
    return (await this.#keysOf(viewer).revoke(target.id)).row;
  }

  /** Switches kinds of mail about the account on or off. Absent kinds stay. */
  async changeMail(viewer: Viewer, choices: MailChoices): Promise<Contact> {
    const { account, portal } = authorityOf(viewer);
    if (portal !== "account") {
      throw new Refusal("not_permitted", "This key manages only itself, and not the mail.");
    }
    this.#countChange(account);
    const { store } = this.#deps;
    const draft = { id: account, plan: null, contact: defined(choices) };
    await store.putAccount(draft, { by: viewerActorOf(viewer).by, dryRun: false });
    return (await store.contact(account)) ?? noContact;
  }

  /** Stops a running request that the session may see, and waits for its end. */
  async stopRequest(viewer: Viewer, requestId: string): Promise<StoppedRequest> {
    const own = authorityOf(viewer);
    const hold = await this.#deps.store.stopRequests.holdOf(requestId);
    if (hold?.account !== own.account || (own.portal === "own" && hold.key !== own.id)) {
      const whose = own.portal === "own" ? "this key" : "your account";
      throw new Refusal("request_not_found", `No request "${requestId}" of ${whose} is running.`);
    }
    // Keys that manage only themselves do not use up the changes of those that manage others.
    this.#countChange(own.portal === "own" ? `stops by ${own.id}` : own.account);
    return await this.#deps.operator.as(viewerActorOf(viewer)).stopRequest(requestId);
  }

  /** Returns the newest key of a person that works. */
  async keyForChat({ account }: FoundHolder): Promise<KeyRow> {
    const { atMs } = this.#deps.store.times();
    const keys = await this.#deps.store.keys(account.id);
    const key = keys.findLast((each) => each.actsFor === null && works(each, atMs));
    if (key !== undefined) return key;
    throw new Refusal("not_permitted", "A chat needs a key that works. Create one on the page Keys.");
  }

  /** Returns what a person may do with keys. Null: the session is that of a key. */
  allowedKeys(viewer: Viewer): PersonKeys | null {
    return isPerson(viewer) ? this.#deps.personKeys(viewer.plan?.id) : null;
  }

  /** The changes of keys, made by the viewer. */
  #keysOf(viewer: Viewer): Pick<KeyActions, "issueOnce" | "change" | "rotate" | "revoke"> {
    return this.#deps.operator.as(viewerActorOf(viewer)).keys;
  }

  /** Finds a key that the session may see. Its own key is as the session has seen it. */
  async #find(viewer: Viewer, id: string): Promise<KeyRow> {
    if (!isPerson(viewer) && id === viewer.key.id) return viewer.key;
    const own = authorityOf(viewer);
    if (own.portal === "own") throw refusalOf({ kind: "key_not_found", key: id });
    const row = await this.#deps.store.keyById(id);
    if (row === null || row.account !== own.account) throw refusalOf({ kind: "key_not_found", key: id });
    return row;
  }

  /** Returns what the session may see of what it asked for. */
  async #scope(
    viewer: Viewer,
    key: string | undefined,
  ): Promise<{ account: string; key: string | undefined }> {
    const own = authorityOf(viewer);
    if (key !== undefined) await this.#find(viewer, key);
    return { account: own.account, key: own.portal === "own" ? own.id : key };
  }

  /** Refuses models that the session may not use, naming no others. */
  #requireModels(viewer: Viewer, models: readonly string[] = []): void {
    requireModels(models, this.#deps.usableModels(viewer));
  }

  /** Returns the viewer as of now. Throws a refusal if the session has ended meanwhile. */
  async #now(viewer: Viewer): Promise<Viewer> {
    const { people, store } = this.#deps;
    if (isPerson(viewer)) {
      const [holder] = await people.holdersAmong([viewer.person.id]);
      if (holder?.account.id === viewer.account.id) return holder;
    } else {
      const { hash } = viewer.key;
      const found = await store.findKey(hash);
      if (found !== null && isUsable(found, hash, store.times().atMs)) return found;
    }
    throw new Refusal("invalid_session", "The session has ended. Sign in again.");
  }

  /** `scope`: an account, or what else has changes of its own. */
  #countChange(scope: string): void {
    const seconds = Math.ceil(this.#changes.take(scope) / 1000);
    if (seconds === 0) return;
    throw new Refusal(
      "too_many_changes",
      `${limits.changes.most} changes were made within a minute. Try again in ${seconds} s. Nothing has changed.`,
      { retryAfterSeconds: seconds },
    );
  }

  /**
   * Reads receipts for one request of an account at a time: a read can take seconds, and on SQLite
   * other reads of receipts wait for it. Requests whose client has left wait too.
   */
  async #inTurn<T>(account: string, read: () => Promise<T>): Promise<T> {
    const turn = this.#reads.wait(account);
    if (turn === null) {
      throw new Refusal(
        "overloaded",
        `The account has ${limits.waitingUsageReads.most} lists and sums of usage waiting. Try again in a moment.`,
        { retryAfterSeconds: 5 },
      );
    }
    await turn;
    try {
      return await read();
    } finally {
      this.#reads.release(account);
    }
  }
}

/**
 * Runs a change under an operation id that is apart from those of operators and of other keys.
 * Messages have the id of the session's own request, and nothing of earlier changes.
 */
async function onceFor<T>(own: KeyAuthority, operation: string, run: (id: string) => Promise<T>): Promise<T> {
  requireId("operation_id", operation);
  try {
    return await run(`portal ${own.id} ${operation}`);
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "operation_differs") throw error;
    throw new Refusal(
      "operation_differs",
      `Operation "${operation}" made another change before. ${newIdNeeded}`,
      { param: "operation_id" },
    );
  }
}
