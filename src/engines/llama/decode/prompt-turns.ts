/**
 * Which prompt has its next chunk evaluated: each step of the decode loop has room for one.
 *
 * Accounts share these turns. Guarantees: an account with n running answers has one turn for n of an account with one, so
 * the more an account runs at once, the less its prompts delay others; among accounts with equally many, and within an
 * account, the prompt whose turn was longest ago is next; every prompt has its turn, whatever others come and go.
 */
export interface PromptJob {
  readonly lease: { readonly accountId: string };
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
  next<R extends PromptJob>(prefilling: readonly R[], answers: (accountId: string) => number): R | undefined {
    const known = prefilling.flatMap(({ lease }) => this.#spent.get(lease.accountId) ?? []);
    // Accounts that begin to read are level with the least of those that do: they have nothing saved up.
    const level = known.length === 0 ? 0 : Math.min(...known);
    for (const [account, spent] of this.#spent)
      if (prefilling.length === 0 || spent < level) this.#spent.delete(account);
    for (const { lease } of prefilling)
      if (!this.#spent.has(lease.accountId)) this.#spent.set(lease.accountId, level);
    const spentBy = ({ lease }: PromptJob): number => this.#spent.get(lease.accountId) ?? level;
    let next: R | undefined;
    for (const job of prefilling) {
      const less = next === undefined ? -1 : spentBy(job) - spentBy(next);
      if (next === undefined || less < 0 || (less === 0 && job.lastTurn < next.lastTurn)) next = job;
    }
    if (next === undefined) return undefined;
    const { accountId } = next.lease;
    this.#spent.set(accountId, spentBy(next) + answers(accountId));
    next.lastTurn = ++this.#turns;
    return next;
  }
}
