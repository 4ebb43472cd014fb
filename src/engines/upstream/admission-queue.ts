/**
 * The line of requests that wait for a slot, and the rule that decides which gets the next one.
 *
 * A running request of an upstream cannot be paused, so a slot is never taken back. The rule is:
 * 1. An account that runs nothing gets the next free slot. The last `reserved` slots are
 *    reserved for such accounts, which are below any fair share.
 * 2. Then comes an account below its fair share, which is all slots divided by the accounts that
 *    run or wait.
 * 3. Then comes any account. Among equals accounts take turns.
 *
 * Pure. Guarantees: an account without a running request gets any free slot in its turn, whatever
 * other accounts run.
 */
import type { EngineError, EngineLoad } from "../../chat/engine.ts";
import { BusySet, FairQueue, type QueueMax } from "../../collections.ts";
import type { UpstreamServer } from "./server.ts";

/** A request for a slot. */
export interface Waiter {
  readonly accountId: string;
  /** Called when the request has a slot at this server. */
  begin(server: UpstreamServer): void;
  /** Called if the request gets no slot, or the engine closes. */
  breakOff(failure: EngineError): void;
}

/** Slots at the servers that can be asked now. */
export interface Slots {
  total: number;
  free: number;
  /** Number of free slots that are reserved for accounts without a running request. */
  reserved: number;
}

interface Account {
  running: number;
  /** Since it came, or since its last slot became free. */
  withoutSlotSinceMs: number;
}

export class AdmissionQueue {
  readonly #queue: FairQueue<Waiter>;
  /** Accounts with a request that waits or runs. */
  readonly #accounts = new Map<string, Account>();
  /** When each waiting request came, in this order. */
  readonly #arrivedMs = new Map<Waiter, number>();
  readonly #running = new BusySet<Waiter>();

  constructor(queueMax: QueueMax) {
    this.#queue = new FairQueue(queueMax);
  }

  /** Requests that wait. */
  get size(): number {
    return this.#queue.size;
  }

  /** False if there is no room. */
  push(waiter: Waiter, nowMs: number): boolean {
    const { accountId } = waiter;
    if (!this.#queue.push(accountId, waiter)) return false;
    if (!this.#accounts.has(accountId)) {
      this.#accounts.set(accountId, { running: 0, withoutSlotSinceMs: nowMs });
    }
    this.#arrivedMs.set(waiter, nowMs);
    return true;
  }

  /**
   * Gives a slot to the next request that may have one; undefined if none may. `isServed`: whether
   * a server takes requests of the account now.
   */
  next(slots: Slots, isServed: (accountId: string) => boolean = () => true): Waiter | undefined {
    const accountId = this.#nextAccount(slots, isServed);
    const waiter = accountId === undefined ? undefined : this.#queue.take(accountId);
    if (waiter === undefined || accountId === undefined) return undefined;
    this.#arrivedMs.delete(waiter);
    this.#running.add(waiter);
    const account = this.#accounts.get(accountId);
    if (account !== undefined) account.running += 1;
    return waiter;
  }

  /** Removes a request that waits or runs. */
  remove(waiter: Waiter, nowMs: number): void {
    const { accountId } = waiter;
    const account = this.#accounts.get(accountId);
    if (this.#running.delete(waiter) && account !== undefined) {
      account.running -= 1;
      account.withoutSlotSinceMs = nowMs;
    } else if (this.#queue.remove(accountId, waiter)) this.#arrivedMs.delete(waiter);
    if (account?.running === 0 && this.#queue.first(accountId) === undefined)
      this.#accounts.delete(accountId);
  }

  /** Accounts with requests that wait. */
  accounts(): Iterable<string> {
    return this.#queue.accounts();
  }

  /** Removes all requests that wait, or those of some accounts. */
  takeAll(nowMs: number, isOf: (accountId: string) => boolean = () => true): Waiter[] {
    const waiters = [...this.#arrivedMs.keys()].filter(({ accountId }) => isOf(accountId));
    for (const waiter of waiters) this.remove(waiter, nowMs);
    return waiters;
  }

  load(nowMs: number): Pick<EngineLoad, "waiting" | "oldestWaitMs" | "starvedMs"> {
    const [oldestMs = nowMs] = this.#arrivedMs.values();
    let starvedMs = 0;
    for (const [accountId, { running, withoutSlotSinceMs }] of this.#accounts) {
      const first = this.#queue.first(accountId);
      if (running > 0 || first === undefined) continue;
      const sinceMs = Math.max(withoutSlotSinceMs, this.#arrivedMs.get(first) ?? nowMs);
      starvedMs = Math.max(starvedMs, nowMs - sinceMs);
    }
    return { waiting: this.#queue.size, oldestWaitMs: nowMs - oldestMs, starvedMs };
  }

  #nextAccount(
    { total, free, reserved }: Slots,
    isServed: (accountId: string) => boolean,
  ): string | undefined {
    if (free <= 0) return undefined;
    const share = total / this.#accounts.size;
    let below: string | undefined;
    let any: string | undefined;
    for (const accountId of this.#queue.accounts()) {
      if (!isServed(accountId)) continue;
      const running = this.#accounts.get(accountId)?.running ?? 0;
      if (running === 0) return accountId;
      if (running < share) below ??= accountId;
      any ??= accountId;
    }
    return free > reserved ? (below ?? any) : undefined;
  }
}
