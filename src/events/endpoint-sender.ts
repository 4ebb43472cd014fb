/**
 * Sends events to one endpoint. Any number of processes may do so at the same time.
 *
 * Guarantees: of each account, only the oldest pending event is sent, by a process that has a
 * claim on it. So events of an account are sent in their order. A failed event is tried again
 * after each pause, while later ones of its account wait, and after the last pause it is dead. If
 * a process dies, or its claim runs out, the event is sent once more, with the same id.
 */
import type { Attempt, ClaimedEvent, EventStore } from "../store/events.ts";
import type { EpochMs } from "../units.ts";
import type { Answer, Receiver } from "./receiver.ts";

const seconds = 1000;
const minutes = 60 * seconds;

/** Pauses after the first failures. Later ones take an hour, until they are three days. */
const firstPausesMs = [5 * seconds, minutes, 10 * minutes];
const laterPauseMs = 60 * minutes;
const attemptsMax = firstPausesMs.length + 72 + 1;
/** Pauses are longer by up to this share, so that accounts do not come in step. */
const jitter = 0.1;

/** Accounts that one look reads. Each costs a step in an index. */
const accountsMax = 200;

interface SenderOptions {
  name: string;
  receiver: Receiver;
  events: Pick<EventStore, "firsts" | "claim" | "record">;
  /** Elapsed time. */
  nowMs(): EpochMs;
  /** Longer than the receiver takes. */
  claimMs: number;
  /** Breaks off the requests under way. */
  signal: AbortSignal;
  /** Events at the same time. */
  slots: number;
  onAttempt(name: string, kind: Answer["kind"]): void;
  onDead(attempt: Attempt): void;
}

export class EndpointSender {
  readonly #options: SenderOptions;
  /** The next look begins with this account, so that each one has its turn. */
  #account = "";
  /** The last attempt failed: one event is sent at a look, until the receiver takes one. */
  #isFailing = false;
  #isStopped = false;
  #run: Promise<void> | null = null;
  #error: unknown = null;

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /** Starts a run unless one is under way. Throws the error of the last one. */
  start(): void {
    this.#run ??= this.#send()
      .catch((error: unknown) => {
        this.#error = error;
      })
      .finally(() => {
        this.#run = null;
      });
    const error = this.#error;
    this.#error = null;
    if (error !== null) throw error;
  }

  /** Resolves when the requests under way have ended and are recorded. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#run;
    await this.#options.receiver.close();
  }

  /** Sends until nothing is due, or an attempt fails. */
  async #send(): Promise<void> {
    const { events, name, nowMs, claimMs, onDead } = this.#options;
    while (!this.#isStopped) {
      const numbers = await this.#due();
      if (numbers.length === 0) return;
      const claimed = await events.claim(name, numbers, nowMs(), nowMs() + claimMs);
      if (claimed.length === 0) return;
      const attempts = await Promise.all(claimed.map((event) => this.#attempt(event)));
      await events.record(name, attempts);
      for (const attempt of attempts) if (attempt.state === "dead") onDead(attempt);
      if (attempts.some(({ state }) => state === "delivered")) this.#isFailing = false;
      else if (attempts.some(({ state }) => state !== "skipped")) this.#isFailing = true;
      if (this.#isFailing) return;
    }
  }

  /** Returns the events of the next accounts whose first event is due. */
  async #due(): Promise<number[]> {
    const { events, name, nowMs, slots } = this.#options;
    const begin = this.#account;
    const firsts = await events.firsts(name, begin, accountsMax);
    const max = this.#isFailing ? 1 : slots;
    const due = firsts.filter(({ dueMs }) => dueMs <= nowMs()).slice(0, max);
    const lastDue = due[max - 1];
    const end = lastDue === undefined ? accountsMax : firsts.indexOf(lastDue) + 1;
    const last = firsts[Math.min(end, accountsMax - 1)];
    this.#account = last?.account ?? "";
    // Accounts before this one may have events too.
    if (due.length === 0 && begin !== "" && last === undefined) return await this.#due();
    return due.map(({ number }) => number);
  }

  async #attempt(event: ClaimedEvent): Promise<Attempt> {
    const { receiver, name, nowMs, signal, onAttempt } = this.#options;
    const { kind, status, text: answer, retryAfterMs } = await receiver.send(event, signal);
    onAttempt(name, kind);
    const { number } = event;
    const attempts = event.attempts + 1;
    const attempt = { number, attempts, nextMs: 0, triedMs: nowMs(), status, answer };
    if (kind !== "failed") return { ...attempt, state: kind };
    if (attempts >= attemptsMax) return { ...attempt, state: "dead" };
    const pauseMs = Math.max(pauseAfter(attempts), retryAfterMs);
    return { ...attempt, state: "pending", nextMs: attempt.triedMs + pauseMs };
  }
}

function pauseAfter(attempts: number): number {
  const ms = firstPausesMs[attempts - 1] ?? laterPauseMs;
  return Math.round(ms * (1 + jitter * Math.random()));
}
