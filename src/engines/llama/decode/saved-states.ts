/**
 * Saved states of paused jobs that lost their sequences, in memory.
 *
 * Guarantees: the copies take at most `bytesMax` together. If that is reached, the account with
 * the most bytes loses its copies first. Nothing is written to a file. A job without a copy still
 * continues, because its text is evaluated again. A failed copy is a warning and does not end a
 * job.
 */
import { messageOf } from "../../../errors.ts";
import type { Backend, SavedState } from "./native-backend.ts";
import type { Sequence } from "./sequences.ts";

/** Contents of a sequence that a job lost, and a copy of its state if there is one. */
export interface EvictedSequence {
  readonly accountId: string;
  readonly tokens: readonly number[];
  readonly promptTokens: number;
  readonly repeatable: number;
  state: SavedState | null;
}

interface SavedStatesOptions {
  backend: Pick<Backend, "save" | "restore">;
  bytesMax: number;
  warn: (message: string) => void;
}

export class SavedStates {
  readonly #options: SavedStatesOptions;
  /** Evicted sequences with a copy. */
  readonly #saved = new Set<EvictedSequence>();
  readonly #warned = new Set<string>();
  #bytesPerToken = 0;
  /** False after an incomplete copy. All copies of such a model are incomplete. */
  #areWhole = true;

  constructor(options: SavedStatesOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return stateBytesOf(this.#saved);
  }

  async save(sequence: Sequence, accountId: string): Promise<EvictedSequence> {
    const { promptTokens, repeatable } = sequence;
    const held = [...sequence.tokens];
    const evicted: EvictedSequence = { accountId, tokens: held, promptTokens, repeatable, state: null };
    const tokens = held.length;
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

  /** Restores a copy to its own sequence. Returns false if the contents are incomplete. */
  async restore(evicted: EvictedSequence, sequence: Sequence): Promise<boolean> {
    const { state } = evicted;
    if (state === null) return false;
    let isWhole = false;
    try {
      isWhole = await this.#options.backend.restore(state);
      this.#areWhole &&= isWhole;
      if (!isWhole)
        this.#options.warn(
          "the state of a paused answer cannot be restored with this model; paused answers are evaluated again",
        );
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

  /** Drops copies of the largest accounts. Returns false if this account would be the largest. */
  #makeRoom(accountId: string, bytes: number): boolean {
    while (this.bytes + bytes > this.#options.bytesMax) {
      const byAccount = Map.groupBy(this.#saved, (evicted) => evicted.accountId);
      const ownBytes = stateBytesOf(byAccount.get(accountId) ?? []) + bytes;
      byAccount.delete(accountId);
      const [largest = []] = [...byAccount.values()].sort(
        (left, right) => stateBytesOf(right) - stateBytesOf(left),
      );
      if (largest[0] === undefined || stateBytesOf(largest) < ownBytes) return false;
      this.drop(largest[0]);
    }
    return true;
  }

  /** Warns once for each kind, because every paused answer may fail alike. */
  #warn(what: string, cause: unknown): void {
    if (this.#warned.has(what)) return;
    this.#warned.add(what);
    const why = messageOf(cause);
    this.#options.warn(`the state of a paused answer ${what}, so its text is evaluated again (${why})`);
  }
}

function stateBytesOf(evicted: Iterable<EvictedSequence>): number {
  let bytes = 0;
  for (const { state } of evicted) bytes += state?.bytes ?? 0;
  return bytes;
}
