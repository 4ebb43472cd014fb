/**
 * The sequences and their holders: running jobs, and paused ones while no other job needs their sequence.
 *
 * Guarantees: a sequence has one holder at most; a new job gets an idle sequence if there is one (sequences.ts), otherwise
 * that of the paused job with the shortest text, whose state is kept (saved-states.ts). A copied state fits only the
 * sequence it came from. A job that returns while that one is in use evaluates its text again in another.
 */
import type { Backend } from "./backend.ts";
import type { Kept, SavedStates } from "./saved-states.ts";
import { chooseSequence, newSequence, type Sequence, type Wanted } from "./sequences.ts";

export interface Seat {
  readonly accountId: string;
  readonly repeatable: boolean;
  /** Its own unless it is `away`: then the one that it had. */
  sequence: Sequence;
  isPaused: boolean;
  /** Contents of its sequence from before it lost it; null while it has one. */
  away: Kept | null;
  /** Time that its last switch has cost so far; null if the switch is over. */
  switchMs: number | null;
}

export interface SeatsOptions {
  backend: Pick<Backend, "chunkTokens" | "truncate">;
  parallel: number;
  states: SavedStates;
}

export class Seats {
  readonly #options: SeatsOptions;
  readonly #sequences: readonly Sequence[];
  readonly #seats = new Set<Seat>();
  #uses = 0;

  constructor(options: SeatsOptions) {
    this.#options = options;
    this.#sequences = Array.from({ length: options.parallel }, (_, index) => newSequence(index));
  }

  /** The first tokens of the prompt that are already there are `seat.sequence.tokens`. Null if every sequence is running. */
  async take(wanted: Wanted): Promise<Seat | null> {
    const choice = await this.#choose(wanted);
    if (choice === null) return null;
    const { accountId, repeatable } = wanted;
    const { sequence } = choice;
    const seat = { accountId, repeatable, sequence, isPaused: false, away: null, switchMs: null };
    this.#seats.add(seat);
    this.#occupy(sequence, wanted, choice.keep);
    return seat;
  }

  /**
   * Gives a job its sequence again. True: everything is in it as it was. False: another sequence, or too little is in it, and
   * `input` has to be evaluated. Null: every sequence is running.
   */
  async bringBack(seat: Seat, input: Uint32Array): Promise<boolean | null> {
    const { away, sequence } = seat;
    if (away === null) return true;
    const startedMs = performance.now();
    for (const other of this.#seats)
      if (other.isPaused && other.away === null && other.sequence === sequence) await this.#sendAway(other);
    if (!sequence.busy && away.state !== null) {
      const isWhole = await this.#options.states.putBack(away, sequence);
      seat.switchMs = (seat.switchMs ?? 0) + performance.now() - startedMs;
      if (isWhole) {
        seat.away = null;
        sequence.busy = true;
        sequence.lastUse = ++this.#uses;
        return true;
      }
      this.#options.backend.truncate(sequence.index, 0);
    }
    const { accountId, repeatable } = seat;
    const wanted = { accountId, repeatable, tokens: input };
    const choice = await this.#choose(wanted);
    if (choice === null) return null;
    this.#options.states.drop(away);
    seat.away = null;
    seat.sequence = choice.sequence;
    this.#occupy(choice.sequence, wanted, choice.keep);
    return false;
  }

  /** The job has ended. */
  release(seat: Seat): void {
    this.#seats.delete(seat);
    if (seat.away !== null) this.#options.states.drop(seat.away);
    else {
      seat.sequence.busy = false;
      seat.sequence.lastUse = ++this.#uses;
    }
  }

  async #choose(wanted: Wanted): Promise<ReturnType<typeof chooseSequence>> {
    const { chunkTokens } = this.#options.backend;
    const idle = chooseSequence(this.#sequences, wanted, chunkTokens);
    if (idle !== null) return idle;
    let shortest: Seat | null = null;
    for (const seat of this.#seats) {
      if (!seat.isPaused || seat.away !== null) continue;
      if (shortest === null || seat.sequence.tokens.length < shortest.sequence.tokens.length) shortest = seat;
    }
    if (shortest === null) return null;
    await this.#sendAway(shortest);
    return chooseSequence(this.#sequences, wanted, chunkTokens);
  }

  async #sendAway(seat: Seat): Promise<void> {
    const startedMs = performance.now();
    seat.away = await this.#options.states.keep(seat.sequence, seat.accountId);
    seat.sequence.busy = false;
    seat.switchMs = performance.now() - startedMs;
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
