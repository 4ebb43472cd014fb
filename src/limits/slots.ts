/**
 * An amount that each key may hold at the same time: streams of a session, bytes of the bodies of
 * an account. A key can also wait for its slot.
 *
 * A key is remembered while it holds something. Each holder is a request or a connection, so their
 * limits bound the memory, and no key can take the slots of another one.
 */
import type { Limit } from "./limits.ts";

export class Slots {
  /** Slots of each key. Can be changed at any time; what is held stays held. */
  max: number;
  readonly #waitingMax: number;
  readonly #held = new Map<string, number>();
  /** Only keys whose slots are all held have a line. */
  readonly #lines = new Map<string, (() => void)[]>();
  #total = 0;

  /** `waiting`: most that wait for slots of one key. */
  constructor(limit: Limit, max = Number(limit.most), waiting?: Limit) {
    this.max = max;
    this.#waitingMax = Number(waiting?.most ?? 0);
  }

  /** Slots that all keys hold. */
  get total(): number {
    return this.#total;
  }

  /** Keys that are remembered. */
  get size(): number {
    return this.#held.size;
  }

  held(key: string): number {
    return this.#held.get(key) ?? 0;
  }

  /** Whether the key may take so many slots now. `max`: the number for this key. */
  fits(key: string, amount = 1, max = this.max): boolean {
    return this.held(key) + amount <= max;
  }

  /** Takes slots. The caller has checked that they are free. */
  take(key: string, amount = 1): void {
    this.#held.set(key, this.held(key) + amount);
    this.#total += amount;
  }

  /** Takes a slot when one is free. Returns null if too many wait for one already. */
  wait(key: string): Promise<void> | null {
    if (this.fits(key)) {
      this.take(key);
      return Promise.resolve();
    }
    const line = this.#lines.get(key) ?? [];
    if (line.length >= this.#waitingMax) return null;
    const { promise, resolve } = Promise.withResolvers<void>();
    line.push(resolve);
    this.#lines.set(key, line);
    return promise;
  }

  /** Gives slots back. Those that wait get them in the order in which they came. */
  release(key: string, amount = 1): void {
    this.#total -= amount;
    const left = this.held(key) - amount;
    if (left > 0) this.#held.set(key, left);
    else this.#held.delete(key);
    const line = this.#lines.get(key);
    if (line === undefined) return;
    while (line.length > 0 && this.fits(key)) {
      this.take(key);
      line.shift()?.();
    }
    if (line.length === 0) this.#lines.delete(key);
  }
}
