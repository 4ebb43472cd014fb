/**
 * The batcher between requests and the store: operations that arrive while a commit is under way share the next.
 *
 * Guarantees that every operation is answered, that operations on one account are decided in the order in which
 * they were asked for, and that an operation whose commit was lost or unknown is sent again (the kernel finds what
 * was already done). It decides nothing itself.
 */
import type { Operation, Outcome, OutcomeOf } from "./operations.ts";

export interface LedgerStore {
  /**
   * Decides and writes a batch in one transaction: all of it or nothing. Outcomes in the order of the operations.
   * Rejects with a `StoreUnavailableError` where trying again can help; any other rejection is a defect.
   * Whatever it rejects with, sending the same operations again is safe.
   */
  commit(operations: readonly Operation[]): Promise<Outcome[]>;
}

/** The database cannot be reached or written just now (locked, disk full, connection lost). */
export class StoreUnavailableError extends Error {
  override readonly name = "StoreUnavailableError";
}

export interface LedgerOptions {
  /** Most operations in one commit. */
  batchMax?: number;
  /** Pauses before an operation is sent again; when they are used up it is rejected. */
  retriesMs?: readonly number[];
  /** Called after each commit that went through; it must not throw. */
  onCommit?(commit: Committed): void;
}

export interface Committed {
  operations: number;
  /** From handing the batch to the store until it was on disk, the pauses of further attempts included. */
  durationMs: number;
}

interface Entry {
  operation: Operation;
  resolve(outcome: Outcome): void;
  reject(error: unknown): void;
}

const defaultBatchMax = 512;
const defaultRetriesMs = [10, 50, 250, 1000, 2000];

export class Ledger {
  readonly #store: LedgerStore;
  readonly #batchMax: number;
  readonly #retriesMs: readonly number[];
  readonly #onCommit: LedgerOptions["onCommit"];
  #waiting: Entry[] = [];
  #pump: Promise<void> | null = null;

  constructor(store: LedgerStore, options: LedgerOptions = {}) {
    this.#store = store;
    this.#batchMax = options.batchMax ?? defaultBatchMax;
    this.#retriesMs = options.retriesMs ?? defaultRetriesMs;
    this.#onCommit = options.onCommit;
  }

  /** The outcome, once it is on disk. Rejects where it could not be decided: a defect, or the store stayed away. */
  apply<O extends Operation>(operation: O): Promise<OutcomeOf<O>> {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    this.#waiting.push({ operation, resolve, reject });
    this.#pump ??= this.#run();
    // The store answers each operation with the outcome of its kind; `Outcome` is the union of them all.
    return promise as Promise<OutcomeOf<O>>;
  }

  /** Resolves when every operation asked for so far has been answered. */
  async settled(): Promise<void> {
    while (this.#pump !== null) await this.#pump;
  }

  async #run(): Promise<void> {
    // What else is asked for in this turn of the event loop shares the first commit.
    await null;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#batchMax);
      try {
        await this.#commit(batch);
      } catch (error) {
        // A store that stays away answers none of them; asking for each anew would take as many times as long.
        if (batch.length === 1 || error instanceof StoreUnavailableError) {
          for (const entry of batch) entry.reject(error);
        }
        // One operation that cannot be decided must not take the others down with it.
        else for (const entry of batch) await this.#commit([entry]).catch(entry.reject);
      }
    }
    this.#pump = null;
  }

  async #commit(batch: readonly Entry[]): Promise<void> {
    const operations = batch.map((entry) => entry.operation);
    const beganMs = performance.now();
    let outcomes: Outcome[] | null = null;
    for (let attempt = 0; outcomes === null; attempt += 1) {
      try {
        outcomes = await this.#store.commit(operations);
      } catch (error) {
        const pauseMs = this.#retriesMs[attempt];
        if (!(error instanceof StoreUnavailableError) || pauseMs === undefined) throw error;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
    this.#onCommit?.({ operations: batch.length, durationMs: performance.now() - beganMs });
    for (const [index, entry] of batch.entries()) {
      const outcome = outcomes[index];
      if (outcome === undefined)
        entry.reject(new Error("the store answered fewer operations than it was sent"));
      else entry.resolve(outcome);
    }
  }
}
