/**
 * Checks the events of low budgets of keys after each commit, with budgets of the naive ledger: a
 * threshold that an operation reaches is one event. Keys of front ends have none.
 */
import assert from "node:assert/strict";
import type { EventFact } from "../../src/ledger/events.ts";
import { levelOf } from "../fixtures/naive-events.ts";
import { budgetAt, type NaiveBudget, type NaiveKey } from "../fixtures/naive-keys.ts";

export class LowBudgets {
  /** By key, as it was after the last operation. */
  readonly #budgets = new Map<string, NaiveBudget | null>();
  #expected: string[] = [];
  #seen = 0;

  /**
   * Called after each operation, with the keys of the account. `isIssued`: the operation issues a
   * key, which is only remembered.
   */
  look(
    keys: Iterable<NaiveKey>,
    { isIssued, atMs }: { isIssued: boolean; atMs: number },
    percents: readonly number[],
  ): void {
    for (const key of keys) {
      const isNew = isIssued && !this.#budgets.has(key.id);
      const known = this.#budgets.get(key.id) ?? null;
      // In the window of this time: a budget that refills is full.
      const before = budgetAt({ ...key, budget: known && { ...known } }, atMs);
      const after = budgetAt(key, atMs);
      this.#budgets.set(key.id, after && { ...after });
      if (isNew || after === null || key.isRevoked || key.actsFor !== null) continue;
      const [from, to] = [before, after].map((budget) => (budget === null ? 0 : levelIn(budget, percents)));
      for (const percent of percents.slice(from, Math.max(from ?? 0, to ?? 0)))
        this.#expected.push(`${key.id} ${percent}`);
    }
  }

  /** Called after each commit, with all events of the ledger. */
  check(events: readonly EventFact[]): void {
    const told = events.slice(this.#seen).filter(({ data: { scope } }) => scope === "key");
    this.#seen = events.length;
    const lines = told.map(({ data }) => `${data.key} ${data.percent}`);
    assert.deepEqual(lines.toSorted(), this.#expected.toSorted(), "events of low budgets of keys");
    this.#expected = [];
  }
}

function levelIn({ amount, spent }: NaiveBudget, percents: readonly number[]): number {
  return levelOf({ amount: BigInt(amount), spent: BigInt(spent) }, percents);
}
