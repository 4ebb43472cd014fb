/**
 * Places in the decode loop, shared among accounts: decides which answer runs, waits or is paused.
 *
 * Each account has a fair share: the places divided by the accounts that run or wait. Guarantees:
 * - a free place goes to the account with the fewest places, among equals to the one that has gone longest without a turn;
 * - an account with at least two places more than one that waits gives one up as soon as an answer of it has run for
 *   `runMinMs`; with one place more it does so for a request that has not begun, once its own answer has its first token, and
 *   otherwise after `turnMs`, so that more accounts than places take turns;
 * - an answer that has rested for `restMaxMs` (it waits for pay or for its reader) gives way to anything that waits;
 * - of an account's answers the youngest is paused and the oldest comes back first, before a new request of that account;
 * - a pause and its return take at most a tenth of the time (`runsPerSwitch`);
 * - an answer that was paused for `pausedMaxMs` in all comes back before all others, and takes no more turns with other accounts.
 *
 * A paused answer comes back to its own sequence, where its state fits. Only if it waits too long, or if a place would stay
 * empty for longer than a turn, it comes back "anywhere", which means evaluating its text again.
 * Pure: it is handed times. The caller carries out the moves.
 */

import type { EngineLoad } from "../../../chat/engine.ts";
import { invariant } from "../../../errors.ts";
import { FairQueue } from "../../fair-queue.ts";

export interface PlacesLimits {
  /** Shortest run before a pause. Also the longest that a newcomer waits for a place if every account has one at most. */
  runMinMs: number;
  /** Run before accounts with more answers than places take turns. */
  turnMs: number;
  /** Longest rest (for pay, for a reader) of an answer that keeps its place while others wait. */
  blockedMaxMs: number;
  /** Total pause of one answer before it has priority. */
  pausedMaxMs: number;
}

export const defaultPlacesLimits: PlacesLimits = {
  runMinMs: 500,
  turnMs: 2000,
  blockedMaxMs: 500,
  pausedMaxMs: 60_000,
};
/** After a switch that cost t, an answer runs for so many t before the next pause. */
const runsPerSwitch = 9;
/** For each place: begun answers that one account can have, paused ones included. */
const begunPerPlaceMax = 2;

export interface Placeable {
  readonly job: { readonly id: number; readonly accountId: string };
  /** Something is to be decoded: it waits neither for pay nor for its reader. */
  readonly isDue: boolean;
  /** Asked to stop; never given a place. */
  readonly stopping: boolean;
  /** Its prompt is still being evaluated. */
  readonly isPrefilling: boolean;
}

export type Move<Job> =
  | { type: "start"; job: Job }
  | { type: "pause"; job: Job }
  /** `anywhere`: its own sequence is in use, so another one evaluates the text again. */
  | { type: "resume"; job: Job; anywhere: boolean };

interface Account<Job> {
  readonly id: string;
  readonly begun: Set<Begun<Job>>;
  running: number;
  /** Grows with each turn of any account. */
  turn: number;
  /** Since when it has had no place. */
  withoutPlaceSinceMs: number;
}

interface Begun<Job> {
  readonly job: Job;
  readonly account: Account<Job>;
  /** Sequence that holds its state, or did before the pause. Null until the decoder reports it. */
  sequence: number | null;
  isPaused: boolean;
  /** The decoder has given it a sequence for its current run. Until then it is not paused again. */
  isPlaced: boolean;
  /** Start of the current run or pause. */
  sinceMs: number;
  /** In all pauses that are over. */
  pausedMs: number;
  runMinMs: number;
  blockedSinceMs: number | null;
}

interface Claim<Job> {
  account: Account<Job>;
  /** Null: the account's next new request. */
  begun: Begun<Job> | null;
  isOverdue: boolean;
  /** A paused answer of the account could run: it comes before the account's new requests. */
  isSecond: boolean;
}

export class Places<Job extends Placeable> {
  readonly #places: number;
  readonly #limits: PlacesLimits;
  readonly #queue: FairQueue<Job>;
  readonly #arrivedMs = new Map<Job, number>();
  /** Every account that has something here. */
  readonly #accounts = new Map<string, Account<Job>>();
  readonly #begun = new Map<number, Begun<Job>>();
  #running = 0;
  #turns = 0;

