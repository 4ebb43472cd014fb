/**
 * Shows on a terminal that a command still works, once that takes longer than a second: one line,
 * redrawn in place. Elsewhere it writes nothing.
 */
import type { ProgressStream } from "../model-files/progress.ts";

const shownAfterMs = 1_000;
const redrawMs = 100;
const frames = [..."⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"];

export class Spinner {
  readonly #stream: ProgressStream;
  #isWorking = false;
  #isDrawn = false;

  constructor(stream: ProgressStream) {
    this.#stream = stream;
  }

  /** Waits for the work. The text is read at each drawing; that of the outermost work is shown. */
  async during<T>(text: () => string, work: () => Promise<T>): Promise<T> {
    if (this.#isWorking || this.#stream.isTTY !== true) return await work();
    this.#isWorking = true;
    const begunMs = performance.now();
    const timer = setInterval(() => this.#draw(text(), performance.now() - begunMs), redrawMs);
    try {
      return await work();
    } finally {
      clearInterval(timer);
      this.clear();
      this.#isWorking = false;
    }
  }

  /** Removes the line. Callers call it before they write to the terminal. */
  clear(): void {
    if (this.#isDrawn) this.#stream.write("\r\x1b[K");
    this.#isDrawn = false;
  }

  #draw(text: string, ms: number): void {
    if (ms < shownAfterMs) return;
    this.#isDrawn = true;
    const frame = frames[Math.floor(ms / redrawMs) % frames.length];
    // With a full last column the line would wrap.
    const line = `${frame} ${text}, ${Math.floor(ms / 1000)} s`.slice(0, (this.#stream.columns ?? 80) - 1);
    this.#stream.write(`\r${line}\x1b[K`);
  }
}
