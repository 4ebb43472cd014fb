/**
 * Collections for what comes and goes all the time: a queue that is fair between accounts, and a
 * set. Pure.
 */

/** Limit of a queue. A function if it can change while the queue is used. */
export type QueueMax = number | (() => number);

/**
 * A queue in which accounts take turns.
 *
 * Guarantees: the next item comes from the account that has waited longest since its last turn.
 * The items of one account keep their order. The queue holds `max` items. Accounts without a
 * waiting item may add as many again, so that one account's flood leaves room for others.
 */
export class FairQueue<Item> {
  readonly #max: () => number;
  /** Accounts in the order of their turns. No list is empty. */
  readonly #byAccount = new Map<string, Item[]>();
  #size = 0;

  constructor(max: QueueMax) {
    this.#max = typeof max === "number" ? () => max : max;
  }

  get size(): number {
    return this.#size;
  }

  /** Returns false if the queue is full. */
  push(accountId: string, item: Item): boolean {
    const own = this.#byAccount.get(accountId);
    const max = this.#max();
    if (this.#size >= max && (own !== undefined || this.#size >= 2 * max)) return false;
    if (own === undefined) this.#byAccount.set(accountId, [item]);
    else own.push(item);
    this.#size += 1;
    return true;
  }

  /** Puts an item back to the front after an unused turn. This always succeeds. */
  putBack(accountId: string, item: Item): void {
    const others = [...this.#byAccount].filter(([id]) => id !== accountId);
    const own = this.#byAccount.get(accountId) ?? [];
    this.#byAccount.clear();
    this.#byAccount.set(accountId, [item, ...own]);
    for (const [id, items] of others) this.#byAccount.set(id, items);
    this.#size += 1;
  }

  shift(): Item | undefined {
    const [accountId] = this.accounts();
    return accountId === undefined ? undefined : this.take(accountId);
  }

  /** Accounts with waiting items, in the order of their turns. */
  accounts(): IterableIterator<string> {
    return this.#byAccount.keys();
  }

  /** Returns the next item of one account without removing it. */
  first(accountId: string): Item | undefined {
    return this.#byAccount.get(accountId)?.[0];
  }

  /** Removes and returns the next item of one account, which uses its turn. */
  take(accountId: string): Item | undefined {
    const items = this.#byAccount.get(accountId);
    if (items === undefined) return undefined;
    const item = items.shift();
    this.#byAccount.delete(accountId);
    if (items.length > 0) this.#byAccount.set(accountId, items);
    this.#size -= 1;
    return item;
  }

  /** Returns false if the item is not waiting. */
  remove(accountId: string, item: Item): boolean {
    const items = this.#byAccount.get(accountId) ?? [];
    const index = items.indexOf(item);
    if (index < 0) return false;
    items.splice(index, 1);
    if (items.length === 0) this.#byAccount.delete(accountId);
    this.#size -= 1;
    return true;
  }

  takeAll(): Item[] {
    const items = [...this.#byAccount.values()].flat();
    this.#byAccount.clear();
    this.#size = 0;
    return items;
  }
}

/** Deletions after which a small set is copied. */
const deletionsMin = 16;

/**
 * A set of things that come and go all the time, such as running requests. Has the order of a Set.
 * Members may be deleted during an iteration, but not added.
 *
 * A Set of V8 keeps what has left it. When its table is full it gets another one, and the old
 * table points to the new one. Once an old table lies in the old generation, all later tables
 * survive the collections of the young generation, with all members that they ever had
 * (docs/decisions/0061). Here the chain ends with every copy.
 */
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
