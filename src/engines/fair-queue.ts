/**
 * A waiting room in which accounts take turns.
 *
 * Pure. Guarantees: the next item comes from the account that has waited longest since its last turn, an account's own
 * items come in their order. Holds `max` items; beyond these, as many again from accounts that have nothing waiting
 * yet, so that one account's flood leaves room for the others.
 */
export class FairQueue<Item> {
  readonly #max: number;
  /** In the order of turns. No list is empty. */
  readonly #byAccount = new Map<string, Item[]>();
  #size = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#size;
  }

  /** False where there is no room. */
  push(accountId: string, item: Item): boolean {
    const own = this.#byAccount.get(accountId);
    if (this.#size >= this.#max && (own !== undefined || this.#size >= 2 * this.#max)) return false;
    if (own === undefined) this.#byAccount.set(accountId, [item]);
    else own.push(item);
    this.#size += 1;
    return true;
  }

  /** Back to the front, after a turn that came to nothing; there is always room. */
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

  /** Accounts that have something waiting, in the order of their turns. */
  accounts(): IterableIterator<string> {
    return this.#byAccount.keys();
  }

  /** The next item of one account, which stays. */
  first(accountId: string): Item | undefined {
    return this.#byAccount.get(accountId)?.[0];
  }

  /** Removes the next item of one account, which is its turn. */
  take(accountId: string): Item | undefined {
    const items = this.#byAccount.get(accountId);
    if (items === undefined) return undefined;
    const item = items.shift();
    this.#byAccount.delete(accountId);
    if (items.length > 0) this.#byAccount.set(accountId, items);
    this.#size -= 1;
    return item;
  }

  /** False where the item is not waiting (any more). */
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
