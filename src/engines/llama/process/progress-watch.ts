/**
 * Notices that work which is due makes no progress.
 *
 * Guarantees: `stalled` is called once, when something has been due for `boundMs` without a sign of progress, and at most a
 * quarter of that later; never while nothing is due. A process that was itself held up (suspended, starved) does not take
 * its own absence for the other's: the time is counted in ticks, and one that comes late counts as one.
 * Knows nothing of what is due: it asks.
 */
export interface ProgressWatchOptions {
  boundMs: number;
  isDue: () => boolean;
  stalled: () => void;
}

const ticks = 4;

export class ProgressWatch {
  readonly #options: ProgressWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  #silentTicks = 0;

  constructor(options: ProgressWatchOptions) {
    this.#options = options;
  }

  /** A sign of progress. */
  heard(): void {
    this.#silentTicks = 0;
    this.look();
  }

  /** To be called whenever something may have become due, or due no more. */
  look(): void {
    if (!this.#options.isDue()) this.stop();
    else this.#timer ??= setInterval(() => this.#tick(), this.#options.boundMs / ticks).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#silentTicks = 0;
  }

  #tick(): void {
    this.#silentTicks += 1;
    // The first may have come right after the last sign.
    if (this.#silentTicks <= ticks) return;
    this.stop();
    this.#options.stalled();
  }
}
