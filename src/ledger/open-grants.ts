/**
 * The open grants of one account while they are changed: held, spent, returned and closed.
 *
 * This is the only code that holds, spends and returns credits. A hold takes from open grants and
 * remembers what it took from each. A settlement charges what was taken from closed grants first,
 * then the others in spending order, and gives the rest back to grants that are still open. Pure:
 * only the given account changes, and its grants are replaced, never changed.
 */
import { invariant } from "../errors.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import { type Amounts, freeOf, inSpendingOrder, remainingOf, sumOf } from "./grants.ts";
import {
  type AccountRow,
  type AdditionalGrant,
  type Bucket,
  type BucketAmounts,
  type LaterGrants,
  type Taking,
  windowBuckets,
} from "./rows.ts";
import type { Times } from "./snapshot.ts";

/** The additional grants that are in the row of an account. A commit writes all of them. */
const grantsInRow = 16;

export class OpenGrants {
  readonly #account: AccountRow;
  #later: readonly AdditionalGrant[] | null;

  /** `later`: the grants that are not in the row, or null if they have not been read. */
  constructor(account: AccountRow, later: readonly AdditionalGrant[] | null) {
    this.#account = account;
    // Databases return rows in any order.
    this.#later = account.later.count === 0 ? [] : (later?.toSorted(inSpendingOrder) ?? null);
  }

  /** Null: nothing of them was needed. */
  get later(): readonly AdditionalGrant[] | null {
    return this.#later;
  }

  /** Throws `LaterNeeded` if they have not been read. */
  #all(): readonly AdditionalGrant[] {
    if (this.#later === null) throw new LaterNeeded(this.#account.id);
    return [...this.#account.additional, ...this.#later];
  }

  #set(grants: readonly AdditionalGrant[]): void {
    const sorted = grants.toSorted(inSpendingOrder);
    this.#account.additional = sorted.slice(0, grantsInRow);
    this.#later = sorted.slice(grantsInRow);
    this.#account.later = laterOf(this.#later);
  }

  /** Closes additional grants whose end has come. What is held of them stays with the holds. */
  closeEnded(atMs: EpochMs): void {
    const { additional, later } = this.#account;
    const hasEnded = ({ untilMs }: { untilMs: EpochMs | null }) => untilMs !== null && untilMs <= atMs;
    const isIn = later.untilMs !== null && later.untilMs <= atMs;
    if (!isIn && !additional.some(hasEnded)) return;
    const grants = isIn || later.count > 0 ? this.#all() : additional;
    this.#set(grants.filter((grant) => !hasEnded(grant)));
  }

  /** What can be taken. Nothing of windows of an unreadable plan that have ended. */
  free(times: Times): BucketAmounts {
    return this.#amounts(times, freeOf, this.#account.later.freeMicro);
  }

  /** What could be taken if all running requests ended and used nothing. */
  balance(times: Times): BucketAmounts {
    const { later } = this.#account;
    return this.#amounts(times, remainingOf, later.freeMicro + later.heldMicro);
  }

  ifAllReturns(times: Times): MicroCredits {
    return sumOf(this.balance(times));
  }

  /** `ofLaterMicro`: the sum of the later grants. */
  #amounts({ atMs }: Times, of: (grant: Amounts) => MicroCredits, ofLaterMicro: MicroCredits): BucketAmounts {
    const { base, overage, additional, later } = this.#account;
    const isOpen = ({ untilMs }: { untilMs: EpochMs | null }) => untilMs === null || untilMs > atMs;
    const ofWindow = (grant: AccountRow["base"]) => (grant !== null && grant.untilMs > atMs ? of(grant) : 0);
    let sumMicro = 0;
    if (isOpen(later)) {
      for (const grant of additional) if (isOpen(grant)) sumMicro += of(grant);
      sumMicro += ofLaterMicro;
    } else for (const grant of this.#all()) if (isOpen(grant)) sumMicro += of(grant);
    return { base: ofWindow(base), overage: ofWindow(overage), additional: sumMicro };
  }

  /** Holds up to an amount, or spends one that was not held, in spending order. */
  take(amountMicro: MicroCredits, { atMs }: Times, as: "heldMicro" | "spentMicro"): Taking[] {
    const account = this.#account;
    const takings: Taking[] = [];
    let restMicro = amountMicro;
    const takeFrom = <G extends Amounts & { seq: number }>(grant: G, bucket: Bucket): G => {
      const partMicro = Math.min(restMicro, freeOf(grant));
      if (partMicro === 0) return grant;
      restMicro -= partMicro;
      takings.push({ grant: grant.seq, bucket, amountMicro: partMicro });
      return { ...grant, [as]: grant[as] + partMicro };
    };
    const takeFromAdditional = (grant: AdditionalGrant) => takeFrom(grant, "additional");
    for (const bucket of windowBuckets) {
      const grant = account[bucket];
      if (grant !== null && grant.untilMs > atMs) account[bucket] = takeFrom(grant, bucket);
    }
    if (restMicro > 0 && account.additional.length > 0)
      account.additional = account.additional.map(takeFromAdditional);
    if (restMicro > 0 && account.later.freeMicro > 0) this.#set(this.#all().map(takeFromAdditional));
    this.#closeUsedUp();
    return takings;
  }

