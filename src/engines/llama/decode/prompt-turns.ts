/**
 * Which prompt has its next chunk evaluated: each step of the decode loop has room for one.
 *
 * Accounts share these turns. Guarantees: an account with n running answers has one turn for n of an account with one, so
 * the more an account runs at once, the less its prompts delay others; among accounts with equally many, and within an
 * account, the prompt whose turn was longest ago is next; every prompt has its turn, whatever others come and go.
 */
export interface Reader {
  readonly seat: { readonly accountId: string };
  /** The number of its last turn. A new one's turn comes before the prompt that had the last. */
  lastTurn: number;
}

export class PromptTurns {
  /** Grows with each turn of an account by what the turn costs it; the lowest is next. Empty while nobody reads. */
  readonly #spent = new Map<string, number>();
  #turns = 0;

  /** For a new reader. */
  get firstTurn(): number {
    return this.#turns - 1;
  }

  /** Undefined if nobody reads. `answers`: how many running answers an account has. */
  next<R extends Reader>(readers: readonly R[], answers: (accountId: string) => number): R | undefined {
    const known = readers.flatMap(({ seat }) => this.#spent.get(seat.accountId) ?? []);
    // Accounts that begin to read are level with the least of those that do: they have nothing saved up.
    const level = known.length === 0 ? 0 : Math.min(...known);
    for (const [account, spent] of this.#spent)
      if (readers.length === 0 || spent < level) this.#spent.delete(account);
    for (const { seat } of readers)
      if (!this.#spent.has(seat.accountId)) this.#spent.set(seat.accountId, level);
    const spentBy = ({ seat }: Reader): number => this.#spent.get(seat.accountId) ?? level;
    let next: R | undefined;
    for (const reader of readers) {
      const less = next === undefined ? -1 : spentBy(reader) - spentBy(next);
      if (next === undefined || less < 0 || (less === 0 && reader.lastTurn < next.lastTurn)) next = reader;
    }
    if (next === undefined) return undefined;
    const { accountId } = next.seat;
    this.#spent.set(accountId, spentBy(next) + answers(accountId));
    next.lastTurn = ++this.#turns;
    return next;
  }
}
