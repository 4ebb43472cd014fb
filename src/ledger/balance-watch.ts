/**
 * Finds out when the credits of an account, or what a cap allows, become low. Pure.
 *
 * Compares what is left before and after each operation, so no state is stored. A threshold is an
 * event when it is reached. A grant, a new window or a change of an amount that brings the share
 * below it arms it again. What is left counts in whole credits, as holders see it.
 *
 * The share of a window is what is spent of its grant. The share of additional credits compares
 * what is left of all of them with the amount of the grant that is spent last, because used-up
 * grants close and leave the row. If all are closed, every threshold is reached.
 */
import { dayMs, type EpochMs, type MicroCredits, microPerCredit } from "../units.ts";
import { type Counting, counterAt, type HeldCap, isSameCap } from "./caps.ts";
import type { EventData, EventSettings, EventType } from "./events.ts";
import { additionalOf, remainingOf } from "./grants.ts";
import type { AccountRow, KeyRow } from "./rows.ts";
import type { Times } from "./snapshot.ts";
import { parsePeriod } from "./windows.ts";

/** How much is left, and of how much. */
interface Share {
  leftMicro: MicroCredits;
  ofMicro: MicroCredits;
}

/** What was counted, and the caps that held. */
interface CountedCaps extends Counting {
  caps: readonly HeldCap[];
}

/** The number of thresholds that each share has reached, and whether nothing is left at all. */
interface Mark {
  base: number;
  overage: number;
  additional: number;
  isExhausted: boolean;
  capped: CountedCaps;
}

type Tell = (type: EventType, data: EventData) => void;

export class BalanceWatch {
  readonly #percents: readonly number[];
  readonly #marks = new Map<string, Mark>();
  /** The caps of keys, as they were at the last look. */
  readonly #keys = new Map<string, CountedCaps>();
  /** Keys that the present operation may have changed. */
  readonly #touched = new Set<KeyRow>();

  constructor({ thresholdPercents }: EventSettings) {
    this.#percents = thresholdPercents;
  }

  /** Remembers an account as it was read, with the caps of its plan. */
  begin(account: AccountRow, caps: readonly HeldCap[]): void {
    this.#marks.set(account.id, this.#markOf(account, caps));
  }

  /** Remembers a key before it changes. */
  touch(key: KeyRow): void {
    if (this.#touched.has(key)) return;
    this.#touched.add(key);
    if (!this.#keys.has(key.id)) this.#keys.set(key.id, countedOf(key, key.caps));
  }

  /** Reports what became low since the last look. A new account is only remembered. */
  look(account: AccountRow, caps: readonly HeldCap[], times: Times, tell: Tell): void {
    const before = this.#marks.get(account.id);
    if (account.state !== "closed") {
      const after = this.#markOf(account, caps);
      this.#marks.set(account.id, after);
      if (before !== undefined) {
        this.#compare(account, before, after, tell);
        this.#lookAtCaps(before.capped, after.capped, times, (data) => tell("balance.low", data));
      }
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

  #lookAtKey(key: KeyRow, times: Times, tell: Tell): void {
    const before = this.#keys.get(key.id);
    const after = countedOf(key, key.caps);
    this.#keys.set(key.id, after);
    if (before === undefined || key.revokedMs !== null) return;
    // Requests of people change the key of a front end without its account, so it has no events.
    if (key.actsFor !== null) return;
    this.#lookAtCaps(before, after, times, (data) => tell("balance.low", { key: key.id, ...data }));
  }

  /** Caps of periods below a day have no events: they refill before anybody could act. */
  #lookAtCaps(
    before: CountedCaps,
    after: CountedCaps,
    { atMs }: Times,
    tell: (data: EventData) => void,
  ): void {
    for (const cap of after.caps) {
      if (isShort(cap.every)) continue;
      const earlier = before.caps.find((each) => isSameCap(each, cap));
      const share = capShareOf(after, cap, atMs);
      const level = earlier === undefined ? 0 : this.#levelOf(capShareOf(before, earlier, atMs));
      this.#tellBetween(level, this.#levelOf(share), (percent) =>
        tell({ scope: "cap", cap: cap.name, percent, ...fieldsOf(share) }),
      );
    }
  }

  #tellBetween(before: number, after: number, tell: (percent: number) => void): void {
    for (const percent of this.#percents.slice(before, Math.max(before, after))) tell(percent);
  }

  #markOf(account: AccountRow, caps: readonly HeldCap[]): Mark {
    const { additional, later } = account;
    const hasAdditional = additional.length + later.count > 0;
    return {
      base: this.#levelOf(shareOf(account, "base")),
      overage: this.#levelOf(shareOf(account, "overage")),
      additional: hasAdditional ? this.#levelOf(shareOf(account, "additional")) : this.#percents.length,
      isExhausted: totalOf(account) < microPerCredit,
      capped: countedOf(account, caps),
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

/** Rows change in place. */
function countedOf({ counters, planSinceMs }: Counting, caps: readonly HeldCap[]): CountedCaps {
  return { counters, planSinceMs, caps };
}

function capShareOf(counted: CountedCaps, cap: HeldCap, atMs: EpochMs): Share {
  const { spentMicro } = counterAt(counted, cap, atMs);
  return { leftMicro: Math.max(0, cap.amountMicro - spentMicro), ofMicro: cap.amountMicro };
}

function isShort(every: string): boolean {
  const { months, fixedMs } = parsePeriod(every);
  return months === 0 && fixedMs < dayMs;
}

function fieldsOf({ leftMicro, ofMicro }: Share): EventData {
  return { left_micro: leftMicro, of_micro: ofMicro };
}
