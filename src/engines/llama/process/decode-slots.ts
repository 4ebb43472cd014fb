/**
 * Slots in the decode loop, shared among accounts. Decides which answer runs, waits or is paused.
 *
 * The fair share of an account is the number of slots divided by the accounts that run or wait.
 * Guarantees:
 * - A free slot goes to the account with the fewest slots, among equals to the one with the
 *   oldest turn.
 * - An account gives up a slot to a waiting account that has at least two slots less, as soon as
 *   an answer of it has run for `runMinMs`.
 * - If the difference is one slot, it gives the slot to a request that has not begun, once its
 *   own answer has its first token. Otherwise it waits for `turnMs`, so that more accounts than
 *   slots take turns.
 * - An answer that is blocked for `blockedMaxMs` (by its budget or its reader) gives way to any
 *   waiting answer.
 * - An account's youngest answer is paused first. Its oldest answer returns first, before its
 *   new requests.
 * - A pause and the return take at most a tenth of the time (`runsPerSwitch`).
 * - An answer with a total pause of `pausedMaxMs` returns before all others. Afterwards it is not
 *   paused for turns.
 *
 * A paused answer returns to its own sequence, because its saved state fits no other. If it waits
 * too long, or if a slot would stay empty for longer than a turn, it returns "anywhere": its text
 * is evaluated again. Pure: the caller passes the time and carries out the moves.
 */
import type { EngineLoad } from "../../../chat/engine.ts";
import { FairQueue, type QueueMax } from "../../../collections.ts";
import { invariant } from "../../../errors.ts";

export interface SlotsLimits {
  /** Shortest run before a pause. */
  runMinMs: number;
  /** Length of a turn if there are more accounts than slots. */
  turnMs: number;
  /** Longest time that a blocked answer keeps its slot while others wait. */
  blockedMaxMs: number;
  /** Total pause of an answer after which it has priority. */
  pausedMaxMs: number;
}

export const defaultSlotsLimits: SlotsLimits = {
  runMinMs: 500,
  turnMs: 2000,
  blockedMaxMs: 500,
  pausedMaxMs: 60_000,
};
/** Minimum run after a switch, as a multiple of the switch's cost. */
const runsPerSwitch = 9;
/** Limit of an account's begun answers for each slot, paused ones included. */
const begunPerSlotMax = 2;

export interface SlotUser {
  readonly job: { readonly id: number; readonly accountId: string };
  /** It waits neither for its budget nor for its reader. */
  readonly isDue: boolean;
  /** It is about to stop, and gets no slot. */
  readonly stopping: boolean;
  /** Its prompt is still being evaluated. */
  readonly isPrefilling: boolean;
}

type Move<Job> =
  | { type: "start"; job: Job }
  | { type: "pause"; job: Job }
  /** `anywhere`: its own sequence is in use, so another one evaluates the text again. */
  | { type: "resume"; job: Job; anywhere: boolean };

interface Account<Job> {
  readonly id: string;
  readonly begun: Set<Begun<Job>>;
  running: number;
  /** Number of its last turn. */
  turn: number;
  /** Start of the time without a slot. */
  withoutSlotSinceMs: number;
}

interface Begun<Job> {
  readonly job: Job;
  readonly account: Account<Job>;
  /** Its sequence, or its last one before the pause. Null until the decoder reports it. */
  sequence: number | null;
  isPaused: boolean;
  /** The decoder has given it a sequence for its current run. It is not paused before. */
  hasSequence: boolean;
  /** Start of the current run or pause. */
  sinceMs: number;
  /** Sum of all past pauses. */
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

export class DecodeSlots<Job extends SlotUser> {
  readonly #slots: number;
  readonly #limits: SlotsLimits;
  readonly #queue: FairQueue<Job>;
  readonly #arrivedMs = new Map<Job, number>();
  /** Accounts with waiting or begun jobs. */
  readonly #accounts = new Map<string, Account<Job>>();
  readonly #begun = new Map<number, Begun<Job>>();
  #running = 0;
  #turns = 0;

  constructor(slots: number, queueMax: QueueMax, limits: SlotsLimits = defaultSlotsLimits) {
    this.#slots = slots;
    this.#limits = limits;
    this.#queue = new FairQueue(queueMax);
  }

  /** Returns false if the queue has no room. */
  enqueue(job: Job, nowMs: number): boolean {
    const hasRoom = this.#queue.push(job.job.accountId, job);
    if (hasRoom) this.#arrived(job, nowMs);
    return hasRoom;
  }

  /** Puts a job that had a slot back to the front of the queue. */
  putBack(job: Job, nowMs: number): void {
    this.#queue.putBack(job.job.accountId, job);
    this.#arrived(job, nowMs);
  }

