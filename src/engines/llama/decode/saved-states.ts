/**
 * States of paused jobs that gave up their sequences: what each sequence held, copied into memory.
 *
 * Guarantees: the copies take `bytesMax` together, and the account that has most of it loses its copies first; nothing is
 * written to a file. A job without a copy goes on all the same: its text is evaluated again. A failure to copy is a warning,
 * never the end of a job.
 */
import { messageOf } from "../../../errors.ts";
import type { Backend, SavedState } from "./backend.ts";
import type { Sequence } from "./sequences.ts";

/** Tokens that a sequence held for a job, and a copy of its state if there is one. */
export interface EvictedSequence {
  readonly accountId: string;
  readonly tokens: readonly number[];
  readonly promptTokens: number;
  readonly repeatable: number;
  state: SavedState | null;
}

export interface SavedStatesOptions {
  backend: Pick<Backend, "save" | "restore">;
  bytesMax: number;
  warn: (message: string) => void;
}

export class SavedStates {
  readonly #options: SavedStatesOptions;
  /** Those with a copy. */
  readonly #saved = new Set<EvictedSequence>();
  readonly #warned = new Set<string>();
  #bytesPerToken = 0;
  /** False once a copy turned out not to be the whole state: this model has no other. */
  #areWhole = true;

  constructor(options: SavedStatesOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return bytesOf(this.#saved);
  }

  async save(sequence: Sequence, accountId: string): Promise<EvictedSequence> {
    const { promptTokens, repeatable } = sequence;
    const evicted: EvictedSequence = {
      accountId,
      tokens: [...sequence.tokens],
      promptTokens,
      repeatable,
      state: null,
    };
    const tokens = evicted.tokens.length;
    if (!this.#areWhole || tokens === 0 || !this.#makeRoom(accountId, tokens * this.#bytesPerToken))
      return evicted;
    try {
      const state = await this.#options.backend.save(sequence.index);
      this.#bytesPerToken = state.bytes / tokens;
      if (this.#makeRoom(accountId, state.bytes)) {
        evicted.state = state;
        this.#saved.add(evicted);
      } else state.dispose();
    } catch (cause) {
      this.#warn("could not be copied", cause);
    }
    return evicted;
  }

  /** True if the sequence, the one that it was taken from, holds everything again. Otherwise nothing of it may be used. */
  async restore(evicted: EvictedSequence, sequence: Sequence): Promise<boolean> {
    const { state } = evicted;
    if (state === null) return false;
    let isWhole = false;
    try {
      isWhole = await this.#options.backend.restore(state);
      if (!isWhole) {
        this.#areWhole = false;
        this.#options.warn(
          "the state of a paused answer cannot be restored with this model; paused answers are evaluated again",
        );
      }
    } catch (cause) {
      this.#warn("could not be put back", cause);
    }
    this.drop(evicted);
    sequence.tokens = isWhole ? [...evicted.tokens] : [];
    sequence.promptTokens = evicted.promptTokens;
    sequence.repeatable = isWhole ? evicted.repeatable : 0;
    sequence.accountId = evicted.accountId;
    return isWhole;
  }

  drop(evicted: EvictedSequence): void {
    this.#saved.delete(evicted);
    evicted.state?.dispose();
    evicted.state = null;
  }

  /** False if the account would have to give up more than any other. */
  #makeRoom(accountId: string, bytes: number): boolean {
    while (this.bytes + bytes > this.#options.bytesMax) {
      let largest: { ofOne: EvictedSequence; bytes: number } | null = null;
      for (const [account, ofOne] of Map.groupBy(this.#saved, (evicted) => evicted.accountId)) {
        const held = bytesOf(ofOne);
        if (account !== accountId && ofOne[0] !== undefined && (largest === null || held > largest.bytes))
          largest = { ofOne: ofOne[0], bytes: held };
      }
      const own = bytesOf([...this.#saved].filter((evicted) => evicted.accountId === accountId)) + bytes;
      if (largest === null || largest.bytes < own) return false;
      this.drop(largest.ofOne);
    }
    return true;
  }

  /** Once for each kind: it may fail for every answer that is paused. */
  #warn(what: string, cause: unknown): void {
    if (this.#warned.has(what)) return;
    this.#warned.add(what);
    const why = messageOf(cause);
    this.#options.warn(`the state of a paused answer ${what}, so its text is evaluated again (${why})`);
  }
}

function bytesOf(evicted: Iterable<EvictedSequence>): number {
  let bytes = 0;
  for (const { state } of evicted) bytes += state?.bytes ?? 0;
  return bytes;
}
