/**
 * How many threads each decode gets on a CPU: all cores while they are free, one less while something else wants one.
 *
 * llama.cpp's threads wait for one another many times in each decode, and spin while they wait. With a core for each,
 * one thread more makes 1.5 to 1.7 times the tokens on 2 cores; when another program takes one of the cores, it makes
 * a fifth. So this compares what decodes take with what they are known to take with the fewer threads (the baseline) and
 * keeps to all cores (boosted) as long as that is quicker on the whole.
 *
 * Guarantees: what must come out the same at any time never depends on how many cores were free; each trial of the boosted count that fails costs at most the time of a few decodes at the baseline and that of the
 * decode that failed it, and trials become rarer (up to a minute apart) while they fail. Pure: it is handed times.
 */

/** Loss at which the boosted count is given up, in decodes at the baseline. One decode that is held up for five times its time is no reason yet. */
const lossMax = 6;
/** A new trial begins with most of that spent: its first slow decode ends it. */
const trialLoss = 4.5;
const cooldownMinMs = 1000;
const cooldownMaxMs = 60_000;
/** After a decode that took long the rest is longer too, so that trials stay a small part of the time with slow models. */
const cooldownPerDecode = 30;
/** Before a kind of batch has been seen so often with the baseline, there is nothing to compare with. */
const baselineTimesMin = 2;
const baselineTimesMax = 5;
/** One in so many is decoded with the baseline nevertheless: what it takes grows with the texts. */
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

  /** For the next decode of so many tokens. `nowMs` is of any clock that only goes forward. */
  choose(tokens: number, repeatable: boolean, nowMs: number): number {
    // Attention for a single token adds up in as many parts as there are threads; for several it does not.
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
    // A trial that went well for longer than the rest before it was worth it: the trouble is new.
    if (this.#trialMs > this.#cooldownMs) this.#cooldownMs = cooldownMinMs;
    this.#cooldownUntilMs = nowMs + Math.max(this.#cooldownMs, cooldownPerDecode * tookMs);
    this.#cooldownMs = Math.min(2 * this.#cooldownMs, cooldownMaxMs);
    this.#loss = trialLoss;
    this.#trialMs = 0;
  }
}

/** The last times of one kind of batch with the baseline. */
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

/** Batches that take about as long: up to eight tokens each number by itself, then two steps for each doubling. */
function kindOf(tokens: number): number {
  return tokens <= 8 ? tokens : Math.floor(2 * Math.log2(tokens)) + 3;
}
