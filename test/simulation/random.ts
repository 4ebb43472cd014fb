/** Random decisions of a simulated world, from its seed. */
import { randomFrom } from "../fixtures/random.ts";

export class Random {
  /** Returns a number from 0 (included) to 1. */
  readonly next: () => number;

  constructor(seed: number) {
    this.next = randomFrom(seed);
  }

  /** Returns a whole number from `min` to `max`, both included. */
  whole(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** Returns a duration that is usually short and sometimes up to twenty times as long. */
  delay(usualMs: number): number {
    const share = this.next();
    return usualMs * (share < 0.95 ? share : 1 + 19 * this.next());
  }

  pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.next() * items.length)];
    if (item === undefined) throw new Error("there is nothing to pick from");
    return item;
  }

  /** Picks the name of a weight. */
  weighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
    const names = Object.keys(weights) as Name[];
    const total = names.reduce((sum, name) => sum + weights[name], 0);
    let rest = this.next() * total;
    for (const name of names) {
      rest -= weights[name];
      if (rest < 0) return name;
    }
    throw new Error("no weight is positive");
  }

  /** Returns a generator for a part of the world. Parts do not shift the numbers of each other. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 4_294_967_296));
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.alloc(length);
    for (let at = 0; at < length; at += 1) bytes[at] = Math.floor(this.next() * 256);
    return bytes;
  }
}
