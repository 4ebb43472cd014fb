/** What a fetch tells whoever watches it. Called often and synchronously; must not throw. */

export interface Progress {
  fileName: string;
  receivedBytes: number;
  /** Absent where the server does not say. */
  totalBytes: number | undefined;
}

export interface FetchProgress {
  received(progress: Progress): void;
  /** One sentence about what happens next or went wrong; for the operator. */
  note(text: string): void;
}

/** Megabytes as disks and browsers count them. */
export function megabytes(bytes: number): string {
  const value = bytes / 1_000_000;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} MB`;
}
