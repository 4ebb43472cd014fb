/**
 * Chooses the sequence that a new job gets, and the part of its prompt that is already there.
 *
 * Idle sequences are preferred in this order:
 * 1. The sequence that holds this conversation of this account. It contains the whole last prompt,
 *    or at least four fifths of its tokens are kept. The last answer may differ, because thinking
 *    is left out of the next prompt.
 * 2. A spare sequence: empty, or unused while four requests for each sequence came and went.
 * 3. The longest prefix, if it is at least a quarter of the prompt, and of the tokens that would
 *    be lost.
 * 4. The sequence that was used longest ago.
 * So conversations that share only a template or a system prompt do not take each other's memory
 * while there is room. Among equals, an older one beside busy sequences goes first, or else one
 * with room beside it, because neighbours are evaluated together (native-backend.ts).
 *
 * Pure. Guarantees: tokens of one account's requests are reused for that account only. A
 * repeatable job reuses only tokens that it would compute in the same way: in whole chunks on the
 * grid, alone in their batch. The reason is that llama.cpp's results depend on the batch size. The
 * last logits of a prompt differ in the second digit.
 */

/**
 * A prompt may end with an opening of the answer that the next prompt leaves out: `<think>` and
 * its closing tag with their blanks are 5 tokens. The limit is not higher, because the shortest
 * other message differs in 6 (ChatML).
 */
const openingTokensMax = 5;
/** Ratio of kept to lost tokens from which two texts are the same conversation. */
const keptPerLost = 4;
/** Minimum ratio of a prefix to the prompt, and to the lost tokens. */
const worthwhilePart = 1 / 4;
/** Requests per sequence after which an unused sequence is spare. */
const spareAfterRequests = 4;
/** Start and end of a request. */
const usesPerRequest = 2;

export interface Sequence {
  readonly index: number;
  accountId: string | null;
  /** Tokens in its memory. */
  tokens: number[];
  /** Length of the last request's prompt. Its answer follows. */
  promptTokens: number;
  /** Number of leading tokens that were computed in whole chunks, alone in their batch. */
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
  /** Position in the order above. 3 and 4 have one rank and differ in `worth`. */
  rank: number;
  /** Part of `keep` that counts in the choice. */
  worth: number;
}

/** Returns an idle sequence and the length of its prefix to keep, or null. */
export function chooseSequence(
  sequences: readonly Sequence[],
  wanted: Wanted,
  chunkTokens: number,
): { sequence: Sequence; keep: number } | null {
  const lastUse = sequences.reduce((latest, sequence) => Math.max(latest, sequence.lastUse), 0);
  const spareUntil = lastUse - usesPerRequest * spareAfterRequests * sequences.length;
  const candidates = sequences
    .filter((sequence) => !sequence.busy)
    .map((sequence) => candidateOf(sequence, wanted, chunkTokens, spareUntil))
    .sort(byPreference);
  const [best] = candidates;
  if (best === undefined) return null;
  const equals = candidates.filter(({ rank, worth }) => rank === best.rank && worth === best.worth);
  return besideBusy(sequences, olderOf(equals));
}

/**
 * Returns the empty ones, or else the two thirds that were used longest ago. The others keep their
 * prefixes, and so does the last used one of two.
 */
function olderOf(candidates: readonly Candidate[]): readonly Candidate[] {
  const empty = candidates.filter(({ sequence }) => sequence.tokens.length === 0);
  const count = Math.min(Math.ceil((candidates.length * 2) / 3), candidates.length - 1);
  return empty.length > 0 ? empty : candidates.slice(0, Math.max(1, count));
}

/**
 * Returns the candidate with the most busy neighbours. Among equals, the next answers should find
 * room beside it: it is in the longest row of busy sequences and candidates, the first such row.
 */
function besideBusy(sequences: readonly Sequence[], candidates: readonly Candidate[]): Candidate | null {
  const indexes = new Set(candidates.map(({ sequence }) => sequence.index));
  const isBusy = (index: number) => sequences[index]?.busy === true;
  const inRow = (index: number) => isBusy(index) || indexes.has(index);
  const placed = candidates.map((candidate) => {
    const { index } = candidate.sequence;
    let [start, end] = [index, index + 1];
    while (inRow(start - 1)) start -= 1;
    while (inRow(end)) end += 1;
    const neighbours = Number(isBusy(index - 1)) + Number(isBusy(index + 1));
    return { candidate, neighbours, start, length: end - start };
  });
  // The sort is stable, so the oldest one in a row comes first.
  placed.sort(
    (left, right) =>
      right.neighbours - left.neighbours || right.length - left.length || left.start - right.start,
  );
  return placed[0]?.candidate ?? null;
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
  // The prompt of a stopped request may be incomplete.
  const lostOfPrompt = Math.min(sequence.promptTokens, held) - common;
  if (lostOfPrompt <= Math.min(openingTokensMax, common)) return true;
  return common >= keptPerLost * (held - common);
}

/** The preferred candidate comes first. */
function byPreference(left: Candidate, right: Candidate): number {
  return left.rank - right.rank || right.worth - left.worth || left.sequence.lastUse - right.sequence.lastUse;
}

/** Leaves out the last token of the prompt: the answer's first token needs its logits. */
function commonTokens(sequence: Sequence, wanted: Wanted): number {
  const most = Math.min(sequence.tokens.length, wanted.tokens.length - 1);
  let common = 0;
  while (common < most && sequence.tokens[common] === wanted.tokens[common]) common += 1;
  return common;
}

function repeatableTokens(sequence: Sequence, common: number, chunkTokens: number): number {
  return Math.floor(Math.min(common, sequence.repeatable) / chunkTokens) * chunkTokens;
}
