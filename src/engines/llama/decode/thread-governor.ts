/**
 * Chooses the number of threads of each decode on a CPU: all cores while they are free, otherwise
 * one less.
 *
 * llama.cpp's threads wait for one another many times in each decode, and spin while they wait. If
 * each has a core, the additional thread makes 1.5 to 1.7 times the tokens on 2 cores. If another
 * program takes one of the cores, it makes a fifth. So decodes with all cores ("boosted") are
 * compared with known times at one thread less ("baseline"). They stay boosted as long as that is
 * faster overall.
 *
 * Guarantees: repeatable results do not depend on free cores. A failed trial of boosted decodes
 * costs at most a few baseline decodes plus its slowest decode. Failing trials become rarer, up to
 * a minute apart. Pure: the caller passes the time.
 */

/** Loss in baseline decodes that ends a trial. One decode of five times the time does not. */
const lossMax = 6;
/** Loss at the start of a new trial. Its first slow decode ends it. */
const trialLoss = 4.5;
/** `perDecode`: for each millisecond of the failed decode, so that trials stay cheap. */
const cooldown = { msMin: 1000, msMax: 60_000, perDecode: 30 };
/** Baseline times of a kind of batch: needed before a comparison, and kept. */
const baselineTimes = { min: 2, max: 5 };
/** After so many boosted decodes one runs at the baseline, because texts and their times grow. */
const recheckEvery = 64;

export class ThreadGovernor {
  readonly #baseline: number;
  readonly #boosted: number;
  /** By the kind of batch. */
  readonly #known = new Map<number, { baselineMs: number[]; boostedSince: number }>();
  #loss = 0;
  #cooldownMs = cooldown.msMin;
  #cooldownUntilMs = 0;
  /** Time of boosted decodes since the last cooldown. */
  #trialMs = 0;

  constructor(baseline: number, boosted: number) {
    this.#baseline = baseline;
    this.#boosted = boosted;
  }

  /**
   * Returns the threads for the next decode. `fixed`: its result depends on their number and must
   * be repeatable. `nowMs` is from a monotonic clock.
   */
  choose(tokens: number, fixed: boolean, nowMs: number): number {
    if (fixed) return this.#baseline;
    const known = this.#known.get(kindOf(tokens));
    if (known === undefined || known.baselineMs.length < baselineTimes.min) return this.#baseline;
    if (nowMs < this.#cooldownUntilMs) return this.#baseline;
    if (known.boostedSince >= recheckEvery) return this.#baseline;
    return this.#boosted;
  }

  record(tokens: number, threads: number, tookMs: number, nowMs: number): void {
    const known = this.#known.getOrInsert(kindOf(tokens), { baselineMs: [], boostedSince: 0 });
    if (threads === this.#baseline) {
      known.baselineMs = [...known.baselineMs, tookMs].slice(-baselineTimes.max);
      known.boostedSince = 0;
      return;
    }
    known.boostedSince += 1;
    this.#trialMs += tookMs;
    this.#loss = Math.max(0, this.#loss + tookMs / medianOf(known.baselineMs) - 1);
    if (this.#loss < lossMax) return;
    // A trial that lasted longer than its cooldown was worth it: the disturbance is new.
    if (this.#trialMs > this.#cooldownMs) this.#cooldownMs = cooldown.msMin;
    this.#cooldownUntilMs = nowMs + Math.max(this.#cooldownMs, cooldown.perDecode * tookMs);
    this.#cooldownMs = Math.min(2 * this.#cooldownMs, cooldown.msMax);
    this.#loss = trialLoss;
    this.#trialMs = 0;
  }
}

/** Groups batches of similar duration: one kind per number up to 8, then two per doubling. */
function kindOf(tokens: number): number {
  return tokens <= 8 ? tokens : Math.floor(2 * Math.log2(tokens)) + 3;
}

function medianOf(timesMs: readonly number[]): number {
  return timesMs.toSorted((left, right) => left - right)[(timesMs.length - 1) >> 1] ?? 0;
}