  /** Removes a waiting job. Returns false if the job has begun. */
  remove(job: Job): boolean {
    const { accountId } = job.job;
    if (!this.#queue.remove(accountId, job)) return false;
    this.#arrivedMs.delete(job);
    this.#forgetIfGone(this.#accounts.get(accountId));
    return true;
  }

  /** Returns a running or paused job. */
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

  /** Some job could run if it had a slot. */
  get isAnyoneWaiting(): boolean {
    if (this.#queue.size > 0) return true;
    for (const begun of this.#begun.values()) if (isClaiming(begun)) return true;
    return false;
  }

  /** Records a job's sequence. `tookMs`: decode time lost by its return. */
  placed(id: number, sequence: number, tookMs: number): void {
    const begun = this.#begun.get(id);
    if (begun === undefined) return;
    begun.sequence = sequence;
    begun.hasSequence = true;
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

  /** Removes and returns all begun jobs, the youngest first. */
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
      const sinceMs = Math.max(account.withoutSlotSinceMs, this.#arrivedMs.get(first) ?? nowMs);
      starvedMs = Math.max(starvedMs, nowMs - sinceMs);
    }
    const paused = this.#begun.size - this.#running;
    return { running: this.#running, waiting: this.#queue.size, paused, oldestWaitMs, starvedMs };
  }

  /** Returns the moves to carry out now. Call this after each change, and while jobs wait. */
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
    const isFree = this.#running < this.#slots;
    for (const claim of claims) {
      if (isFree) {
        if (this.#fits(claim)) return [this.#giveSlot(claim, nowMs)];
        continue;
      }
      // A request behind its own account's paused answer pauses no other.
      const victim = claim.isSecond ? null : this.#victim(claim, nowMs);
      if (victim !== null) return [this.#pause(victim, nowMs), this.#giveSlot(claim, nowMs)];
    }
    if (!isFree || this.#isInUse(null)) return [];
    // Evaluating a text again is better than a slot that stays empty. Its own sequence may be
    // free before that.
    const displaced = claims.find(
      ({ begun }) => begun !== null && nowMs - begun.sinceMs >= this.#limits.turnMs,
    );
    return displaced === undefined ? [] : [this.#giveSlot(displaced, nowMs)];
  }

  /** Returns claims in the order in which they are served. */
  #claims(nowMs: number): Claim<Job>[] {
    const claims: Claim<Job>[] = [];
    for (const account of this.#accounts.values()) {
      let isSecond = false;
      for (const begun of account.begun) {
        if (!isClaiming(begun)) continue;
        claims.push({ account, begun, isOverdue: this.#isOverdue(begun, nowMs), isSecond: false });
        isSecond = true;
      }
      const mayBegin = account.begun.size < begunPerSlotMax * this.#slots;
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

  /** Returns whether the claim can use a free slot. */
  #fits({ begun, isOverdue }: Claim<Job>): boolean {
    if (begun === null) return true;
    if (this.#isInUse(null)) return false;
    return isOverdue || !this.#isInUse(begun.sequence);
  }

  /** Null: a running job's sequence is unknown, which it is until the decoder reports it. */
  #isInUse(sequence: number | null): boolean {
    for (const begun of this.#begun.values()) if (!begun.isPaused && begun.sequence === sequence) return true;
    return false;
  }

  /** Returns the running answer that gives way to a claim, or null. */
  #victim(claim: Claim<Job>, nowMs: number): Begun<Job> | null {
    let best: Begun<Job> | null = null;
    for (const begun of this.#begun.values()) {
      if (begun.isPaused || !this.#givesWay(begun, claim, nowMs)) continue;
      if (best === null || this.#isBetterVictim(begun, best, nowMs)) best = begun;
    }
    return best;
  }

  #givesWay(running: Begun<Job>, { account, begun, isOverdue }: Claim<Job>, nowMs: number): boolean {
    const { sequence, blockedSinceMs, sinceMs } = running;
    if (!running.hasSequence) return false;
    // The saved state of a paused answer fits one sequence only.
    if (begun !== null && !isOverdue && begun.sequence !== sequence) return false;
    if (blockedSinceMs !== null) return nowMs - blockedSinceMs >= this.#limits.blockedMaxMs;
    const ranMs = nowMs - sinceMs;
    const turnMs = Math.max(this.#limits.turnMs, running.runMinMs);
    if (running.account === account) return isOverdue && !this.#isOverdue(running, nowMs) && ranMs >= turnMs;
    const more = running.account.running - account.running;
    if (more < 1) return false;
    if (more > 1) return ranMs >= running.runMinMs;
    // An answer that is about to get its first token keeps its slot.
    if (begun === null && !running.job.isPrefilling) return ranMs >= running.runMinMs;
    return ranMs >= turnMs && !this.#isOverdue(running, nowMs);
  }

  #isBetterVictim(left: Begun<Job>, right: Begun<Job>, nowMs: number): boolean {
    const isBlocked = (begun: Begun<Job>): boolean => begun.blockedSinceMs !== null;
    if (isBlocked(left) !== isBlocked(right)) return isBlocked(left);
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

  #giveSlot({ account, begun }: Claim<Job>, nowMs: number): Move<Job> {
    this.#running += 1;
    account.running += 1;
    account.turn = ++this.#turns;
    if (begun !== null) {
      const anywhere = this.#isInUse(begun.sequence);
      if (anywhere) begun.sequence = null;
      begun.isPaused = false;
      begun.hasSequence = false;
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
      hasSequence: false,
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
    if (account.running === 0) account.withoutSlotSinceMs = nowMs;
  }

  #arrived(job: Job, nowMs: number): void {
    const { accountId } = job.job;
    this.#arrivedMs.set(job, nowMs);
    if (this.#accounts.has(accountId)) return;
    this.#accounts.set(accountId, {
      id: accountId,
      begun: new Set(),
      running: 0,
      turn: ++this.#turns,
      withoutSlotSinceMs: nowMs,
    });
  }

  #forgetIfGone(account: Account<Job> | undefined): void {
    if (account === undefined || account.begun.size > 0) return;
    if (this.#queue.first(account.id) === undefined) this.#accounts.delete(account.id);
  }
}

function isClaiming<Job extends SlotUser>({ isPaused, job }: Begun<Job>): boolean {
  return isPaused && job.isDue && !job.stopping;
}
