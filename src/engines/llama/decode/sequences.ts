/**
 * Which sequence a new job gets, and how much of its prompt is there already.
 *
 * The order of choice, among the idle ones:
 * 1. a sequence that holds this conversation of this account: all of its last prompt comes again (its answer may not: what
 *    was thought is left out of the next prompt), or at least four fifths of what it holds are kept, as where only the last
 *    turn is another;
 * 2. one that is spare: empty, or not used while four requests for each sequence came and went;
 * 3. the one with the longest prefix, where that is at least a quarter of the prompt, and of what would be lost with the rest;
 * 4. the one that was used longest ago.
 * So conversations that begin alike, with the same template or system prompt, leave each other's memory alone while there is
 * other room, and a few tokens in common never cost more than they are worth.
 *
 * Pure. Guarantees: what one account's requests left in a sequence is used for that account only. A job whose outcome
 * must be repeatable builds only on tokens that were computed as it would compute them itself: llama.cpp's
 * arithmetic depends on how many tokens are in a batch (a prompt's last logits move in the second digit), so these are whole chunks
 * on the grid, alone in their batch.
 */

/**
 * A prompt may end in what opens the answer and does not come again with it: `<think>` and its closing tag with their blanks
 * are 5 tokens. No more, because the shortest other message with the mark of its end differs in 6 (ChatML).
 */
const openingTokensMax = 5;
/** So many tokens kept for each that is lost make it the same conversation. */
const keptPerLost = 4;
/** Part of the prompt, and of what is lost, that a prefix must be to count. */
const worthwhilePart = 1 / 4;
/** For each sequence there is; so many since its last use make one spare. */
const spareAfterRequests = 4;
/** A request's begin and its end. */
const usesPerRequest = 2;

export interface Sequence {
  readonly index: number;
  accountId: string | null;
  /** What its memory holds. */
  tokens: number[];
  /** Of the last request, whose tokens these are; what follows is its answer. */
  promptTokens: number;
  /** How many of the first tokens were computed in whole chunks, alone in their batch. */
  repeatable: number;
  busy: boolean;
  /** Grows with each use. */
  lastUse: number;
}

export function newSequence(index: number): Sequence {
  return { index, accountId: null, tokens: [], promptTokens: 0, repeatable: 0, busy: false, lastUse: 0 };
}

export interface Wanted {
  accountId: string;
  tokens: Uint32Array;
  repeatable: boolean;
}

interface Candidate {
  sequence: Sequence;
  keep: number;
  /** Of the order of choice above; 3 and 4 are one, and `worth` tells them apart. */
  rank: number;
  /** What of `keep` counts in the choice. */
  worth: number;
}

/** An idle sequence and the length of the prefix to keep, or null while all are busy. At least one token is left to evaluate. */
export function chooseSequence(
  sequences: readonly Sequence[],
  wanted: Wanted,
  chunkTokens: number,
): { sequence: Sequence; keep: number } | null {
  const lastUse = sequences.reduce((latest, sequence) => Math.max(latest, sequence.lastUse), 0);
  const spareUntil = lastUse - usesPerRequest * spareAfterRequests * sequences.length;
  let best: Candidate | null = null;
  for (const sequence of sequences) {
    if (sequence.busy) continue;
    const candidate = candidateOf(sequence, wanted, chunkTokens, spareUntil);
    if (best === null || isBetter(candidate, best)) best = candidate;
  }
  return best;
}

function candidateOf(sequence: Sequence, wanted: Wanted, chunkTokens: number, spareUntil: number): Candidate {
  const held = sequence.tokens.length;
  const common = sequence.accountId === wanted.accountId ? commonTokens(sequence, wanted) : 0;
  const keep = wanted.repeatable ? repeatableTokens(sequence, common, chunkTokens) : common;
  if (isSameConversation(sequence, common)) return { sequence, keep, rank: 1, worth: keep };
  const isWorthwhile = keep >= worthwhilePart * Math.max(wanted.tokens.length, held - common);
  const isSpare = held === 0 || sequence.lastUse <= spareUntil;
  return { sequence, keep, rank: isSpare ? 2 : 3, worth: isWorthwhile ? keep : 0 };
}

function isSameConversation(sequence: Sequence, common: number): boolean {
  if (common === 0) return false;
  const held = sequence.tokens.length;
  // The prompt of a request that was stopped may not be there as a whole.
  const lostOfPrompt = Math.min(sequence.promptTokens, held) - common;
  if (lostOfPrompt <= Math.min(openingTokensMax, common)) return true;
  return common >= keptPerLost * (held - common);
}

function isBetter(left: Candidate, right: Candidate): boolean {
  if (left.rank !== right.rank) return left.rank < right.rank;
  if (left.worth !== right.worth) return left.worth > right.worth;
  return idleLonger(left.sequence, right.sequence);
}

function idleLonger(left: Sequence, right: Sequence): boolean {
  if (left.tokens.length === 0 || right.tokens.length === 0) return right.tokens.length > 0;
  return left.lastUse < right.lastUse;
}

/** The last token of a prompt is always evaluated: the first of the answer is drawn from that. */
function commonTokens(sequence: Sequence, wanted: Wanted): number {
  const most = Math.min(sequence.tokens.length, wanted.tokens.length - 1);
  let common = 0;
  while (common < most && sequence.tokens[common] === wanted.tokens[common]) common += 1;
  return common;
}

function repeatableTokens(sequence: Sequence, common: number, chunkTokens: number): number {
  return Math.floor(Math.min(common, sequence.repeatable) / chunkTokens) * chunkTokens;
}
