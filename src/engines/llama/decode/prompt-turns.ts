/**
 * Chooses the prompt whose next chunk is evaluated. Each step of the decode loop has room for one
 * chunk.
 *
 * Guarantees: an account with n running answers gets one turn for n turns of an account with one,
 * so more answers of one account delay others less. Among equal accounts, and within an account,
 * the prompt with the oldest turn is next. Every prompt gets its turn, whatever jobs arrive and
 * end.
 */
interface PromptJob {
  readonly lease: { readonly accountId: string };
  /** Number of its last turn. A new prompt goes before the prompt that had the last turn. */
  lastTurn: number;
}

export class PromptTurns {
  /** Cost of each account's turns so far. The lowest is next. Empty while there are no prompts. */
  readonly #spent = new Map<string, number>();
  #turns = 0;

  /** `lastTurn` of a new prompt. */
  get firstTurn(): number {
    return this.#turns - 1;
  }

  /** `answers` returns the number of an account's running answers. */
  next<R extends PromptJob>(prefilling: readonly R[], answers: (accountId: string) => number): R | undefined {
    const known = prefilling.flatMap(({ lease }) => this.#spent.get(lease.accountId) ?? []);
    // A new account starts at the lowest cost: it has saved up nothing.
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
