/**
 * Whether an upstream is worth asking, learned from real requests alone: no probe costs anybody a token.
 *
 * Pure; is handed the time. After several failures in a row nothing is sent for a while; then one request tries, and
 * its result decides. Each failed trial doubles the while, up to a minute.
 */

/** Failures in a row. One or two are an accident, and every one of them was somebody's request. */
export const failuresMax = 5;
export const restMs = 5_000;
export const restMsMax = 60_000;

export class Circuit {
  #failures = 0;
  #restMs = restMs;
  /** Nothing is sent before. */
  #openUntilMs: number | null = null;
  #trying = false;

  isOpen(nowMs: number): boolean {
    return this.#openUntilMs !== null && nowMs < this.#openUntilMs;
  }

  /** Null where it is not open. */
  get openUntilMs(): number | null {
    return this.#openUntilMs;
  }

  /** Whether a request may be sent now. */
  admits(nowMs: number): boolean {
    return this.#openUntilMs === null || (nowMs >= this.#openUntilMs && !this.#trying);
  }

  /** A request is sent. True where it is the one that tries; `left` must be called when that has ended. */
  enter(): boolean {
    if (this.#openUntilMs === null) return false;
    this.#trying = true;
    return true;
  }

  /** The upstream answered. True where that closes the circuit. */
  succeeded(): boolean {
    const wasOpen = this.#openUntilMs !== null;
    this.#failures = 0;
    this.#restMs = restMs;
    this.#openUntilMs = null;
    this.#trying = false;
    return wasOpen;
  }

  /** The trial is over, whether or not it told anything of the upstream's health: its client may have left. */
  left(): void {
    this.#trying = false;
  }

  /** True where that opens the circuit, for the first time or anew. */
  failed(nowMs: number): boolean {
    this.#failures += 1;
    if (this.#openUntilMs !== null) {
      // Requests that were sent before it opened fail late; they are no news.
      if (!this.#trying) return false;
      this.#restMs = Math.min(restMsMax, 2 * this.#restMs);
    } else if (this.#failures < failuresMax) return false;
    this.#openUntilMs = nowMs + this.#restMs;
    this.#trying = false;
    return true;
  }
}
