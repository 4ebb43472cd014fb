/**
 * The service's log: JSON lines on stderr, or readable ones where stderr is a terminal. Never a key, never what
 * people or models wrote: only ids, counts, times and reasons are handed to it.
 *
 * What stands in a log of JSON lines is there before the process ends by itself; a process that is killed loses at
 * most the lines of its last turn of the event loop, and none of a warning or worse. Lines that cannot be written are
 * lost, and nothing else is: the next ones are written again.
 */
import type { Writable } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { type Logger, pino, symbols } from "pino";
import { prettyFactory } from "pino-pretty";
import type { LogLevel } from "../config/load.ts";

export function createLogger(level: LogLevel, stderr: Writable & { isTTY?: boolean }): Logger {
  const options = { level, base: null, redact: ["authorization", "headers.authorization", "key"] };
  if (stderr.isTTY !== true) return pino(options, new TurnWriter(stderr));
  const readable = prettyFactory({
    colorize: true,
    hideObject: true,
    messageFormat: terminalText,
    translateTime: "SYS:HH:MM:ss",
  });
  // Not by the stream that pino-pretty offers: it ends at the first line that cannot be written.
  return pino(options, { write: (line: string) => stderr.write(readable(line)) });
}

const warnLevel = 40;

/** Writes the lines of one turn of the event loop together: one system call for each cost a request 2 % of its time. */
class TurnWriter {
  /** Asks pino for `lastLevel`. */
  readonly [symbols.needsMetadataGsym] = true;
  /** Of the line that is being written. */
  lastLevel = 0;
  readonly #to: Writable;
  #lines = "";

  constructor(to: Writable) {
    this.#to = to;
  }

  write(line: string): void {
    if (this.#lines === "") setImmediate(() => this.#flush());
    this.#lines += line;
    if (this.lastLevel >= warnLevel) this.#flush();
  }

  #flush(): void {
    if (this.#lines !== "") this.#to.write(this.#lines);
    this.#lines = "";
  }
}

type Fields = Record<string, unknown>;

/** What stands after time and level; the same fields as in JSON, as short as a person needs them. */
export function terminalText(line: Fields): string {
  const { level: _level, time: _time, msg, err, ...fields } = line;
  const isRequest = "method" in fields && "durationMs" in fields;
  const parts = isRequest ? requestParts(fields) : Object.entries(fields).map(field);
  // A native library's line or an upstream's error must not paint on the terminal.
  return stripVTControlCharacters([[String(msg), ...parts].join("  "), ...errorLines(err)].join("\n"));
}

function requestParts(fields: Fields): string[] {
  const { method: _method, path: _path, status: _status, keyId: _keyId, requestId, ...rest } = fields;
  const { account, model, code, ending, promptTokens, cachedTokens, completionTokens, ...others } = rest;
  const { reasoningTokens, credits, durationMs, firstTokenMs, ...more } = others;
  const parts: string[] = [];
  if (account !== undefined) parts.push(String(account));
  if (model !== undefined) parts.push(String(model));
  if (promptTokens !== undefined) {
    const cached = cachedTokens === 0 ? "" : ` (${cachedTokens} cached)`;
    const reasoning = reasoningTokens === undefined ? "" : ` (${reasoningTokens} reasoning)`;
    parts.push(`${promptTokens}${cached} + ${completionTokens}${reasoning} tokens`, `${credits} credits`);
  }
  if (ending !== undefined) parts.push(String(ending));
  if (code !== undefined) parts.push(String(code));
  const first = firstTokenMs === undefined ? "" : `, first token ${firstTokenMs} ms`;
  parts.push(`${durationMs} ms${first}`, ...Object.entries(more).map(field));
  // Long, and of use only where somebody may ask about it: callers have it in a header.
  if (code !== undefined) parts.push(`${requestId}`);
  return parts;
}

function field([name, value]: [string, unknown]): string {
  return `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`;
}

/** Only defects are logged with their error. */
function errorLines(err: unknown): string[] {
  if (err === undefined) return [];
  const stack = typeof err === "object" && err !== null && "stack" in err ? err.stack : JSON.stringify(err);
  return String(stack).split("\n");
}
