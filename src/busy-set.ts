/**
 * A set of things that come and go all the time, such as running requests.
 *
 * A Set of V8 keeps what has left it. When its table is full it gets another one, and the old
 * table points to the new one. Once an old table lies in the old generation, all later tables
 * survive the collections of the young generation, with all members that they ever had
 * (docs/decisions/0059). Here the chain ends with every copy.
 */

/** Deletions after which a small set is copied. */
const deletionsMin = 16;

/** Has the order of a Set. Members may be deleted during an iteration, but not added. */
export class BusySet<T> {
  #members = new Set<T>();
  #deletions = 0;

  get size(): number {
    return this.#members.size;
  }

  add(member: T): void {
    if (this.#deletions > deletionsMin + this.#members.size) {
      this.#members = new Set(this.#members);
      this.#deletions = 0;
    }
    this.#members.add(member);
  }

  /** Returns whether it was a member. */
  delete(member: T): boolean {
    this.#deletions += 1;
    return this.#members.delete(member);
  }

  [Symbol.iterator](): SetIterator<T> {
    return this.#members.values();
  }
}