  /**
   * Ends what a hold took: charges up to `costMicro` of it and gives the rest back. Returns what
   * was charged.
   */
  settle(takings: readonly Taking[], costMicro: MicroCredits): Taking[] {
    const account = this.#account;
    const isNotInRow = ({ grant, bucket }: Taking) =>
      bucket === "additional" && !account.additional.some(({ seq }) => seq === grant);
    const needsLater = account.later.count > 0 && takings.some(isNotInRow);
    const additional = needsLater ? this.#all() : account.additional;
    const order = new Map<number, number>();
    for (const grant of [account.base, account.overage, ...additional])
      if (grant !== null) order.set(grant.seq, order.size);
    const paid: Taking[] = [];
    const ended = new Map<number, { takenMicro: MicroCredits; paidMicro: MicroCredits }>();
    let restMicro = costMicro;
    // Those of closed grants have no place in the order, and come first.
    for (const taking of takings.toSorted(
      (a, b) => (order.get(a.grant) ?? -1) - (order.get(b.grant) ?? -1),
    )) {
      const paidMicro = Math.min(restMicro, taking.amountMicro);
      restMicro -= paidMicro;
      if (paidMicro > 0) paid.push({ ...taking, amountMicro: paidMicro });
      ended.set(taking.grant, { takenMicro: taking.amountMicro, paidMicro });
    }
    const after = <G extends Amounts & { seq: number }>(grant: G): G => {
      const end = ended.get(grant.seq);
      return end === undefined
        ? grant
        : {
            ...grant,
            heldMicro: grant.heldMicro - end.takenMicro,
            spentMicro: grant.spentMicro + end.paidMicro,
          };
    };
    if (account.base !== null) account.base = after(account.base);
    if (account.overage !== null) account.overage = after(account.overage);
    if (needsLater) this.#set(additional.map(after));
    else account.additional = additional.map(after);
    this.#closeUsedUp();
    return paid;
  }

  /** Adds an additional grant. */
  add(grant: AdditionalGrant): void {
    const { later } = this.#account;
    if (later.count === 0 || this.#later !== null) {
      this.#set([...this.#all(), grant]);
      return;
    }
    throw new LaterNeeded(this.#account.id);
  }

  /** Finds an open additional grant. */
  find(matches: (grant: AdditionalGrant) => boolean): AdditionalGrant | null {
    const { additional, later } = this.#account;
    const found = additional.find(matches);
    if (found !== undefined || later.count === 0) return found ?? null;
    return this.#all().find(matches) ?? null;
  }

  /** Promotions, newest first. */
  promotions(): AdditionalGrant[] {
    return this.#all()
      .filter(({ isPayment }) => !isPayment)
      .sort((one, other) => other.seq - one.seq);
  }

  /** Changes the amount of an open additional grant. */
  change(seq: number, byMicro: MicroCredits): void {
    const { additional } = this.#account;
    const changed = (grant: AdditionalGrant) =>
      grant.seq === seq ? { ...grant, amountMicro: grant.amountMicro + byMicro } : grant;
    if (additional.some((grant) => grant.seq === seq)) this.#account.additional = additional.map(changed);
    else this.#set(this.#all().map(changed));
    this.#closeUsedUp();
  }

  /** Additional grants close when nothing is left and nothing is held. */
  #closeUsedUp(): void {
    const isOpen = ({ amountMicro, spentMicro, heldMicro }: AdditionalGrant) =>
      amountMicro > spentMicro || heldMicro > 0;
    const { additional } = this.#account;
    if (additional.some((grant) => !isOpen(grant))) this.#account.additional = additional.filter(isOpen);
    if (this.#later?.some((grant) => !isOpen(grant))) {
      this.#later = this.#later.filter(isOpen);
      this.#account.later = laterOf(this.#later);
    }
  }
}

/**
 * The decision needs the additional grants that are not in the row of the account. The store reads
 * them, and the batch is decided again.
 */
export class LaterNeeded extends Error {
  override readonly name = "LaterNeeded";
  readonly account: string;

  constructor(account: string) {
    super(`the later grants of account ${account} are needed`);
    this.account = account;
  }
}

function laterOf(grants: readonly AdditionalGrant[]): LaterGrants {
  let [freeMicro, heldMicro, untilMs] = [0, 0, Infinity];
  for (const grant of grants) {
    freeMicro += freeOf(grant);
    heldMicro += grant.heldMicro;
    untilMs = Math.min(untilMs, grant.untilMs ?? Infinity);
  }
  invariant(Number.isSafeInteger(freeMicro + heldMicro), "credits are counted exactly");
  return {
    count: grants.length,
    freeMicro,
    heldMicro,
    untilMs: untilMs === Infinity ? null : untilMs,
  };
}
