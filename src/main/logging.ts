/**
 * The service's log: JSON lines on stderr, or readable ones where stderr is a terminal. Never a key, never what
 * people or models wrote: only ids, counts, times and reasons are handed to it.
 */
import type { Writable } from "node:stream";
import { type Logger, pino } from "pino";
import pretty from "pino-pretty";
import type { LogLevel } from "../config.ts";

export function createLogger(level: LogLevel, stderr: Writable & { isTTY?: boolean }): Logger {
  const options = { level, base: null, redact: ["authorization", "headers.authorization", "key"] };
  if (stderr.isTTY !== true) return pino(options, stderr);
  return pino(
    options,
    pretty({
      destination: stderr,
      colorize: true,
      singleLine: true,
      translateTime: "SYS:HH:MM:ss",
      sync: true,
    }),
  );
}
