/**
 * Accounts that are committed on their own, because the store put them off: another session of the database holds a
 * row of the account, or the account has more overdue holds than one commit ends.
 *
 * Guarantees that the operations of an account keep their order, that no account waits for a pause of another one, and
 * that an operation is rejected if its account stays locked for longer than `giveUpMs`. An account leaves this place
 * with the first commit that answers all it was sent.
 */
import { pause } from "../retry.ts";
import type { Operation, Outcome } from "./operations.ts";
import { StoreUnavailableError } from "./retry.ts";

/** An operation and its caller. */
export interface Entry {
  readonly operation: Operation;
  /** When its account was first found locked, by the clock of `performance.now()`. */
  stuckSinceMs?: number;
  /** True once an attempt failed after which the operation may have been done. */
  mayBeDone?: boolean;
  resolve(outcome: Outcome): void;
  reject(error: unknown): void;
}

export interface AccountQueuesOptions {
  /** Most operations in one commit. */
  batchMax: number;
  giveUpMs: number;
  /** Once it is aborted no attempt is repeated. */
  signal: AbortSignal;
  /** Makes one attempt. Answers the entries and returns those that the store put off, in their order. */
  commit(batch: readonly Entry[]): Promise<PutOff>;
  /** Takes the entries of an account that has left, in their order. */
  leave(entries: readonly Entry[]): void;
}

export interface PutOff {
  entries: readonly Entry[];
  /** True if work was done for them all the same. */
  isFurther: boolean;
}

interface Queue {
  entries: Entry[];
  /** Attempts in a row that brought nothing. */
  failures: number;
  dueMs: number;
  batchMax: number;
}

const firstPauseMs = 10;
/** An account that comes free waits for no longer than this, plus what the attempts for all stuck accounts cost. */
const pauseMsMax = 250;
/** Thousands of stuck accounts must not keep the database busy with attempts: an attempt takes about 2 ms. */
const pauseMsPerQueue = 4;

export class AccountQueues {
  readonly #options: AccountQueuesOptions;
  readonly #queues = new Map<string, Queue>();
  #pump: Promise<void> | null = null;

  constructor(options: AccountQueuesOptions) {
    this.#options = options;
  }

  /** Resolves when no account is here. */
  get pump(): Promise<void> | null {
    return this.#pump;
  }

  has(account: string): boolean {
    return this.#queues.has(account);
  }

  add(entry: Entry): void {
    const { account } = entry.operation;
    const known = this.#queues.get(account);
    if (known !== undefined) {
      known.entries.push(entry);
      return;
    }
    const { batchMax } = this.#options;
    this.#queues.set(account, { entries: [entry], failures: 0, dueMs: performance.now(), batchMax });
    this.#pump ??= this.#run();
  }

  async #run(): Promise<void> {
    while (this.#queues.size > 0) {
      // Operations that are added in this turn of the event loop are sent together.
      await pause(this.#untilDueMs(), this.#options.signal);
      for (const [account, queue] of [...this.#queues]) {
        if (queue.entries.length > 0) {
          if (queue.dueMs > performance.now() && !this.#options.signal.aborted) continue;
          const isAnswered = await this.#attempt(queue);
          if (!isAnswered && queue.entries.length > 0) continue;
        }
        this.#queues.delete(account);
        this.#leave(queue.entries);
      }
    }
    this.#pump = null;
  }

  /** Short, so that an account that is added meanwhile does not wait for the pauses of those that are stuck. */
  #untilDueMs(): number {
    const dueMs = Math.min(...[...this.#queues.values()].map((queue) => queue.dueMs));
    return Math.max(0, Math.min(firstPauseMs, dueMs - performance.now()));
  }

  /** True if all entries of the attempt were answered. */
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
        // To learn the same for each account would take as many times as long, and their callers wait.
        for (const each of this.#queues.values()) this.#wait(each, () => error);
      }
      // One operation that cannot be decided must not take the others of its account down with it.
      else if (batch.length > 1) queue.batchMax = 1;
      else queue.entries.shift()?.reject(error);
    }
    return false;
  }

  #leave(entries: readonly Entry[]): void {
    if (entries.length === 0) return;
    for (const entry of entries) delete entry.stuckSinceMs;
    this.#options.leave(entries);
  }

  #proceed(queue: Queue): void {
    // The first operation needs further commits, and those behind it would be sent in vain.
    queue.batchMax = 1;
    for (const entry of queue.entries) delete entry.stuckSinceMs;
    queue.failures = 0;
    queue.dueMs = performance.now();
  }

  /** Those behind the ones that were tried wait for the same row, and no longer than these. */
  #wait(queue: Queue, reasonOf: (entry: Entry) => Error): void {
    const nowMs = performance.now();
    const { giveUpMs, signal } = this.#options;
    queue.entries = queue.entries.filter((entry) => {
      entry.stuckSinceMs ??= nowMs;
      if (nowMs - entry.stuckSinceMs < giveUpMs && !signal.aborted) return true;
      entry.reject(reasonOf(entry));
      return false;
    });
    const longestMs = pauseMsMax + pauseMsPerQueue * this.#queues.size;
    queue.dueMs = nowMs + Math.min(longestMs, firstPauseMs * 2 ** queue.failures);
    queue.failures += 1;
  }
}

function lockedAccount({ operation: { account } }: Entry): StoreUnavailableError {
  return new StoreUnavailableError(
    `another session of the database has locked a row of account ${account} (pg_locks and pg_stat_activity show which session)`,
    { mayBeDone: false },
  );
}
