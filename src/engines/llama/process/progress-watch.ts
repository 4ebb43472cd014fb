/**
 * Detects that due work makes no progress.
 *
 * Guarantees: `stalled` is called once, after work has been due for `boundMs` to `1.25 * boundMs`
 * without progress, and never while no work is due. If this process itself was suspended or
 * starved, the pause does not count: time is measured in ticks, and a late tick counts as one.
 */
interface ProgressWatchOptions {
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

  /** Records progress. */
  heard(): void {
    this.#silentTicks = 0;
    this.look();
  }

  /** Call this whenever work may have become due or not due. */
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
    // The first tick may follow right after the last progress.
    if (this.#silentTicks <= ticks) return;
    this.stop();
    this.#options.stalled();
  }
}
