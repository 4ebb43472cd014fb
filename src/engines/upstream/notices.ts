/**
 * Oddities of the answers of one server, for the operator. They are shown for an hour after they
 * were last seen.
 */
import type { EngineNotice, NoticeKind } from "../../chat/engine.ts";

const shownMs = 3_600_000;
/** Words of a server are part of the keys. */
const noticesMax = 32;

export class Notices {
  /** By kind and subject. */
  readonly #shown = new Map<string, EngineNotice>();

  /** Returns whether it is new. `subject` distinguishes notices of one kind. */
  add(kind: NoticeKind, message: string, subject = ""): boolean {
    const atMs = Date.now();
    this.#forget(atMs);
    const key = `${kind} ${subject}`;
    const isNew = !this.#shown.has(key);
    if (isNew && this.#shown.size >= noticesMax) return false;
    this.#shown.set(key, { kind, atMs, message });
    return isNew;
  }

  list(): EngineNotice[] {
    this.#forget(Date.now());
    return [...this.#shown.values()];
  }

  clear(): void {
    this.#shown.clear();
  }

  #forget(nowMs: number): void {
    for (const [key, { atMs }] of this.#shown) if (nowMs - atMs > shownMs) this.#shown.delete(key);
  }
}
