/**
 * Batches operations into commits of the store. It decides nothing itself.
 *
 * Guarantees that every operation is answered, and that the operations of an account are decided
 * in order. An operation whose commit failed or timed out is sent again, and the kernel finds the
 * changes that were already made. If the store defers an account, its operations move to an
 * account queue (account-queues.ts), and the other accounts do not wait.
 */
import timers from "node:timers/promises";
import { invariant, StoreUnavailableError } from "../errors.ts";
import { retry } from "../retry.ts";
import { AccountQueues, type Deferred, type QueuedOperation } from "./account-queues.ts";
import type { HoldOperation, Operation } from "./operations.ts";
import type { Decision, DeferredOutcome, Outcome, OutcomeOf } from "./outcomes.ts";
import { type ChargeRow, noTokens } from "./rows.ts";

export interface LedgerStore {
  /**
   * Decides and writes a batch in one transaction, all or nothing. Returns a decision for each
   * operation, in order. The store may defer accounts. Rejects with a `StoreUnavailableError` if
   * a further attempt may succeed. Any other rejection is a defect. The same operations can safely
   * be sent again after any rejection.
   */
  commit(operations: readonly Operation[]): Promise<Decision[]>;
  /** Number of commits at the same time, on different accounts, for the store. Default: 1. */
  readonly commitQueues?: number;
}

export interface LedgerOptions {
  /** For tests and benches: replaces the number of the store. */
  commitQueues?: number;
  /** For tests: maximum number of operations in a commit. */
  batchMax?: number;
  /** Pauses before each further attempt at an operation. It is rejected after the last attempt. */
  retriesMs?: readonly number[];
  /**
   * No further attempt is made after this time, which includes that behind earlier commits. An
   * attempt alone may take long, because of a lock or the network.
   */
  giveUpMs?: number;
  /** For tests: longest time in which operations are collected for a commit. 0: no delay. */
  batchDelayMs?: number;
  /** For tests: additional pause before each further attempt of `applyLate`. */
  latePauseMs?: number;
  /**
   * Called if a hold with an unknown outcome cannot be voided, so it stays until it expires. Must
   * not throw.
   */
  onHoldLeft?(hold: string, reason: unknown): void;
  /** Called after each successful commit. Must not throw. */
  onCommit?(commit: Committed): void;
}

export interface Committed {
  operations: number;
  /** Receipts of the overdue holds that this commit ended. */
  expired: readonly ChargeRow[];
  /**
   * Time from the first attempt until the batch was on disk, including pauses between attempts.
   */
  durationMs: number;
}

/** The operations of some of the accounts. They are committed one batch after another. */
interface CommitQueue {
  waiting: QueuedOperation[];
  underWay: Promise<void> | null;
}

/** With larger batches, the store and the callers would wait for each other in turns. */
const defaultBatchMax = 256;
/** A batch of this size is not delayed. */
const delayedBelow = 64;
/**
 * Shared by about 20 operations at 32 clients on one core, in place of 4 (docs/decisions/0036).
 */
const defaultBatchDelayMs = 4;
/** A turn of the event loop takes some microseconds if it runs no callback. */
const idleTurnMs = 0.03;
const defaultRetriesMs = [10, 50, 250, 1000, 2000];
/**
 * Longer than all pauses together. Shorter than the 5 s that an attempt waits for a locked SQLite
 * file.
 */
const defaultGiveUpMs = 4000;
const defaultLatePauseMs = 1000;

/**
 * Collects operations for a commit while the event loop has other work. An idle turn of the loop
 * ends the delay, so an operation that is alone is committed at once.
 */
async function delayBatch({ waiting }: CommitQueue, msMax: number): Promise<void> {
  const beganMs = performance.now();
  for (let turnMs = beganMs; waiting.length < delayedBelow; ) {
    await timers.setImmediate();
    const nowMs = performance.now();
    if (nowMs - turnMs < idleTurnMs || nowMs - beganMs >= msMax) return;
    turnMs = nowMs;
  }
}

