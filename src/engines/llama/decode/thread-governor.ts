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
const cooldownMinMs = 1000;
const cooldownMaxMs = 60_000;
/** Cooldown for each millisecond of the failed decode, so that trials stay cheap. */
const cooldownPerDecode = 30;
/** Baseline times of a kind of batch that are needed before a comparison. */
const baselineTimesMin = 2;
const baselineTimesMax = 5;
/** After so many boosted decodes one runs at the baseline, because texts and their times grow. */
const recheckEvery = 32;

export class ThreadGovernor {
  readonly #baseline: number;
  readonly #boosted: number;
  readonly #baselineTimes: (BaselineTimes | undefined)[] = [];
  #loss = 0;
  #cooldownMs = cooldownMinMs;
  #cooldownUntilMs = 0;
  /** Time of boosted decodes since the last cooldown. */
  #trialMs = 0;

  constructor(baseline: number, boosted: number) {
    this.#baseline = baseline;
    this.#boosted = boosted;
  }

  /** Returns the threads for the next decode. `nowMs` is from a monotonic clock. */
  choose(tokens: number, repeatable: boolean, nowMs: number): number {
    // Attention sums in one part per thread for a single token, so its result depends on the
    // threads.
    if (repeatable && tokens === 1) return this.#baseline;
    const known = this.#baselineTimes[kindOf(tokens)];
    if (known === undefined || known.count < baselineTimesMin) return this.#baseline;
    if (nowMs < this.#cooldownUntilMs) return this.#baseline;
    if (known.boostedSince >= recheckEvery) return this.#baseline;
    return this.#boosted;
  }

  record(tokens: number, threads: number, tookMs: number, nowMs: number): void {
    const kind = kindOf(tokens);
    let known = this.#baselineTimes[kind];
    if (known === undefined) {
      known = new BaselineTimes();
      this.#baselineTimes[kind] = known;
    }
    if (threads === this.#baseline) {
      known.push(tookMs);
      return;
    }
    known.boostedSince += 1;
    this.#trialMs += tookMs;
    this.#loss = Math.max(0, this.#loss + tookMs / known.medianMs - 1);
    if (this.#loss < lossMax) return;
    // A trial that lasted longer than its cooldown was worth it: the disturbance is new.
    if (this.#trialMs > this.#cooldownMs) this.#cooldownMs = cooldownMinMs;
    this.#cooldownUntilMs = nowMs + Math.max(this.#cooldownMs, cooldownPerDecode * tookMs);
    this.#cooldownMs = Math.min(2 * this.#cooldownMs, cooldownMaxMs);
    this.#loss = trialLoss;
    this.#trialMs = 0;
  }
}

/** The last baseline times of one kind of batch. */
class BaselineTimes {
  readonly #times = new Float64Array(baselineTimesMax);
  readonly #sorted = new Float64Array(baselineTimesMax);
  #pushed = 0;
  medianMs = 0;
  boostedSince = 0;

  get count(): number {
    return Math.min(this.#pushed, baselineTimesMax);
  }

  push(ms: number): void {
    this.boostedSince = 0;
    this.#times[this.#pushed % baselineTimesMax] = ms;
    this.#pushed += 1;
    this.#sorted.fill(Number.POSITIVE_INFINITY);
    this.#sorted.set(this.#times.subarray(0, this.count));
    this.#sorted.sort();
    this.medianMs = this.#sorted[(this.count - 1) >> 1] ?? ms;
  }
}

/** Groups batches of similar duration: one kind per number up to 8, then two per doubling. */
function kindOf(tokens: number): number {
  return tokens <= 8 ? tokens : Math.floor(2 * Math.log2(tokens)) + 3;
}
