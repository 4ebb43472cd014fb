/**
 * The last warnings and errors of the log, so that operators see them without the log.
 *
 * Contains what the log contains, so no key, prompt or answer, and no stack. Lines that repeat are
 * counted. Guarantees at most `errorsMax` lines.
 */
import { messageOf } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { visibleLine } from "../visible-text.ts";

/** At most this many lines are kept. */
const errorsMax = 100;
const messageCharactersMax = 500;
const warnLevel = 40;
const errorLevel = 50;

export interface RecentError {
  /** Names the line, for pages. Of another process it is another one. */
  id: string;
  level: "warn" | "error";
  message: string;
  code: string | null;
  /** Of the last such line. */
  requestId: string | null;
  model: string | null;
  count: number;
  firstMs: EpochMs;
  lastMs: EpochMs;
}

export class RecentErrors {
  /** By level, code, model and message. Newest last. */
  readonly #errors = new Map<string, RecentError>();
  #count = 0;

  /** Takes the arguments of a line of the log. */
  logged(level: number, [first, text]: readonly unknown[]): void {
    if (level < warnLevel) return;
    const fields = new Map<string, unknown>(
      typeof first === "object" && first !== null ? Object.entries(first) : [],
    );
    const said = typeof first === "string" ? first : String(text ?? "");
    const why = fields.get("reason") ?? fields.get("detail") ?? fields.get("err");
    const reason = why === undefined ? "" : `: ${messageOf(why)}`;
    const message = visibleLine((said + reason).slice(0, messageCharactersMax));
    const known = level >= errorLevel ? ("error" as const) : ("warn" as const);
    const code = textOrNull(fields.get("code"));
    const model = textOrNull(fields.get("model"));
    const key = JSON.stringify([known, code, model, message]);
    const before = this.#errors.get(key);
    this.#errors.delete(key);
    const lastMs = Date.now();
    this.#count += 1;
    this.#errors.set(key, {
      id: before?.id ?? `${process.pid}-${this.#count}`,
      level: known,
      message,
      code,
      model,
      requestId: textOrNull(fields.get("requestId")),
      count: (before?.count ?? 0) + 1,
      firstMs: before?.firstMs ?? lastMs,
      lastMs,
    });
    if (this.#errors.size <= errorsMax) return;
    const [oldest] = this.#errors.keys();
    if (oldest !== undefined) this.#errors.delete(oldest);
  }

  /** Newest first. */
  list(): RecentError[] {
    return [...this.#errors.values()].reverse();
  }
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}
