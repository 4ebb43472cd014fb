/**
 * The batcher between requests and the store: operations that arrive while a commit is under way share the next.
 *
 * Guarantees that every operation is answered, that operations on one account are decided in the order in which
 * they were asked for, and that an operation whose commit was lost or unknown is sent again (the kernel finds what
 * was already done). An account that the store puts off is committed on its own from then on, so that the others do
 * not wait for it. It decides nothing itself.
 */
import timers from "node:timers/promises";
import { invariant } from "../errors.ts";
import { AccountQueues, type Entry, type PutOff } from "./account-queues.ts";
import type { Decision, HoldOperation, Operation, Outcome, OutcomeOf, PutOffOutcome } from "./operations.ts";
import { retry, StoreUnavailableError } from "./retry.ts";
import type { UsageRow } from "./rows.ts";

export interface LedgerStore {
  /**
   * Decides and writes a batch in one transaction: all of it or nothing, except that it may put off accounts. Answers
   * in the order of the operations.
   * Rejects with a `StoreUnavailableError` where trying again can help; any other rejection is a defect.
   * Whatever it rejects with, sending the same operations again is safe.
   */
  commit(operations: readonly Operation[]): Promise<Decision[]>;
}

export interface LedgerOptions {
  /** Most commits at the same time, each on accounts of its own; for a store that is a network away. Default: 1. */
  commitQueues?: number;
  /** Most operations in one commit. */
  batchMax?: number;
  /** Pauses before an operation is sent again; when they are used up it is rejected. */
  retriesMs?: readonly number[];
  /** After so long it is not sent again either: the attempts themselves may take their time, over a lock or a network. */
  giveUpMs?: number;
  /** Before each further attempt at what is late, on top of the pauses of its own. */
  latePauseMs?: number;
  /** Called if a hold whose commit was lost cannot be voided, so that it stays until it expires; it must not throw. */
  onHoldLeft?(hold: string, reason: unknown): void;
  /** Called after each commit that went through; it must not throw. */
  onCommit?(commit: Committed): void;
}

export interface Committed {
  operations: number;
  /** Receipts of the holds that this commit ended because their time had run out, whatever operation met them. */
  expired: readonly UsageRow[];
  /** From handing the batch to the store until it was on disk, the pauses of further attempts included. */
  durationMs: number;
}

/** Operations on some of the accounts, one commit after another. */
interface CommitQueue {
  waiting: Entry[];
  pump: Promise<void> | null;
}

/** With more, the store would wait for their answers to be worked on, and the callers for the store. */
const defaultBatchMax = 256;
/** So many operations wait for no more. */
const delayedBelow = 64;
const defaultRetriesMs = [10, 50, 250, 1000, 2000];
/** Longer than the pauses, and shorter than the 5 s that an attempt waits for a locked SQLite file: one of those is enough. */
const defaultGiveUpMs = 4000;
const defaultLatePauseMs = 1000;

/**
 * A commit has a cost of its own, so a small one waits for company: for what else arrives in this turn of the event
 * loop, and for what the answers of the last commit lead to in the next one. At 32 callers that makes half as many
 * commits of twice the size. A large one begins at once, while the answers of the last are still worked on.
 */
async function batchDelay({ waiting }: CommitQueue): Promise<void> {
  if (waiting.length >= delayedBelow) return;
  await timers.setImmediate();
  await timers.setImmediate();
}