export class Ledger {
  readonly #store: LedgerStore;
  readonly #batchMax: number;
  readonly #retriesMs: readonly number[];
  readonly #giveUpMs: number;
  readonly #latePauseMs: number;
  readonly #batchDelayMs: number;
  readonly #onCommit: LedgerOptions["onCommit"];
  readonly #queues: readonly CommitQueue[];
  readonly #accountQueues: AccountQueues;
  readonly #onHoldLeft: LedgerOptions["onHoldLeft"];
  readonly #late = new Set<Promise<unknown>>();
  /** Voids of holds of which nobody knows whether they were taken. */
  readonly #voids = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(store: LedgerStore, options: LedgerOptions = {}) {
    this.#store = store;
    this.#batchMax = options.batchMax ?? defaultBatchMax;
    this.#retriesMs = options.retriesMs ?? defaultRetriesMs;
    this.#giveUpMs = options.giveUpMs ?? defaultGiveUpMs;
    this.#latePauseMs = options.latePauseMs ?? defaultLatePauseMs;
    this.#batchDelayMs = options.batchDelayMs ?? defaultBatchDelayMs;
    this.#onCommit = options.onCommit;
    this.#onHoldLeft = options.onHoldLeft;
    this.#queues = Array.from({ length: options.commitQueues ?? store.commitQueues ?? 1 }, () => ({
      waiting: [],
      underWay: null,
    }));
    this.#accountQueues = new AccountQueues({
      batchMax: this.#batchMax,
      giveUpMs: this.#giveUpMs,
      signal: this.#closing.signal,
      commit: (batch) => this.#commit(batch, []),
      returnToCommitQueue: (entries) => {
        for (const entry of entries) this.#add(entry);
      },
    });
  }

  /**
   * Resolves with the outcome when it is on disk. Rejects if the store stays unavailable, or
   * because of a defect. A rejected hold is void: if the store did take it, the ledger voids it as
   * soon as the store is available.
   */
  apply<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    const entry: QueuedOperation = { operation, resolve, reject };
    this.#add(entry);
    if (operation.kind === "hold") {
      promise.catch(() => {
        if (entry.mayBeDone) this.#voidLate(operation);
      });
    }
    // The store returns the outcome that belongs to the kind of the operation.
    return promise as Promise<OutcomeOf<O>>;
  }

  /**
   * Repeats an operation that must not be lost until the store takes it. For use after `apply` was
   * rejected with a `StoreUnavailableError`. Rejects because of a defect, or if the ledger is
   * closed first.
   */
  applyLate<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    const outcome = this.#applyUntilTaken(operation).finally(() => this.#late.delete(outcome));
    this.#late.add(outcome);
    return outcome;
  }

  /**
   * Voids a rejected hold: its request has ended, and the hold is not sent again. If the commit of
   * the hold is still running in the database, it has locked the account and is decided before the
   * void.
   */
  #voidLate({ account, requestId }: HoldOperation): void {
    const operation = {
      kind: "settle",
      account,
      requestId,
      usage: noTokens,
      ending: "refused",
      by: null,
      estimated: false,
    } as const;
    const voided = this.#applyUntilTaken(operation)
      .catch((reason: unknown) => this.#onHoldLeft?.(requestId, reason))
      .finally(() => this.#voids.delete(voided));
    this.#voids.add(voided);
  }

  async #applyUntilTaken<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    for (;;) {
      await timers.setTimeout(this.#latePauseMs, undefined, { signal: this.#closing.signal });
      try {
        return await this.apply(operation);
      } catch (error) {
        if (!(error instanceof StoreUnavailableError)) throw error;
      }
    }
  }

  /** Number of charges that wait for an unavailable store. */
  get late(): number {
    return this.#late.size;
  }

  /**
   * Gives up waiting operations after the grace period. Resolves when every operation has been
   * answered.
   */
  async close(graceMs: number): Promise<void> {
    if (graceMs <= 0) this.#closing.abort();
    const giveUp = graceMs > 0 ? setTimeout(() => this.#closing.abort(), graceMs) : undefined;
    do {
      await this.idle();
      // Callers pass rejected charges to `applyLate` within this turn.
      await timers.setImmediate();
      await Promise.allSettled([...this.#late, ...this.#voids]);
    } while (this.#late.size + this.#voids.size > 0);
    await this.idle();
    clearTimeout(giveUp);
  }

  /** Resolves when every operation so far has been answered. */
  async idle(): Promise<void> {
    const running = () => [...this.#queues, this.#accountQueues].map(({ underWay }) => underWay);
    while (running().some((run) => run !== null)) await Promise.all(running());
  }

  #add(entry: QueuedOperation): void {
    const { account } = entry.operation;
    if (this.#accountQueues.has(account)) {
      this.#accountQueues.add(entry);
      return;
    }
    const queue = this.#queueOf(account);
    entry.waitingSinceMs = performance.now();
    queue.waiting.push(entry);
    queue.underWay ??= this.#run(queue);
  }

  /**
   * Moves these entries to the account queues, with the waiting operations of the same accounts,
   * in order.
   */
  #moveToAccountQueues(queue: CommitQueue, entries: readonly QueuedOperation[]): void {
    if (entries.length === 0) return;
    for (const entry of entries) this.#accountQueues.add(entry);
    const waiting = queue.waiting.splice(0);
    for (const entry of waiting) {
      if (this.#accountQueues.has(entry.operation.account)) this.#accountQueues.add(entry);
      else queue.waiting.push(entry);
    }
  }

  /** Returns the same queue for every operation of an account, so they keep their order. */
  #queueOf(account: string): CommitQueue {
    let sum = 0;
    for (let n = 0; n < account.length; n += 1) sum = (sum * 31 + account.charCodeAt(n)) >>> 0;
    const queue = this.#queues[sum % this.#queues.length];
    invariant(queue !== undefined, "there is a commit queue");
    return queue;
  }

  async #run(queue: CommitQueue): Promise<void> {
    while (queue.waiting.length > 0) {
      await delayBatch(queue, this.#batchDelayMs);
      const batch = queue.waiting.splice(0, this.#batchMax);
      try {
        this.#moveToAccountQueues(queue, (await this.#commit(batch, this.#retriesMs)).entries);
      } catch (error) {
        // The store is unavailable for each of them. Separate attempts would multiply the wait.
        if (batch.length === 1 || error instanceof StoreUnavailableError) {
          for (const entry of batch) entry.reject(error);
        }
        // The defect may belong to a single operation.
        else this.#moveToAccountQueues(queue, batch);
      }
    }
    queue.underWay = null;
  }

  /** Answers the entries. Returns the entries that the store has deferred, in order. */
  async #commit(batch: readonly QueuedOperation[], retriesMs: readonly number[]): Promise<Deferred> {
    const operations = batch.map((entry) => entry.operation);
    const beganMs = performance.now();
    // The first one has waited longest.
    const waitedMs = beganMs - (batch[0]?.waitingSinceMs ?? beganMs);
    const policy = { retriesMs, giveUpMs: this.#giveUpMs - waitedMs };
    const attempt = async () => {
      try {
        return await this.#store.commit(operations);
      } catch (error) {
        // A defect may come after the write.
        if (!(error instanceof StoreUnavailableError) || error.mayBeDone) {
          for (const entry of batch) entry.mayBeDone = true;
        }
        throw error;
      }
    };
    const decisions = await retry(attempt, policy, this.#closing.signal);
    const deferred = batch.filter((_, index) => isDeferred(decisions[index]));
    const isFurther = decisions.some((decision) => decision.kind !== "locked");
    if (isFurther) {
      this.#onCommit?.({
        operations: batch.length - deferred.length,
        expired: decisions.flatMap(({ expired = [] }) => expired),
        durationMs: performance.now() - beganMs,
      });
    }
    for (const [index, entry] of batch.entries()) {
      const decision = decisions[index];
      if (decision === undefined)
        entry.reject(new Error("the store returned decisions for fewer operations than it was sent"));
      else if (!isDeferred(decision)) entry.resolve(decision);
    }
    return { entries: deferred, isFurther };
  }
}

function isDeferred(decision: Decision | undefined): decision is DeferredOutcome {
  return decision?.kind === "locked" || decision?.kind === "more_overdue";
}
