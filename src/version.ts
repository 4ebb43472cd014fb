/** The version of Inkwell, from package.json, and the date of its release. */
import { readFileSync } from "node:fs";
import { OperatorError } from "./errors.ts";
import type { EpochMs } from "./units.ts";

export const { version }: { version: string } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
);

/** No right clock shows an earlier day. Set with each release. */
const releasedOn = "2026-12-01";

/** Throws an OperatorError if the clock shows a time before this version was released. */
export function requirePossibleClock(clockMs: EpochMs): void {
  if (clockMs >= Date.parse(releasedOn)) return;
  throw new OperatorError(
    `The clock shows ${new Date(clockMs).toISOString()}, but Inkwell ${version} was released on ${releasedOn}. Set the clock and start again. Nothing has been written.`,
  );
}
