/**
 * The model's sequences and the jobs that hold them.
 *
 * A new job gets an idle sequence (sequences.ts). If all are in use, it gets the sequence of the
 * paused job with the shortest text, and the paused job's state is saved (saved-states.ts).
 *
 * Guarantees: a sequence has at most one holder. A saved state returns only to the sequence it
 * came from. If that one is in use, the job's text is evaluated again in another.
 */
import type { Backend } from "./native-backend.ts";
import type { EvictedSequence, SavedStates } from "./saved-states.ts";
import { chooseSequence, newSequence, type Sequence, type Wanted } from "./sequences.ts";

export interface Lease {
  readonly accountId: string;
  readonly repeatable: boolean;
  /** The job's sequence, or its last one if it was evicted. */
  sequence: Sequence;
  isPaused: boolean;
  /** Contents of the sequence that the job lost, or null while it has one. */
  evicted: EvictedSequence | null;
  /** Duration of the current switch to or from a sequence, or null. */
  switchMs: number | null;
}

interface SequencePoolOptions {
  backend: Pick<Backend, "chunkTokens" | "truncate">;
  parallel: number;
  states: SavedStates;
}

export class SequencePool {
  readonly #options: SequencePoolOptions;
  readonly #sequences: readonly Sequence[];
  readonly #leases = new Set<Lease>();
  #uses = 0;

  constructor(options: SequencePoolOptions) {
    this.#options = options;
    this.#sequences = Array.from({ length: options.parallel }, (_, index) => newSequence(index));
  }

  /** Null if all sequences run. `lease.sequence.tokens` is the reused part of the prompt. */
  async acquire(wanted: Wanted): Promise<Lease | null> {
    const sequence = await this.#occupy(wanted);
    if (sequence === null) return null;
    const { accountId, repeatable } = wanted;
    const lease = { accountId, repeatable, sequence, isPaused: false, evicted: null, switchMs: null };
    this.#leases.add(lease);
    return lease;
  }

  /**
   * Returns a sequence to an evicted job. True: its contents are as before. False: some are
   * missing, and `input` has to be evaluated. Null: all sequences are running.
   */
  async restore(lease: Lease, input: Uint32Array): Promise<boolean | null> {
    const { accountId, evicted, repeatable, sequence } = lease;
    if (evicted === null) return true;
    const startedMs = performance.now();
    for (const other of this.#leases)
      if (other.isPaused && other.evicted === null && other.sequence === sequence) await this.#evict(other);
    if (!sequence.busy && evicted.state !== null) {
      const isWhole = await this.#options.states.restore(evicted, sequence);
      lease.switchMs = (lease.switchMs ?? 0) + performance.now() - startedMs;
      if (isWhole) {
        lease.evicted = null;
        sequence.busy = true;
        sequence.lastUse = ++this.#uses;
        return true;
      }
      this.#options.backend.truncate(sequence.index, 0);
    }
    const other = await this.#occupy({ accountId, repeatable, tokens: input });
    if (other === null) return null;
    this.#options.states.drop(evicted);
    lease.evicted = null;
    lease.sequence = other;
    return false;
  }

  /** Call this when the job has ended. */
  release(lease: Lease): void {
    this.#leases.delete(lease);
    if (lease.evicted !== null) this.#options.states.drop(lease.evicted);
    else {
      lease.sequence.busy = false;
      lease.sequence.lastUse = ++this.#uses;
    }
  }

  /** Makes a sequence busy for a job and cuts it to the prefix that the job reuses. */
  async #occupy(wanted: Wanted): Promise<Sequence | null> {
    const choice = await this.#choose(wanted);
    if (choice === null) return null;
    const { sequence, keep } = choice;
    const isThere = sequence.tokens.length === keep || this.#options.backend.truncate(sequence.index, keep);
    const kept = isThere ? keep : 0;
    sequence.tokens.length = kept;
    sequence.promptTokens = wanted.tokens.length;
    sequence.repeatable = Math.min(sequence.repeatable, kept);
    sequence.accountId = wanted.accountId;
    sequence.busy = true;
    sequence.lastUse = ++this.#uses;
    return sequence;
  }

  async #choose(wanted: Wanted): Promise<ReturnType<typeof chooseSequence>> {
    const choose = () => chooseSequence(this.#sequences, wanted, this.#options.backend.chunkTokens);
    const idle = choose();
    if (idle !== null) return idle;
    let shortest: Lease | null = null;
    for (const lease of this.#leases) {
      if (!lease.isPaused || lease.evicted !== null) continue;
      if (shortest === null || lease.sequence.tokens.length < shortest.sequence.tokens.length)
        shortest = lease;
    }
    if (shortest === null) return null;
    await this.#evict(shortest);
    return choose();
  }

  async #evict(lease: Lease): Promise<void> {
    const startedMs = performance.now();
    lease.evicted = await this.#options.states.save(lease.sequence, lease.accountId);
    lease.sequence.busy = false;
    lease.switchMs = performance.now() - startedMs;
  }
}
