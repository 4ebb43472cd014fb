/**
 * Which sequence a new job gets, and how much of its prompt is there already.
 *
 * Pure. Guarantees: what one account's requests left in a sequence is used for that account only. A job whose outcome
 * must be repeatable builds only on tokens that were computed as it would compute them itself: llama.cpp's
 * arithmetic depends on how many tokens are in a batch (a prompt's last logits move in the second digit), so these are whole chunks
 * on the grid, alone in their batch.
 */

export interface Sequence {
  readonly index: number;
  accountId: string | null;
  /** What its memory holds. */
  tokens: number[];
  /** How many of the first tokens were computed in whole chunks, alone in their batch. */
  repeatable: number;
  busy: boolean;
  /** Grows with each use. */
  lastUse: number;
}

export function newSequence(index: number): Sequence {
  return { index, accountId: null, tokens: [], repeatable: 0, busy: false, lastUse: 0 };
}

export interface Wanted {
  accountId: string;
  tokens: Uint32Array;
  repeatable: boolean;
}

/** An idle sequence and the length of the prefix to keep, or null while all are busy. At least one token is left to evaluate. */
export function chooseSequence(
  sequences: readonly Sequence[],
  wanted: Wanted,
  chunkTokens: number,
): { sequence: Sequence; keep: number } | null {
  let best: { sequence: Sequence; keep: number } | null = null;
  for (const sequence of sequences) {
    if (sequence.busy) continue;
    const keep = sequence.accountId === wanted.accountId ? reusable(sequence, wanted, chunkTokens) : 0;
    if (best === null || keep > best.keep || (keep === best.keep && idleLonger(sequence, best.sequence))) {
      best = { sequence, keep };
    }
  }
  return best;
}

function idleLonger(left: Sequence, right: Sequence): boolean {
  if (left.tokens.length === 0 || right.tokens.length === 0) return right.tokens.length > 0;
  return left.lastUse < right.lastUse;
}

function reusable(sequence: Sequence, wanted: Wanted, chunkTokens: number): number {
  const most = Math.min(sequence.tokens.length, wanted.tokens.length - 1);
  let common = 0;
  while (common < most && sequence.tokens[common] === wanted.tokens[common]) common += 1;
  if (!wanted.repeatable) return common;
  return Math.floor(Math.min(common, sequence.repeatable) / chunkTokens) * chunkTokens;
}
