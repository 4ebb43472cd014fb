/**
 * The line of requests that wait for a place, and the rule that decides which gets the next one.
 *
 * A running request of an upstream cannot be paused, so a place is never taken back. The rule is:
 * 1. An account that runs nothing gets the next free place. The last `reserved` places are
 *    reserved for such accounts, which are below any fair share.
 * 2. Then comes an account below its fair share, which is all places divided by the accounts that
 *    run or wait.
 * 3. Then comes any account. Among equals accounts take turns.
 *
 * Pure. Guarantees: an account without a running request gets any free place in its turn, whatever
 * other accounts run.
 */
import type { EngineError, EngineLoad } from "../../chat/engine.ts";
import { BusySet, FairQueue, type QueueMax } from "../../collections.ts";
import type { UpstreamServer } from "./server.ts";

/** A request for a place. */
export interface Applicant {
  readonly accountId: string;
  /** Called when the request has a place at this server. */
  begin(server: UpstreamServer): void;
  /** Called if the request gets no place, or the engine closes. */
  breakOff(failure: EngineError): void;
}

/** Places at the servers that can be asked now. */
export interface Places {
  total: number;
  free: number;
  /** Number of free places that are reserved for accounts without a running request. */
  reserved: number;
}

interface Account {
  running: number;
  /** Since it came, or since its last place became free. */
  withoutPlaceSinceMs: number;
}

export class PlaceLine {
  readonly #queue: FairQueue<Applicant>;
  /** Accounts with a request that waits or runs. */
  readonly #accounts = new Map<string, Account>();
  /** When each waiting request came, in this order. */
  readonly #arrivedMs = new Map<Applicant, number>();
  readonly #running = new BusySet<Applicant>();

  constructor(queueMax: QueueMax) {
    this.#queue = new FairQueue(queueMax);
  }

  /** Requests that wait. */
  get size(): number {
    return this.#queue.size;
  }

  /** False if there is no room. */
  push(applicant: Applicant, nowMs: number): boolean {
    const { accountId } = applicant;
    if (!this.#queue.push(accountId, applicant)) return false;
    if (!this.#accounts.has(accountId)) {
      this.#accounts.set(accountId, { running: 0, withoutPlaceSinceMs: nowMs });
    }
    this.#arrivedMs.set(applicant, nowMs);
    return true;
  }

  /** Gives a place to the next request that may have one; undefined if none may. */
  next(places: Places): Applicant | undefined {
    const accountId = this.#nextAccount(places);
    const applicant = accountId === undefined ? undefined : this.#queue.take(accountId);
    if (applicant === undefined || accountId === undefined) return undefined;
    this.#arrivedMs.delete(applicant);
    this.#running.add(applicant);
    const account = this.#accounts.get(accountId);
    if (account !== undefined) account.running += 1;
    return applicant;
  }

  /** Removes a request that waits or runs. */
  remove(applicant: Applicant, nowMs: number): void {
    const { accountId } = applicant;
    const account = this.#accounts.get(accountId);
    if (this.#running.delete(applicant) && account !== undefined) {
      account.running -= 1;
      account.withoutPlaceSinceMs = nowMs;
    } else if (this.#queue.remove(accountId, applicant)) this.#arrivedMs.delete(applicant);
    if (account?.running === 0 && this.#queue.first(accountId) === undefined)
      this.#accounts.delete(accountId);
  }

  /** Removes all requests that wait. */
  takeAll(nowMs: number): Applicant[] {
    const applicants = [...this.#arrivedMs.keys()];
    for (const applicant of applicants) this.remove(applicant, nowMs);
    return applicants;
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
