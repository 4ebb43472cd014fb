/**
 * The line of requests that wait for a place at a model's servers, and the rule that decides who gets the next one.
 *
 * A running request of an upstream cannot be paused, so a place is never taken back. The rule therefore is:
 * 1. An account that runs nothing gets the next free place. The last `reserved` places are for such accounts alone, which are
 *    below any fair share.
 * 2. Then comes an account below its fair share, which is all places divided by the accounts that run or wait.
 * 3. Then comes any account. Among equals accounts take turns.
 *
 * Pure. Guarantees: an account without a running request gets any free place in its turn, whatever other accounts run.
 */
import type { EngineLoad } from "../../chat/engine.ts";
import { FairQueue } from "../fair-queue.ts";

/** Places at the servers that can be asked now. */
export interface Places {
  total: number;
  free: number;
  /** So many of the free places are only for accounts without a running request. */
  reserved: number;
}

interface Account {
  running: number;
  /** Since it came, or since its last place became free. */
  withoutPlaceSinceMs: number;
}

export class PlaceLine<Item extends { job: { accountId: string } }> {
  readonly #queue: FairQueue<Item>;
  /** Those with something that waits or runs. */
  readonly #accounts = new Map<string, Account>();
  /** When each waiting item came, in this order. */
  readonly #arrivedMs = new Map<Item, number>();
  readonly #running = new Set<Item>();

  constructor(queueMax: number) {
    this.#queue = new FairQueue(queueMax);
  }

  /** Items that wait. */
  get size(): number {
    return this.#queue.size;
  }

  /** False if there is no room. */
  push(item: Item, nowMs: number): boolean {
    const { accountId } = item.job;
    if (!this.#queue.push(accountId, item)) return false;
    if (!this.#accounts.has(accountId)) {
      this.#accounts.set(accountId, { running: 0, withoutPlaceSinceMs: nowMs });
    }
    this.#arrivedMs.set(item, nowMs);
    return true;
  }

  /** Gives a place to the next item that may have one; undefined if none may. */
  next(places: Places): Item | undefined {
    const accountId = this.#nextAccount(places);
    const item = accountId === undefined ? undefined : this.#queue.take(accountId);
    if (item === undefined || accountId === undefined) return undefined;
    this.#arrivedMs.delete(item);
    this.#running.add(item);
    const account = this.#accounts.get(accountId);
    if (account !== undefined) account.running += 1;
    return item;
  }

  /** Removes an item that waits or runs. */
  remove(item: Item, nowMs: number): void {
    const { accountId } = item.job;
    const account = this.#accounts.get(accountId);
    if (this.#running.delete(item) && account !== undefined) {
      account.running -= 1;
      account.withoutPlaceSinceMs = nowMs;
    } else if (this.#queue.remove(accountId, item)) this.#arrivedMs.delete(item);
    if (account?.running === 0 && this.#queue.first(accountId) === undefined)
      this.#accounts.delete(accountId);
  }

  /** Removes all items that wait. */
  takeAll(nowMs: number): Item[] {
    const items = [...this.#arrivedMs.keys()];
    for (const item of items) this.remove(item, nowMs);
    return items;
  }

  load(nowMs: number): Pick<EngineLoad, "waiting" | "oldestWaitMs" | "starvedMs"> {
    const [oldestMs = nowMs] = this.#arrivedMs.values();
    let starvedMs = 0;
    for (const [accountId, { running, withoutPlaceSinceMs }] of this.#accounts) {
      const first = this.#queue.first(accountId);
      if (running > 0 || first === undefined) continue;
      const sinceMs = Math.max(withoutPlaceSinceMs, this.#arrivedMs.get(first) ?? nowMs);
      starvedMs = Math.max(starvedMs, nowMs - sinceMs);
    }
    return { waiting: this.#queue.size, oldestWaitMs: nowMs - oldestMs, starvedMs };
  }

  #nextAccount({ total, free, reserved }: Places): string | undefined {
    if (free <= 0) return undefined;
    const share = total / this.#accounts.size;
    let below: string | undefined;
    let any: string | undefined;
    for (const accountId of this.#queue.accounts()) {
      const running = this.#accounts.get(accountId)?.running ?? 0;
      if (running === 0) return accountId;
      if (running < share) below ??= accountId;
      any ??= accountId;
    }
    return free > reserved ? (below ?? any) : undefined;
  }
}
