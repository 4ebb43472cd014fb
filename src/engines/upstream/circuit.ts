/**
 * Whether an upstream is worth asking, learned from real requests alone: no probe costs anybody a token.
 *
 * Pure; is handed the time. After several failures in a row nothing is sent for a while; then one request tries, and
 * its result decides. Failures before the first token are forgotten with any first token, answers that break off
 * behind it only with a whole answer. Each time that it opens, until there is a whole answer, doubles the while, up to a
 * minute.
 */

/** Failures in a row. One or two are an accident, and every one of them was somebody's request. */
export const failuresMax = 5;
export const coolDownMs = 5_000;
export const coolDownMsMax = 60_000;

/** One request that was sent, as the circuit knows it. */
export interface Attempt {
  /** How often the circuit had opened by then. */
  readonly openings: number;
}

export class Circuit {
  /** Before anything of an answer had come. */
  #failures = 0;
  /** In the middle of an answer. */
  #breaks = 0;
  /** How long the next rest is. */
  #coolDownMs = coolDownMs;
  /** Nothing is sent before. */
  #openUntilMs: number | null = null;
  #openings = 0;
  /** The request that tries, while it does. */
  #trial: Attempt | null = null;

  isOpen(nowMs: number): boolean {
    return this.#openUntilMs !== null && nowMs < this.#openUntilMs;
  }

  /** Null where it is not open. */
  get openUntilMs(): number | null {
    return this.#openUntilMs;
  }

  /** Whether a request may be sent now. */
  admits(nowMs: number): boolean {
    return this.#openUntilMs === null || (nowMs >= this.#openUntilMs && this.#trial === null);
  }

  /**
   * A request is sent; `left` must be called when that has ended. `insteadOf`: it was sent before under that attempt, and
   * goes on as the one that tries where it was that.
   */
  enter(nowMs: number, insteadOf: Attempt | null): Attempt {
    const attempt: Attempt = { openings: this.#openings };
    const mayTry = this.admits(nowMs) || (this.#trial !== null && this.#trial === insteadOf);
    if (this.#openUntilMs !== null && mayTry) this.#trial = attempt;
    return attempt;
  }

  /** The first of an answer came. True where that closes the circuit. */
  answered(): boolean {
    const wasOpen = this.#openUntilMs !== null;
    this.#failures = 0;
    this.#openUntilMs = null;
    this.#trial = null;
    return wasOpen;
  }

  /** An answer came as far as it was wanted. */
  completed(): void {
    this.#breaks = 0;
    this.#coolDownMs = coolDownMs;
  }

  /** The request is over, whether or not it told anything of the upstream's health: its client may have left. */
  left(attempt: Attempt): void {
    if (this.#trial === attempt) this.#trial = null;
  }

  /** `inAnswer`: something of the answer had come. True where that opens the circuit, for the first time or anew. */
  failed(nowMs: number, attempt: Attempt, inAnswer: boolean): boolean {
    // Requests that were sent before it opened fail late; they are no news.
    if (attempt.openings !== this.#openings) return false;
    if (this.#openUntilMs !== null) {
      if (attempt !== this.#trial) return false;
    } else if (this.#count(inAnswer) < failuresMax) return false;
    this.#openings += 1;
    this.#openUntilMs = nowMs + this.#coolDownMs;
    this.#coolDownMs = Math.min(coolDownMsMax, 2 * this.#coolDownMs);
    this.#trial = null;
    return true;
  }

  #count(inAnswer: boolean): number {
    if (inAnswer) this.#breaks += 1;
    else this.#failures += 1;
    return inAnswer ? this.#breaks : this.#failures;
  }
}
