/**
 * The log of the service, and the lines of the public listener in it. JSON lines on stderr, or
 * readable lines if stderr is a terminal. It has ids, counts, times and reasons, but no keys and
 * no text of people or models.
 *
 * JSON lines are written before the process exits. A process that is killed loses at most the
 * lines of its last turn of the event loop, and no warning or error. A line that cannot be written
 * is lost, and the following lines are written.
 */
import type { Writable } from "node:stream";
import { type Logger, type LoggerOptions, pino, symbols } from "pino";
import { prettyFactory } from "pino-pretty";
import type { LogLevel } from "../config/load.ts";
import { visibleLine } from "../visible-text.ts";
import type { RecentErrors } from "./recent-errors.ts";

export function createLogger(
  level: LogLevel,
  stderr: Writable & { isTTY?: boolean },
  recent: RecentErrors | null = null,
  worker: number | null = null,
): Logger {
  const options: LoggerOptions = {
    level,
    base: worker === null ? null : { worker },
    redact: ["authorization", "headers.authorization", "key"],
    hooks: {
      logMethod(line, write, level) {
        recent?.logged(level, line);
        write.apply(this, line);
      },
    },
  };
  if (stderr.isTTY !== true) return pino(options, new TurnWriter(stderr));
  const readable = prettyFactory({
    colorize: true,
    hideObject: true,
    messageFormat: terminalText,
    translateTime: "SYS:HH:MM:ss",
  });
  // The stream of pino-pretty is not used, because it ends at the first line that cannot be
  // written.
  return pino(options, { write: (line: string) => stderr.write(readable(line)) });
}

const warnLevel = 40;
/** More than this does not wait for a reader of the log that is slow or stands. */
const waitingBytesMax = 8 * 1024 * 1024;

/**
 * Writes the lines of one turn of the event loop together. A system call for each line cost 2 % of
 * a request's time.
 */
class TurnWriter {
  /** Makes pino set `lastLevel`. */
  readonly [symbols.needsMetadataGsym] = true;
  /** Level of the line that is being written. */
  lastLevel = 0;
  readonly #to: Writable;
  #lines = "";
  /** Lines that had no room since the last one that was written. */
  #lost = 0;

  constructor(to: Writable) {
    this.#to = to;
  }

  write(line: string): void {
    if (this.#lines === "") setImmediate(() => this.#flush());
    // In JSON, text of others stands in strings, so its escapes are read as the same text.
    this.#lines += `${visibleLine(line.slice(0, -1))}\n`;
    if (this.lastLevel >= warnLevel) this.#flush();
  }

  #flush(): void {
    const lines = this.#lines;
    this.#lines = "";
    if (lines === "") return;
    if (this.#to.writableLength > waitingBytesMax) {
      this.#lost += lines.split("\n").length - 1;
      return;
    }
    const lost = this.#lost;
    this.#lost = 0;
    const msg = `${lost} lines of the log are lost: its reader was too slow`;
    const first = lost === 0 ? "" : `${JSON.stringify({ level: warnLevel, time: Date.now(), msg })}\n`;
    this.#to.write(first + lines);
  }
}

type Fields = Record<string, unknown>;

/** Returns the message and the fields of a log line for the terminal, without time and level. */
export function terminalText(line: Fields): string {
  const { level: _level, time: _time, msg, err, ...fields } = line;
  const isRequest = "method" in fields && "durationMs" in fields;
  const parts = isRequest ? requestParts(fields) : Object.entries(fields).map(field);
  // Text of a native library or an upstream may contain control characters.
  return [[String(msg), ...parts].join("  "), ...errorLines(err)].map(visibleLine).join("\n");
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
  // The id is long, and only of use if the caller, who has it in a header, asks about the request.
  if (code !== undefined) parts.push(`${requestId}`);
  return parts;
}

function field([name, value]: [string, unknown]): string {
  return `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`;
}

/** Returns the stack. Only defects are logged with their error. */
function errorLines(err: unknown): string[] {
  if (err === undefined) return [];
  const stack = typeof err === "object" && err !== null && "stack" in err ? err.stack : JSON.stringify(err);
  return String(stack).split("\n");
}
