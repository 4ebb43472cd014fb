/**
 * The sequences and their holders: running jobs, and paused ones while no other job needs their sequence.
 *
 * Guarantees: a sequence has one holder at most; a new job gets an idle sequence if there is one (sequences.ts), otherwise
 * that of the paused job with the shortest text, whose state is kept (saved-states.ts). A copied state fits only the
 * sequence it came from. A job that returns while that one is in use evaluates its text again in another.
 */
import type { Backend } from "./backend.ts";
import type { EvictedSequence, SavedStates } from "./saved-states.ts";
import { chooseSequence, newSequence, type Sequence, type Wanted } from "./sequences.ts";

export interface Lease {
  readonly accountId: string;
  readonly repeatable: boolean;
  /** Its own unless it is `away`: then the one that it had. */
  sequence: Sequence;
  isPaused: boolean;
  /** Contents of its sequence from before it lost it; null while it has one. */
  evicted: EvictedSequence | null;
  /** Time that its last switch has cost so far; null if the switch is over. */
  switchMs: number | null;
}

export interface SequencePoolOptions {
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

  /** The first tokens of the prompt that are already there are `lease.sequence.tokens`. Null if every sequence is running. */
  async acquire(wanted: Wanted): Promise<Lease | null> {
    const choice = await this.#choose(wanted);
    if (choice === null) return null;
    const { accountId, repeatable } = wanted;
    const { sequence } = choice;
    const lease = { accountId, repeatable, sequence, isPaused: false, evicted: null, switchMs: null };
    this.#leases.add(lease);
    this.#occupy(sequence, wanted, choice.keep);
    return lease;
  }

  /**
   * Gives a job its sequence again. True: everything is in it as it was. False: another sequence, or too little is in it, and
   * `input` has to be evaluated. Null: every sequence is running.
   */
  async restore(lease: Lease, input: Uint32Array): Promise<boolean | null> {
    const { evicted, sequence } = lease;
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
    const { accountId, repeatable } = lease;
    const wanted = { accountId, repeatable, tokens: input };
    const choice = await this.#choose(wanted);
    if (choice === null) return null;
    this.#options.states.drop(evicted);
    lease.evicted = null;
    lease.sequence = choice.sequence;
    this.#occupy(choice.sequence, wanted, choice.keep);
    return false;
  }

  /** The job has ended. */
  release(lease: Lease): void {
    this.#leases.delete(lease);
    if (lease.evicted !== null) this.#options.states.drop(lease.evicted);
    else {
      lease.sequence.busy = false;
      lease.sequence.lastUse = ++this.#uses;
    }
  }

  async #choose(wanted: Wanted): Promise<ReturnType<typeof chooseSequence>> {
    const { chunkTokens } = this.#options.backend;
    const idle = chooseSequence(this.#sequences, wanted, chunkTokens);
    if (idle !== null) return idle;
    let shortest: Lease | null = null;
    for (const lease of this.#leases) {
      if (!lease.isPaused || lease.evicted !== null) continue;
      if (shortest === null || lease.sequence.tokens.length < shortest.sequence.tokens.length)
        shortest = lease;
    }
    if (shortest === null) return null;
    await this.#evict(shortest);
    return chooseSequence(this.#sequences, wanted, chunkTokens);
  }

  async #evict(lease: Lease): Promise<void> {
    const startedMs = performance.now();
    lease.evicted = await this.#options.states.save(lease.sequence, lease.accountId);
    lease.sequence.busy = false;
    lease.switchMs = performance.now() - startedMs;
  }

  #occupy(sequence: Sequence, { accountId, tokens }: Wanted, keep: number): void {
    const isThere = sequence.tokens.length === keep || this.#options.backend.truncate(sequence.index, keep);
    const kept = isThere ? keep : 0;
    sequence.tokens.length = kept;
    sequence.promptTokens = tokens.length;
    sequence.repeatable = Math.min(sequence.repeatable, kept);
    sequence.accountId = accountId;
    sequence.busy = true;
    sequence.lastUse = ++this.#uses;
  }
}