  constructor(places: number, queueMax: number, limits: PlacesLimits = defaultPlacesLimits) {
    this.#places = places;
    this.#limits = limits;
    this.#queue = new FairQueue(queueMax);
  }

  /** Returns false if the queue has no room. */
  enqueue(job: Job, nowMs: number): boolean {
    if (!this.#queue.push(job.job.accountId, job)) return false;
    this.#arrivedMs.set(job, nowMs);
    this.#accountOf(job, nowMs);
    return true;
  }

  /** Returns a job that had a place to the front of the queue. */
  putBack(job: Job, nowMs: number): void {
    this.#queue.putBack(job.job.accountId, job);
    this.#arrivedMs.set(job, nowMs);
    this.#accountOf(job, nowMs);
  }

  /** Removes a job that has not begun; false if it has. */
  remove(job: Job): boolean {
    const { accountId } = job.job;
    if (!this.#queue.remove(accountId, job)) return false;
    this.#arrivedMs.delete(job);
    this.#forgetIfGone(this.#accounts.get(accountId));
    return true;
  }

  /** A job that has begun, running or paused. */
  find(id: number): Job | undefined {
    return this.#begun.get(id)?.job;
  }

  isPaused(id: number): boolean {
    return this.#begun.get(id)?.isPaused ?? false;
  }

  *running(): Iterable<Job> {
    for (const { job, isPaused } of this.#begun.values()) if (!isPaused) yield job;
  }

  *begun(): Iterable<Job> {
    for (const { job } of this.#begun.values()) yield job;
  }

  isAnyRunningBesides(accountId: string): boolean {
    return this.#running > (this.#accounts.get(accountId)?.running ?? 0);
  }

  /** Something could run if it had a place. */
  get isAnyoneWaiting(): boolean {
    if (this.#queue.size > 0) return true;
    for (const begun of this.#begun.values()) if (isClaiming(begun)) return true;
    return false;
  }

  /** From the decoder: the job has this sequence. `tookMs`: decode time that bringing it back has cost. */
  placed(id: number, sequence: number, tookMs: number): void {
    const begun = this.#begun.get(id);
    if (begun === undefined) return;
    begun.sequence = sequence;
    begun.isPlaced = true;
    begun.runMinMs = Math.max(this.#limits.runMinMs, runsPerSwitch * tookMs);
  }

  ended(id: number, nowMs: number): void {
    const begun = this.#begun.get(id);
    if (begun === undefined) return;
    if (!begun.isPaused) this.#leavePlace(begun, nowMs);
    this.#begun.delete(id);
    begun.account.begun.delete(begun);
    this.#forgetIfGone(begun.account);
  }

  /** Every job that has begun, the youngest first; they are forgotten here. */
  takeBegun(nowMs: number): Job[] {
    const jobs = [...this.begun()].sort((left, right) => right.job.id - left.job.id);
    for (const { job } of jobs) this.ended(job.id, nowMs);
    return jobs;
  }

  takeQueue(): Job[] {
    const jobs = this.#queue.takeAll();
    this.#arrivedMs.clear();
    for (const account of [...this.#accounts.values()]) this.#forgetIfGone(account);
    return jobs;
  }

  load(nowMs: number): EngineLoad {
    let oldestWaitMs = 0;
    for (const arrivedMs of this.#arrivedMs.values())
      oldestWaitMs = Math.max(oldestWaitMs, nowMs - arrivedMs);
    let starvedMs = 0;
    for (const account of this.#accounts.values()) {
      const first = this.#queue.first(account.id);
      if (account.running > 0 || first === undefined) continue;
      const sinceMs = Math.max(account.withoutPlaceSinceMs, this.#arrivedMs.get(first) ?? nowMs);
      starvedMs = Math.max(starvedMs, nowMs - sinceMs);
    }
    const paused = this.#begun.size - this.#running;
    return { running: this.#running, waiting: this.#queue.size, paused, oldestWaitMs, starvedMs };
  }

  /** Moves to carry out now, in this order. Ask again when something changes, and every now and then while somebody waits. */
  moves(nowMs: number): Move<Job>[] {
    const moves: Move<Job>[] = [];
    if (!this.isAnyoneWaiting) return moves;
    for (const begun of this.#begun.values()) {
      if (begun.isPaused || begun.job.isDue) begun.blockedSinceMs = null;
      else begun.blockedSinceMs ??= nowMs;
    }
    for (;;) {
      const step = this.#step(nowMs);
      if (step.length === 0) return moves;
      moves.push(...step);
    }
  }

  #step(nowMs: number): Move<Job>[] {
    const claims = this.#claims(nowMs);
    const isFree = this.#running < this.#places;
    for (const claim of claims) {
      if (isFree) {
        if (this.#fits(claim)) return [this.#place(claim, nowMs)];
        continue;
      }
      // Nothing is paused for a request that could wait for its own account's turn.
      const victim = claim.isSecond ? null : this.#victim(claim, nowMs);
      if (victim !== null) return [this.#pause(victim, nowMs), this.#place(claim, nowMs)];
    }
    if (!isFree || this.#isSequenceUnknown()) return [];
    // Better to evaluate a text again than to leave a place empty for long. Its own may be free soon.
    const displaced = claims.find(
      ({ begun }) => begun !== null && nowMs - begun.sinceMs >= this.#limits.turnMs,
    );
    return displaced === undefined ? [] : [this.#place(displaced, nowMs)];
  }

  /** In the order in which they are served. */
  #claims(nowMs: number): Claim<Job>[] {
    const claims: Claim<Job>[] = [];
    for (const account of this.#accounts.values()) {
      let isSecond = false;
      for (const begun of account.begun) {
        if (!isClaiming(begun)) continue;
        claims.push({ account, begun, isOverdue: this.#isOverdue(begun, nowMs), isSecond: false });
        isSecond = true;
      }
      const mayBegin = account.begun.size < begunPerPlaceMax * this.#places;
      if (mayBegin && this.#queue.first(account.id) !== undefined)
        claims.push({ account, begun: null, isOverdue: false, isSecond });
    }
    return claims.sort((left, right) => {
      if (left.isOverdue !== right.isOverdue) return left.isOverdue ? -1 : 1;
      const [one, other] = [left.account, right.account];
      if (one !== other) return one.running - other.running || one.turn - other.turn;
      return (left.begun?.job.job.id ?? Infinity) - (right.begun?.job.job.id ?? Infinity);
    });
  }

  /** Whether a free place will do. */
  #fits({ begun, isOverdue }: Claim<Job>): boolean {
    if (begun === null) return true;
    if (this.#isSequenceUnknown()) return false;
    return isOverdue || !this.#isInUse(begun.sequence);
  }

  /** Between a start and the decoder's report of it, nobody here knows which sequences are in use. */
  #isSequenceUnknown(): boolean {
    for (const begun of this.#begun.values()) if (!begun.isPaused && begun.sequence === null) return true;
    return false;
  }

  #isInUse(sequence: number | null): boolean {
    for (const begun of this.#begun.values()) if (!begun.isPaused && begun.sequence === sequence) return true;
    return false;
  }

  /** The running answer that gives way to a claim, or null if none has to now. */
  #victim(claim: Claim<Job>, nowMs: number): Begun<Job> | null {
    let best: Begun<Job> | null = null;
    for (const begun of this.#begun.values()) {
      if (begun.isPaused || !this.#givesWay(begun, claim, nowMs)) continue;
      if (best === null || this.#isBetterVictim(begun, best, nowMs)) best = begun;
    }
    return best;
  }

  #givesWay(running: Begun<Job>, { account, begun, isOverdue }: Claim<Job>, nowMs: number): boolean {
    const { sequence, blockedSinceMs: restsSinceMs, sinceMs } = running;
    if (!running.isPlaced) return false;
    // The state of what comes back fits one sequence only.
    if (begun !== null && !isOverdue && begun.sequence !== sequence) return false;
    if (restsSinceMs !== null) return nowMs - restsSinceMs >= this.#limits.blockedMaxMs;
    const ranMs = nowMs - sinceMs;
    const turnMs = Math.max(this.#limits.turnMs, running.runMinMs);
    if (running.account === account) return isOverdue && !this.#isOverdue(running, nowMs) && ranMs >= turnMs;
    const more = running.account.running - account.running;
    if (more < 1) return false;
    if (more > 1) return ranMs >= running.runMinMs;
    // A first token that is nearly there is worth more to all than an equal share of the time until then.
    if (begun === null && !running.job.isPrefilling) return ranMs >= running.runMinMs;
    return ranMs >= turnMs && !this.#isOverdue(running, nowMs);
  }

  #isBetterVictim(left: Begun<Job>, right: Begun<Job>, nowMs: number): boolean {
    const rests = (begun: Begun<Job>): boolean => begun.blockedSinceMs !== null;
    if (rests(left) !== rests(right)) return rests(left);
    if (left.account.running !== right.account.running) return left.account.running > right.account.running;
    const leftIsOverdue = this.#isOverdue(left, nowMs);
    if (leftIsOverdue !== this.#isOverdue(right, nowMs)) return !leftIsOverdue;
    if (left.job.isPrefilling !== right.job.isPrefilling) return right.job.isPrefilling;
    if (left.account !== right.account) return left.account.turn < right.account.turn;
    return left.job.job.id > right.job.job.id;
  }

  #isOverdue({ isPaused, sinceMs, pausedMs }: Begun<Job>, nowMs: number): boolean {
    return pausedMs + (isPaused ? nowMs - sinceMs : 0) >= this.#limits.pausedMaxMs;
  }

  #place({ account, begun }: Claim<Job>, nowMs: number): Move<Job> {
    this.#running += 1;
    account.running += 1;
    account.turn = ++this.#turns;
    if (begun !== null) {
      const anywhere = this.#isInUse(begun.sequence);
      if (anywhere) begun.sequence = null;
      begun.isPaused = false;
      begun.isPlaced = false;
      begun.pausedMs += nowMs - begun.sinceMs;
      begun.sinceMs = nowMs;
      return { type: "resume", job: begun.job, anywhere };
    }
    const job = this.#queue.take(account.id);
    invariant(job !== undefined, "a claim without a begun answer is for a request in the queue");
    this.#arrivedMs.delete(job);
    const fresh: Begun<Job> = {
      job,
      account,
      sequence: null,
      isPaused: false,
      isPlaced: false,
      sinceMs: nowMs,
      pausedMs: 0,
      runMinMs: this.#limits.runMinMs,
      blockedSinceMs: null,
    };
    this.#begun.set(job.job.id, fresh);
    account.begun.add(fresh);
    return { type: "start", job };
  }

  #pause(begun: Begun<Job>, nowMs: number): Move<Job> {
    begun.isPaused = true;
    begun.sinceMs = nowMs;
    begun.blockedSinceMs = null;
    this.#leavePlace(begun, nowMs);
    return { type: "pause", job: begun.job };
  }

  #leavePlace({ account }: Begun<Job>, nowMs: number): void {
    this.#running -= 1;
    account.running -= 1;
    account.turn = ++this.#turns;
    if (account.running === 0) account.withoutPlaceSinceMs = nowMs;
  }

  #accountOf({ job: { accountId } }: Job, nowMs: number): void {
    if (this.#accounts.has(accountId)) return;
    this.#accounts.set(accountId, {
      id: accountId,
      begun: new Set(),
      running: 0,
      turn: ++this.#turns,
      withoutPlaceSinceMs: nowMs,
    });
  }

  #forgetIfGone(account: Account<Job> | undefined): void {
    if (account === undefined || account.begun.size > 0) return;
    if (this.#queue.first(account.id) === undefined) this.#accounts.delete(account.id);
  }
}

function isClaiming<Job extends Placeable>({ isPaused, job }: Begun<Job>): boolean {
  return isPaused && job.isDue && !job.stopping;
}
