/**
 * Finds out when the credits of an account or the budget of a key become low. Pure.
 *
 * Compares what is left before and after each operation, so no state is stored. A threshold is an
 * event when it is reached. A grant, a new window or a change of an amount that brings the share
 * below it arms it again. What is left counts in whole credits, as holders see it.
 *
 * The share of a window is what is spent of its grant. The share of additional credits compares
 * what is left of all of them with the amount of the grant that is spent last, because used-up
 * grants close and leave the row. If all are closed, every threshold is reached.
 */
import { type MicroCredits, microPerCredit } from "../units.ts";
import type { EventData, EventSettings, EventType } from "./events.ts";
import { additionalOf, remainingOf } from "./grants.ts";
import { rollBudget } from "./key-budget.ts";
import type { AccountRow, KeyRow } from "./rows.ts";
import type { Times } from "./snapshot.ts";

/** How much is left, and of how much. */
interface Share {
  leftMicro: MicroCredits;
  ofMicro: MicroCredits;
}

/** The number of thresholds that each share has reached, and whether nothing is left at all. */
interface Mark {
  base: number;
  overage: number;
  additional: number;
  isExhausted: boolean;
}

type Tell = (type: EventType, data: EventData) => void;

export class BalanceWatch {
  readonly #percents: readonly number[];
  readonly #marks = new Map<string, Mark>();
  /** Keys with a budget, as they were at the last look. */
  readonly #keys = new Map<string, KeyRow>();
  /** Keys that the present operation may have changed. */
  readonly #touched = new Set<KeyRow>();

  constructor({ thresholdPercents }: EventSettings) {
    this.#percents = thresholdPercents;
  }

  /** Remembers an account as it was read. */
  begin(account: AccountRow): void {
    this.#marks.set(account.id, this.#markOf(account));
  }

  /** Remembers a key before it changes. */
  touch(key: KeyRow): void {
    if (this.#touched.has(key)) return;
    this.#touched.add(key);
    if (!this.#keys.has(key.id)) this.#keys.set(key.id, { ...key });
  }

  /** Reports what became low since the last look. A new account is only remembered. */
  look(account: AccountRow, times: Times, tell: Tell): void {
    const before = this.#marks.get(account.id);
    if (account.state !== "closed") {
      const after = this.#markOf(account);
      this.#marks.set(account.id, after);
      if (before !== undefined) this.#compare(account, before, after, tell);
    }
    for (const key of this.#touched) if (key.account === account.id) this.#lookAtKey(key, times, tell);
    this.#touched.clear();
  }

  #compare(account: AccountRow, before: Mark, after: Mark, tell: Tell): void {
    for (const scope of ["base", "overage", "additional"] as const)
      this.#tellBetween(before[scope], after[scope], (percent) =>
        tell("balance.low", { scope, percent, ...fieldsOf(shareOf(account, scope)) }),
      );
    if (after.isExhausted && !before.isExhausted) tell("balance.exhausted", { left_micro: totalOf(account) });
  }

  #lookAtKey(key: KeyRow, { atMs }: Times, tell: Tell): void {
    const before = this.#keys.get(key.id);
    const after = { ...key };
    this.#keys.set(key.id, after);
    if (before === undefined || key.budgetMicro === null || key.revokedMs !== null) return;
    // Requests of people change the key of a front end without its account, so it has no events.
    if (key.actsFor !== null) return;
    // Both in the window of this time. A refused request has not rolled the row of the key.
    rollBudget(before, atMs);
    rollBudget(after, atMs);

    const share = budgetShareOf(after);
    this.#tellBetween(this.#levelOf(budgetShareOf(before)), this.#levelOf(share), (percent) =>
      tell("balance.low", { scope: "key", key: key.id, percent, ...fieldsOf(share) }),
    );
  }

  #tellBetween(before: number, after: number, tell: (percent: number) => void): void {
    for (const percent of this.#percents.slice(before, Math.max(before, after))) tell(percent);
  }

  #markOf(account: AccountRow): Mark {
    const { additional, later } = account;
    const hasAdditional = additional.length + later.count > 0;
    return {
      base: this.#levelOf(shareOf(account, "base")),
      overage: this.#levelOf(shareOf(account, "overage")),
      additional: hasAdditional ? this.#levelOf(shareOf(account, "additional")) : this.#percents.length,
      isExhausted: totalOf(account) < microPerCredit,
    };
  }

  #levelOf({ leftMicro, ofMicro }: Share): number {
    if (ofMicro <= 0) return 0;
    const wholeMicro = leftMicro - (leftMicro % microPerCredit);
    const above = this.#percents.findIndex((percent) => wholeMicro > partOf(ofMicro, 100 - percent));
    return above === -1 ? this.#percents.length : above;
  }
}

/** Returns whole micro-credits, rounded down, without a product beyond 2^53. */
function partOf(amountMicro: MicroCredits, percent: number): MicroCredits {
  const rest = amountMicro % 100;
  return ((amountMicro - rest) / 100) * percent + Math.floor((rest * percent) / 100);
}

function shareOf(account: AccountRow, scope: "base" | "overage" | "additional"): Share {
  const none = { leftMicro: 0, ofMicro: 0 };
  if (scope !== "additional") {
    const grant = account[scope];
    return grant === null ? none : { leftMicro: remainingOf(grant), ofMicro: grant.amountMicro };
  }
  // More grants than the row has are open: not low.
  const last = account.later.count > 0 ? undefined : account.additional.at(-1);
  return last === undefined ? none : { leftMicro: additionalOf(account), ofMicro: last.amountMicro };
}

function totalOf(account: AccountRow): MicroCredits {
  const ofWindow = (grant: AccountRow["base"]) => (grant === null ? 0 : remainingOf(grant));
  return ofWindow(account.base) + ofWindow(account.overage) + additionalOf(account);
}

function budgetShareOf({ budgetMicro, budgetSpentMicro }: KeyRow): Share {
  const ofMicro = budgetMicro ?? 0;
  return { leftMicro: Math.max(0, ofMicro - (budgetSpentMicro ?? 0)), ofMicro };
}

function fieldsOf({ leftMicro, ofMicro }: Share): EventData {
  return { left_micro: leftMicro, of_micro: ofMicro };
}
