/**
 * Circuit breaker of one upstream. It learns from real requests only: a server that lists its
 * models may fail all the same, and a probe that generates tokens would cost them.
 *
 * Pure: callers pass the time. After several failures in a row the circuit opens, and nothing is
 * sent for a while. Then one trial request decides. A first token resets the count of failures
 * before the first token. Only a whole answer resets the count of answers that broke off. Each
 * opening doubles the time, up to a minute, until an answer is whole.
 */

/** Failures in a row that open the circuit. One or two may be an accident. */
export const failuresMax = 5;

/** First time for which the circuit is open. Each opening in a row doubles it. */
export const openMs = 5_000;

export const openMsMax = 60_000;

/** Most of the pause that a server may ask for by `retry-after`. */
export const coolDownMsMax = 60_000;

/** One request that was sent. */
export interface Attempt {
  /** Number of times that the circuit had opened when the request was sent. */
  readonly openings: number;
}

export class Circuit {
  /** Failures before the first token. */
  #failures = 0;
  /** Failures in the middle of an answer. */
  #breaks = 0;
  /** Time for which the next opening lasts. */
  #openMs = openMs;
  /** The circuit admits a trial from then on. Null: it is closed. */
  #openUntilMs: number | null = null;
  #openings = 0;
  /** The trial request that is under way. */
  #trial: Attempt | null = null;

  isOpen(nowMs: number): boolean {
    return this.#openUntilMs !== null && nowMs < this.#openUntilMs;
  }

  /** Time from which the circuit admits a trial, or null if it is closed. */
  get openUntilMs(): number | null {
    return this.#openUntilMs;
  }

  /** Returns whether a request may be sent now. */
  admits(nowMs: number): boolean {
    return this.#openUntilMs === null || (nowMs >= this.#openUntilMs && this.#trial === null);
  }

  /**
   * Records that a request is sent. The caller calls `ended` when the request has ended.
   * `insteadOf` is the earlier attempt of the same request: if that attempt was the trial, this
   * one becomes the trial.
   */
  begin(nowMs: number, insteadOf: Attempt | null): Attempt {
    const attempt = this.beginBeside();
    const mayTry = this.admits(nowMs) || (this.#trial !== null && this.#trial === insteadOf);
    if (this.#openUntilMs !== null && mayTry) this.#trial = attempt;
    return attempt;
  }

  /** Records a request that is sent beside the trial, whose failure does not count. */
  beginBeside(): Attempt {
    return { openings: this.#openings };
  }

  /** Records the first token of an answer. Returns true if this closes the circuit. */
  answered(): boolean {
    const wasOpen = this.#openUntilMs !== null;
    this.#failures = 0;
    this.#openUntilMs = null;
    this.#trial = null;
    return wasOpen;
  }

  /** Records an answer that arrived as far as it was wanted. */
  completed(): void {
    this.#breaks = 0;
    this.#openMs = openMs;
  }

  /**
   * Records the end of a request. The request may have ended without a result, for example because
   * its client left.
   */
  ended(attempt: Attempt): void {
    if (this.#trial === attempt) this.#trial = null;
  }

  /**
   * Records a failure. `inAnswer`: part of the answer had arrived. Returns true if this opens the
   * circuit.
   */
  failed(nowMs: number, attempt: Attempt, inAnswer: boolean): boolean {
    // Late failures of requests that were sent before the circuit opened are ignored.
    if (attempt.openings !== this.#openings) return false;
    if (this.#openUntilMs !== null) {
      if (attempt !== this.#trial) return false;
    } else if (this.#count(inAnswer) < failuresMax) return false;
    this.open(nowMs);
    return true;
  }

  /** Default: the time that doubles. */
  open(nowMs: number, forMs?: number): void {
    this.#openings += 1;
    this.#openUntilMs = nowMs + (forMs ?? this.#openMs);
    if (forMs === undefined) this.#openMs = Math.min(openMsMax, 2 * this.#openMs);
    this.#trial = null;
  }

  #count(inAnswer: boolean): number {
    if (inAnswer) this.#breaks += 1;
    else this.#failures += 1;
    return inAnswer ? this.#breaks : this.#failures;
  }
}
