/**
 * Shows the progress of a download. On a terminal it is a bar that is redrawn in place and fits
 * its width. Elsewhere (a log file, a service manager) it is a line at every tenth of the file,
 * and at least every five seconds.
 *
 * It is our own code because an adapter to a general progress bar would be as long.
 */

import { visibleText } from "../visible-text.ts";

export interface Progress {
  fileName: string;
  receivedBytes: number;
  /** Undefined if the server does not send it. */
  totalBytes: number | undefined;
}

/** The functions are called often and synchronously, and must not throw. */
export interface FetchProgress {
  received(progress: Progress): void;
  /** Shows the operator one sentence about a failure or the next step. */
  note(text: string): void;
}

/** The part of `process.stderr` that is used. */
export interface ProgressStream {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

interface ProgressRenderer extends FetchProgress {
  /** Ends the current line. Callers call it before they write to the stream. */
  end(): void;
}

const redrawMs = 100;
const quietMs = 5_000;
const barWidthMax = 30;
/** Time over which the rate is averaged. */
const rateWindowMs = 4_000;

export function createProgressRenderer(
  stream: ProgressStream,
  now: () => number = () => performance.now(),
): ProgressRenderer {
  return stream.isTTY === true ? barOn(stream, now) : linesOn(stream, now);
}

/** Bytes per second over the last few seconds of one file. */
class Rate {
  #fileName = "";
  #samples: { atMs: number; bytes: number }[] = [];

  /** Returns true for the first report of a file. */
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

function barOn(stream: ProgressStream, now: () => number): ProgressRenderer {
  const rate = new Rate();
  let drawnAtMs = Number.NEGATIVE_INFINITY;
  let open = false;

  function end(): void {
    if (open) stream.write("\n");
    open = false;
  }
  return {
    received(progress) {
      const atMs = now();
      const begins = rate.add(progress, atMs);
      const done = progress.receivedBytes === progress.totalBytes;
      if (!begins && !done && atMs - drawnAtMs < redrawMs) return;
      drawnAtMs = atMs;
      open = true;
      // Writes over the line and clears the rest, which does not flicker. With a full last column
      // the line would wrap.
      const line = barLine(progress, rate.bytesPerSecond, (stream.columns ?? 80) - 1);
      stream.write(`\r${line}\x1b[K`);
      if (done) end();
    },
    note(text) {
      end();
      stream.write(`${visibleText(text)}\n`);
    },
    end,
  };
}

/** Returns a line with as much as fits: first the numbers, then the file's name, then the bar. */
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

function linesOn(stream: ProgressStream, now: () => number): ProgressRenderer {
  const rate = new Rate();
  let writtenAtMs = 0;
  let writtenTenth = 0;
  return {
    received(progress) {
      const { fileName, receivedBytes, totalBytes } = progress;
      const atMs = now();
      const begins = rate.add(progress, atMs);
      const tenth = totalBytes ? Math.floor((receivedBytes * 10) / totalBytes) : 0;
      if (!begins && tenth === writtenTenth && atMs - writtenAtMs < quietMs) return;
      writtenAtMs = atMs;
      writtenTenth = tenth;
      const size =
        totalBytes === undefined
          ? ""
          : ` of ${megabytes(totalBytes)} (${shareOf(receivedBytes, totalBytes)})`;
      stream.write(`downloading ${fileName}: ${megabytes(receivedBytes)}${size}\n`);
    },
    note: (text) => stream.write(`${visibleText(text)}\n`),
    end() {},
  };
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

/** Formats a size in units of 1,000,000 bytes. */
export function megabytes(bytes: number): string {
  const value = bytes / 1_000_000;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} MB`;
}
