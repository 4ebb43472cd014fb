/**
 * Commits each account that the store has deferred in a queue of its own. Either another session
 * of the database has locked a row of the account, or the account has more overdue holds than a
 * commit ends.
 *
 * Guarantees that the operations of an account keep their order, and that no account waits for the
 * pause of another. An operation is rejected if its account is still locked after `giveUpMs`, in
 * which its wait for the store counts. The first commit that answers all operations of an account
 * ends its queue. Operations that arrived meanwhile return to the commit queue.
 */

import { StoreUnavailableError } from "../errors.ts";
import { pause } from "../retry.ts";
import type { Operation } from "./operations.ts";
import type { Outcome } from "./outcomes.ts";

/** An operation and its caller. */
export interface QueuedOperation {
  readonly operation: Operation;
  /** Time of `performance.now()` at which it came into a queue, or made progress. */
  waitingSinceMs?: number;
  /** True if an attempt has failed, but may have been executed. */
  mayBeDone?: boolean;
  resolve(outcome: Outcome): void;
  reject(error: unknown): void;
}

interface AccountQueuesOptions {
  /** Maximum number of operations in a commit. */
  batchMax: number;
  giveUpMs: number;
  /** Ends all repetitions when it aborts. */
  signal: AbortSignal;
  /**
   * Makes one attempt. Answers the entries and returns the entries that the store deferred, in
   * order.
   */
  commit(batch: readonly QueuedOperation[]): Promise<Deferred>;
  /** Receives the remaining entries of an ended account queue, in order. */
  returnToCommitQueue(entries: readonly QueuedOperation[]): void;
}

export interface Deferred {
  entries: readonly QueuedOperation[];
  /** True if the commit made progress for these entries. */
  isFurther: boolean;
}

interface Queue {
  entries: QueuedOperation[];
  /** Consecutive attempts without progress. */
  failures: number;
  dueMs: number;
  batchMax: number;
}

const firstPauseMs = 10;
/**
 * Maximum wait of an account after its lock is released, in addition to the attempts for all
 * account queues.
 */
const pauseMsMax = 250;
/** Limits the load of thousands of account queues on the database. An attempt takes about 2 ms. */
const pauseMsPerQueue = 4;

export class AccountQueues {
  readonly #options: AccountQueuesOptions;
  readonly #queues = new Map<string, Queue>();
  #underWay: Promise<void> | null = null;

  constructor(options: AccountQueuesOptions) {
    this.#options = options;
  }

  /** Resolves when all account queues have ended. Null if there are none. */
  get underWay(): Promise<void> | null {
    return this.#underWay;
  }

  has(account: string): boolean {
    return this.#queues.has(account);
  }

  add(entry: QueuedOperation): void {
    const { account } = entry.operation;
    const known = this.#queues.get(account);
    if (known !== undefined) {
      known.entries.push(entry);
      return;
    }
    const { batchMax } = this.#options;
    this.#queues.set(account, { entries: [entry], failures: 0, dueMs: performance.now(), batchMax });
    this.#underWay ??= this.#run();
  }

  async #run(): Promise<void> {
    while (this.#queues.size > 0) {
      // Operations of the same turn of the event loop are sent together.
      await pause(this.#untilDueMs(), this.#options.signal);
      for (const [account, queue] of [...this.#queues]) {
        if (queue.entries.length > 0) {
          if (queue.dueMs > performance.now() && !this.#options.signal.aborted) continue;
          const isAnswered = await this.#attempt(queue);
          if (!isAnswered && queue.entries.length > 0) continue;
        }
        this.#queues.delete(account);
        this.#options.returnToCommitQueue(queue.entries);
      }
    }
    this.#underWay = null;
  }

  /**
   * At most `firstPauseMs`, so that a new account queue does not wait for the pauses of others.
   */
  #untilDueMs(): number {
    const dueMs = Math.min(...[...this.#queues.values()].map((queue) => queue.dueMs));
    return Math.max(0, Math.min(firstPauseMs, dueMs - performance.now()));
  }

  /** Returns true if all entries of the attempt were answered. */
  async #attempt(queue: Queue): Promise<boolean> {
    const batch = queue.entries.slice(0, queue.batchMax);
    try {
      const { entries, isFurther } = await this.#options.commit(batch);
      queue.entries.splice(0, batch.length, ...entries);
      if (entries.length === 0) return true;
      if (isFurther) this.#proceed(queue);
      else this.#wait(queue, lockedAccount);
    } catch (error) {
      if (error instanceof StoreUnavailableError) {
        // The store is unavailable for every account. Separate attempts would multiply the wait of
        // the callers.
        for (const each of this.#queues.values()) this.#wait(each, () => error);
      }
      // The defect may belong to a single operation.
      else if (batch.length > 1) queue.batchMax = 1;
      else queue.entries.shift()?.reject(error);
    }
    return false;
  }

  #proceed(queue: Queue): void {
    // The first operation needs further commits, and the store would defer all later operations
    // too.
    queue.batchMax = 1;
    for (const entry of queue.entries) delete entry.waitingSinceMs;
    queue.failures = 0;
    queue.dueMs = performance.now();
  }

  /** All entries of the account wait for the same row, so their time runs together. */
  #wait(queue: Queue, reasonOf: (entry: QueuedOperation) => Error): void {
    const nowMs = performance.now();
    const { giveUpMs, signal } = this.#options;
    queue.entries = queue.entries.filter((entry) => {
      entry.waitingSinceMs ??= nowMs;
      if (nowMs - entry.waitingSinceMs < giveUpMs && !signal.aborted) return true;
      entry.reject(reasonOf(entry));
      return false;
    });
    const longestMs = pauseMsMax + pauseMsPerQueue * this.#queues.size;
    queue.dueMs = nowMs + Math.min(longestMs, firstPauseMs * 2 ** queue.failures);
    queue.failures += 1;
  }
}

function lockedAccount({ operation: { account } }: QueuedOperation): StoreUnavailableError {
  return new StoreUnavailableError(
    `another session of the database has locked a row of account ${account} (pg_locks and pg_stat_activity show which session)`,
    { mayBeDone: false },
  );
}
