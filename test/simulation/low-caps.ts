/**
 * Checks the events of low caps after each commit, with caps of the naive ledger: a threshold that
 * an operation reaches is one event. Caps of periods below a day and keys of front ends have none.
 */
import assert from "node:assert/strict";
import type { EventFact } from "../../src/ledger/events.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import { isSameCap, type NaiveCap, type NaiveSpending, unspentOf } from "../fixtures/naive-caps.ts";
import { levelOf } from "../fixtures/naive-events.ts";
import type { NaiveLedger } from "../fixtures/naive-ledger.ts";

/** What was counted at the last look, and the caps that held then. */
interface Seen {
  spending: NaiveSpending;
  caps: readonly NaiveCap[];
}

export class LowCaps {
  /** By the key, or the account. */
  readonly #seen = new Map<string, Seen>();
  #expected: string[] = [];
  #read = 0;

  /** Called before a commit: a version of a plan that came since the last one tells nothing. */
  begin(naive: NaiveLedger, accounts: Iterable<string>, atMs: number): void {
    for (const id of accounts) {
      const account = naive.accounts.get(id);
      if (account === undefined || account.state === "closed") continue;
      const caps = naive.capsOf(account, Math.max(atMs, account.at));
      this.#seen.set(`account ${id}`, { spending: { counted: account.spending.counted }, caps });
    }
  }

  /** Called after each operation. A new account, or a new key, is only remembered. */
  look(
    naive: NaiveLedger,
    operation: Operation,
    { atMs, percents }: { atMs: number; percents: readonly number[] },
  ): void {
    const account = naive.accounts.get(operation.account);
    if (account === undefined) return;
    const at = Math.max(atMs, account.at);
    const isClosed = account.state === "closed";
    const caps = isClosed ? [] : naive.capsOf(account, at);
    this.#compare(`account ${account.id}`, { spending: account.spending, caps }, at, percents);
    for (const key of naive.keys.values()) {
      if (key.account !== account.id) continue;
      const tells = !key.isRevoked && key.actsFor === null;
      this.#compare(`key ${key.id}`, key, at, tells ? percents : []);
    }
  }

  #compare(whose: string, { spending, caps }: Seen, at: number, percents: readonly number[]): void {
    const before = this.#seen.get(whose);
    this.#seen.set(whose, { spending: { counted: spending.counted }, caps });
    if (before === undefined) return;
    for (const cap of caps) {
      if (cap.every.startsWith("PT")) continue;
      const earlier = before.caps.find((each) => isSameCap(each, cap));
      // Both at this time: a cap that refills is full.
      const from = earlier === undefined ? 0 : levelIn(before.spending, earlier, at, percents);
      const to = levelIn(spending, cap, at, percents);
      for (const percent of percents.slice(from, Math.max(from, to)))
        this.#expected.push(`${whose} ${cap.name} ${percent}`);
    }
  }

  /** Called after each commit, with all events of the ledger. */
  check(events: readonly EventFact[]): void {
    const told = events.slice(this.#read).filter(({ data: { scope } }) => scope === "cap");
    this.#read = events.length;
    const lines = told.map(({ account, data: { key, cap, percent } }) =>
      [key === undefined ? `account ${account}` : `key ${key}`, cap, percent].join(" "),
    );
    assert.deepEqual(lines.toSorted(), this.#expected.toSorted(), "events of low caps");
    this.#expected = [];
  }
}

function levelIn(spending: NaiveSpending, cap: NaiveCap, at: number, percents: readonly number[]): number {
  const spent = cap.amount - unspentOf(spending, cap, at);
  return levelOf({ amount: BigInt(cap.amount), spent: BigInt(spent) }, percents);
}
