/**
 * Progress of a download. The functions are called often and synchronously, and must not throw.
 */

export interface Progress {
  fileName: string;
  receivedBytes: number;
  /** Undefined if the server does not send it. */
  totalBytes: number | undefined;
}

export interface FetchProgress {
  received(progress: Progress): void;
  /** Shows the operator one sentence about a failure or the next step. */
  note(text: string): void;
}

/** Formats a size in units of 1,000,000 bytes. */
export function megabytes(bytes: number): string {
  const value = bytes / 1_000_000;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} MB`;
}