export class Ledger {
  readonly #store: LedgerStore;
  readonly #batchMax: number;
  readonly #retriesMs: readonly number[];
  readonly #giveUpMs: number;
  readonly #latePauseMs: number;
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
    this.#onCommit = options.onCommit;
    this.#onHoldLeft = options.onHoldLeft;
    this.#queues = Array.from({ length: options.commitQueues ?? 1 }, () => ({ waiting: [], pump: null }));
    this.#accountQueues = new AccountQueues({
      batchMax: this.#batchMax,
      giveUpMs: this.#giveUpMs,
      signal: this.#closing.signal,
      commit: (batch) => this.#commit(batch, []),
      leave: (entries) => {
        for (const entry of entries) this.#add(entry);
      },
    });
  }

  /**
   * The outcome, once it is on disk. Rejects if it could not be decided: a defect, or the store stayed away. A hold that is
   * rejected is void: if it was taken after all, it is given back as soon as the store answers.
   */
  apply<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    const entry: Entry = { operation, resolve, reject };
    this.#add(entry);
    if (operation.kind === "hold") {
      promise.catch(() => {
        if (entry.mayBeDone) this.#voidLate(operation);
      });
    }
    // The store answers each operation with the outcome of its kind; `Outcome` is the union of them all.
    return promise as Promise<OutcomeOf<O>>;
  }

  /**
   * For what must not be lost, after `apply` was rejected because the store stayed away: asks for the same operation
   * until the store takes it. Rejects as `apply` does when that was no use, or when the ledger is closed.
   */
  applyLate<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    const outcome = this.#applyUntilTaken(operation).finally(() => this.#late.delete(outcome));
    this.#late.add(outcome);
    return outcome;
  }

  /**
   * Nobody generates by a hold that was rejected, and nobody sends it again. A commit that the database is still at is
   * decided first, because it has locked the account.
   */
  #voidLate({ account, hold }: HoldOperation): void {
    const used = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
    const operation = { kind: "settle", account, hold, used, ending: "refused", estimated: false } as const;
    const voided = this.#applyUntilTaken(operation)
      .catch((reason: unknown) => this.#onHoldLeft?.(hold, reason))
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

  /** Charges that wait for a store that has stayed away. */
  get late(): number {
    return this.#late.size;
  }

  /** Gives the store so long for what it has not taken yet, then gives that up. Resolves when every operation has been answered. */
  async close(graceMs: number): Promise<void> {
    if (graceMs <= 0) this.#closing.abort();
    const giveUp = graceMs > 0 ? setTimeout(() => this.#closing.abort(), graceMs) : undefined;
    do {
      await this.settled();
      // What was refused just now becomes late in this turn.
      await timers.setImmediate();
      await Promise.allSettled([...this.#late, ...this.#voids]);
    } while (this.#late.size + this.#voids.size > 0);
    await this.settled();
    clearTimeout(giveUp);
  }

  /** Resolves when every operation asked for so far has been answered. */
  async settled(): Promise<void> {
    const pumps = () => [...this.#queues, this.#accountQueues].map(({ pump }) => pump);
    while (pumps().some((pump) => pump !== null)) await Promise.all(pumps());
  }

  #add(entry: Entry): void {
    const { account } = entry.operation;
    if (this.#accountQueues.has(account)) {
      this.#accountQueues.add(entry);
      return;
    }
    const queue = this.#queueOf(account);
    queue.waiting.push(entry);
    queue.pump ??= this.#run(queue);
  }

  /** Those that wait in the queue follow: operations on an account keep their order. */
  #setAside(queue: CommitQueue, entries: readonly Entry[]): void {
    if (entries.length === 0) return;
    for (const entry of entries) this.#accountQueues.add(entry);
    const waiting = queue.waiting.splice(0);
    for (const entry of waiting) {
      if (this.#accountQueues.has(entry.operation.account)) this.#accountQueues.add(entry);
      else queue.waiting.push(entry);
    }
  }

  /** Always the same for one account, so that its operations keep their order. */
  #queueOf(account: string): CommitQueue {
    let sum = 0;
    for (let n = 0; n < account.length; n += 1) sum = (sum * 31 + account.charCodeAt(n)) >>> 0;
    const queue = this.#queues[sum % this.#queues.length];
    invariant(queue !== undefined, "there is a queue");
    return queue;
  }

  async #run(queue: CommitQueue): Promise<void> {
    while (queue.waiting.length > 0) {
      await batchDelay(queue);
      const batch = queue.waiting.splice(0, this.#batchMax);
      try {
        this.#setAside(queue, (await this.#commit(batch, this.#retriesMs)).entries);
      } catch (error) {
        // A store that stays away answers none of them; asking for each anew would take as many times as long.
        if (batch.length === 1 || error instanceof StoreUnavailableError) {
          for (const entry of batch) entry.reject(error);
        }
        // One operation that cannot be decided must not take the others down with it.
        else await this.#commitEach(queue, batch);
      }
    }
    queue.pump = null;
  }

  async #commitEach(queue: CommitQueue, batch: readonly Entry[]): Promise<void> {
    let rest = batch;
    while (true) {
      const [entry, ...others] = rest;
      if (entry === undefined) return;
      rest = others;
      try {
        const { entries } = await this.#commit([entry], this.#retriesMs);
        if (entries.length === 0) continue;
        // They were asked for before those that wait in the queue.
        const isOfAccount = ({ operation }: Entry) => operation.account === entry.operation.account;
        this.#setAside(queue, [...entries, ...rest.filter(isOfAccount)]);
        rest = rest.filter((other) => !isOfAccount(other));
      } catch (error) {
        entry.reject(error);
        if (!(error instanceof StoreUnavailableError)) continue;
        for (const other of rest) other.reject(error);
        return;
      }
    }
  }

  /** Answers the entries, and returns those that the store has put off, in their order. */
  async #commit(batch: readonly Entry[], retriesMs: readonly number[]): Promise<PutOff> {
    const operations = batch.map((entry) => entry.operation);
    const beganMs = performance.now();
    const policy = { retriesMs, giveUpMs: this.#giveUpMs };
    const attempt = async () => {
      try {
        return await this.#store.commit(operations);
      } catch (error) {
        if (error instanceof StoreUnavailableError && error.mayBeDone) {
          for (const entry of batch) entry.mayBeDone = true;
        }
        throw error;
      }
    };
    const decisions = await retry(attempt, policy, this.#closing.signal);
    const putOff = batch.filter((_, index) => isPutOff(decisions[index]));
    const isFurther = decisions.some((decision) => decision.kind !== "locked");
    if (isFurther) {
      this.#onCommit?.({
        operations: batch.length - putOff.length,
        expired: decisions.flatMap(({ expired = [] }) => expired),
        durationMs: performance.now() - beganMs,
      });
    }
    for (const [index, entry] of batch.entries()) {
      const decision = decisions[index];
      if (decision === undefined)
        entry.reject(new Error("the store answered fewer operations than it was sent"));
      else if (!isPutOff(decision)) entry.resolve(decision);
    }
    return { entries: putOff, isFurther };
  }
}

function isPutOff(decision: Decision | undefined): decision is PutOffOutcome {
  return decision?.kind === "locked" || decision?.kind === "unfinished";
}
