/**
 * Shows a fetch to whoever started the service: on a terminal a bar that is redrawn in place and fits its width,
 * elsewhere (a log file, a service manager) plain lines, at every tenth or after five quiet seconds. Writes to
 * the stream that it is given, and only there. Our own: it is no longer than what would adapt a general progress bar.
 */
import { type FetchProgress, megabytes, type Progress } from "./progress.ts";

/** What is needed of `process.stderr`. */
export interface ProgressStream {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

export interface ProgressRenderer extends FetchProgress {
  /** Ends the line in progress, if there is one. Whoever writes to the stream calls it first. */
  end(): void;
}

const redrawMs = 100;
const quietMs = 5_000;
const barWidthMax = 30;
/** How far back the rate looks. */
const rateWindowMs = 4_000;

export function createProgressRenderer(
  stream: ProgressStream,
  now: () => number = () => performance.now(),
): ProgressRenderer {
  return stream.isTTY === true ? new Bar(stream, now) : new Lines(stream, now);
}

/** Bytes per second over the last few seconds, per file. */
class Rate {
  #fileName = "";
  #samples: { atMs: number; bytes: number }[] = [];

  /** True for the first report of a file. */
  add(progress: Progress, atMs: number): boolean {
    const begins =
      progress.fileName !== this.#fileName || progress.receivedBytes < (this.#samples.at(-1)?.bytes ?? 0);
    if (begins) this.#samples = [];
    this.#fileName = progress.fileName;
    this.#samples.push({ atMs, bytes: progress.receivedBytes });
    while (this.#samples.length > 2 && atMs - (this.#samples[1]?.atMs ?? atMs) > rateWindowMs)
      this.#samples.shift();
    return begins;
  }

  get bytesPerSecond(): number | undefined {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (first === undefined || last === undefined || last.atMs - first.atMs < 200) return undefined;
    return ((last.bytes - first.bytes) * 1000) / (last.atMs - first.atMs);
  }
}

class Bar implements ProgressRenderer {
  readonly #stream: ProgressStream;
  readonly #now: () => number;
  readonly #rate = new Rate();
  #drawnAtMs = Number.NEGATIVE_INFINITY;
  #open = false;

  constructor(stream: ProgressStream, now: () => number) {
    this.#stream = stream;
    this.#now = now;
  }

  received(progress: Progress): void {
    const atMs = this.#now();
    const begins = this.#rate.add(progress, atMs);
    const done = progress.receivedBytes === progress.totalBytes;
    if (!begins && !done && atMs - this.#drawnAtMs < redrawMs) return;
    this.#drawnAtMs = atMs;
    this.#open = true;
    // To the line's start, write, clear the rest: nothing flickers. The last column stays free, or lines would wrap.
    this.#stream.write(
      `\r${barLine(progress, this.#rate.bytesPerSecond, (this.#stream.columns ?? 80) - 1)}\x1b[K`,
    );
    if (done) this.end();
  }

  note(text: string): void {
    this.end();
    this.#stream.write(`${text}\n`);
  }

  end(): void {
    if (this.#open) this.#stream.write("\n");
    this.#open = false;
  }
}

/** As much as fits: the numbers first, then the file's name, then the bar. */
export function barLine(progress: Progress, bytesPerSecond: number | undefined, width: number): string {
  const { fileName, receivedBytes, totalBytes } = progress;
  const parts = [totalBytes === undefined ? megabytes(receivedBytes) : shareOf(receivedBytes, totalBytes)];
  if (totalBytes !== undefined) parts.push(`${megabytes(receivedBytes)} of ${megabytes(totalBytes)}`);
  if (bytesPerSecond !== undefined) {
    parts.push(`${megabytes(bytesPerSecond)}/s`);
    if (totalBytes !== undefined && bytesPerSecond > 0 && receivedBytes < totalBytes) {
      parts.push(`${duration((totalBytes - receivedBytes) / bytesPerSecond)} left`);
    }
  }
  let line = parts.shift() ?? "";
  for (const part of parts) if (line.length + 2 + part.length <= width) line += `  ${part}`;
  if (fileName.length + 2 + line.length <= width) line = `${fileName}  ${line}`;
  const barWidth = Math.min(barWidthMax, width - line.length - 2);
  if (totalBytes !== undefined && totalBytes > 0 && barWidth >= 8) {
    const filled = Math.min(barWidth, Math.floor((barWidth * receivedBytes) / totalBytes));
    const bar = "█".repeat(filled) + "░".repeat(barWidth - filled);
    const cut = line.startsWith(fileName) ? fileName.length + 2 : 0;
    line = `${line.slice(0, cut)}${bar}  ${line.slice(cut)}`;
  }
  return line.slice(0, Math.max(0, width));
}

class Lines implements ProgressRenderer {
  readonly #stream: ProgressStream;
  readonly #now: () => number;
  readonly #rate = new Rate();
  #writtenAtMs = 0;
  #writtenTenth = 0;

  constructor(stream: ProgressStream, now: () => number) {
    this.#stream = stream;
    this.#now = now;
  }

  received(progress: Progress): void {
    const { fileName, receivedBytes, totalBytes } = progress;
    const atMs = this.#now();
    const begins = this.#rate.add(progress, atMs);
    const tenth =
      totalBytes === undefined || totalBytes === 0 ? 0 : Math.floor((receivedBytes * 10) / totalBytes);
    if (!begins && tenth === this.#writtenTenth && atMs - this.#writtenAtMs < quietMs) return;
    this.#writtenAtMs = atMs;
    this.#writtenTenth = tenth;
    const size =
      totalBytes === undefined ? "" : ` of ${megabytes(totalBytes)} (${shareOf(receivedBytes, totalBytes)})`;
    this.#stream.write(`fetching ${fileName}: ${megabytes(receivedBytes)}${size}\n`);
  }

  note(text: string): void {
    this.#stream.write(`${text}\n`);
  }

  end(): void {}
}

function shareOf(receivedBytes: number, totalBytes: number): string {
  return `${totalBytes === 0 ? 100 : Math.floor((receivedBytes * 100) / totalBytes)} %`;
}

function duration(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
