/**
 * Sends the events of one endpoint, while this process has its lease.
 *
 * Guarantees: events of an account are sent in their order, the next one after an answer to the
 * one before. Every event is sent until it is delivered or set aside. A process that dies, or
 * loses its lease, sends an event at most once more, with the same id.
 *
 * If the receiver does not work, it gets one event after each pause of the schedule. If it refuses
 * one event and takes others, only the account of that event waits.
 */
import type { Attempt, DueEvent, EndpointRow, EventStore } from "../store/events.ts";
import type { EpochMs } from "../units.ts";
import type { Answer, Receiver } from "./receiver.ts";

const seconds = 1000;
const minutes = 60 * seconds;
const hours = 60 * minutes;

/** Pauses after each failure in a row, as the specification recommends. */
const pausesMs = [
  ...[5 * seconds, 5 * minutes, 30 * minutes],
  ...[2 * hours, 5 * hours, 10 * hours, 14 * hours, 20 * hours, 24 * hours],
] as const;
const attemptsMax = pausesMs.length + 1;
/** An endpoint that has failed for this time is parked: the sum of the pauses. */
const parkedAfterMs = pausesMs.reduce((sum, ms) => sum + ms, 0);
/** A refused event is set aside after this many attempts if others were taken meanwhile. */
const refusalsMax = 4;
/** Pauses are longer by up to this share, so that endpoints do not come in step. */
const jitter = 0.1;

const pageEvents = 500;
/** No further event begins after this time, so that results are stored soon. */
const roundMs = 1000;

interface SenderOptions {
  name: string;
  receiver: Receiver;
  events: EventStore;
  /** This process. */
  node: string;
  /** Elapsed time. */
  nowMs(): EpochMs;
  leaseMs: number;
  /** Events of different accounts at the same time. */
  slots: number;
  onAttempt(name: string, kind: Answer["kind"]): void;
  onParked(row: EndpointRow): void;
}

interface Sent {
  event: DueEvent;
  answer: Answer;
}

export class EndpointSender {
  readonly #options: SenderOptions;
  #isStopped = false;
  #run: Promise<void> | null = null;
  #error: unknown = null;

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  get name(): string {
    return this.#options.name;
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

  /** Resolves when the requests under way have ended and the lease is free. */
  async stop(): Promise<void> {
    const { events, name, node, receiver } = this.#options;
    this.#isStopped = true;
    await this.#run;
    await receiver.close();
    await events.release(name, node);
  }

  async #send(): Promise<void> {
    const { events, name, nowMs } = this.#options;
    while (!this.#isStopped) {
      const row = await this.#lead();
      if (row === null || row.parkedMs !== null || row.nextMs > nowMs()) return;
      const due = await events.due(name, nowMs(), pageEvents);
      if (due.length === 0) return;
      const sent = await this.#round(row.failures > 0 ? probeOf(due) : due);
      const next = this.#record(row, sent);
      await events.record(name, next.attempts);
      if (next.hasRecovered) await events.retryUnanswered(name, row.failures);
      const isSet = isChanged(row, next.row) && (await events.setEndpoint(next.row, row));
      if (!isSet || next.row.parkedMs === null) continue;
      // None of them was taken, so that it was not the fault of these events.
      await events.retrySetAside(name, next.row.failingMs ?? next.row.parkedMs);
      this.#options.onParked(next.row);
    }
  }

  /** Returns the endpoint if this process has its lease for longer than a round. */
  async #lead(): Promise<EndpointRow | null> {
    const { events, name, node, nowMs, leaseMs } = this.#options;
    const row = await events.endpoint(name);
    const isFree = row === null || row.node === node || row.leaseMs <= nowMs();
    if (!isFree) return null;
    if (row !== null && row.node === node && row.leaseMs > nowMs() + leaseMs / 2) return row;
    return await events.lead({ name, node, leaseMs: nowMs() + leaseMs }, nowMs());
  }

  /** Sends events of different accounts at the same time, and those of an account in order. */
  async #round(due: readonly DueEvent[]): Promise<Sent[]> {
    const { receiver, slots, name, onAttempt } = this.#options;
    const accounts = [...Map.groupBy(due, ({ account }) => account).values()];
    const endsAt = performance.now() + roundMs;
    const sent: Sent[] = [];
    let isWorking = true;
    const work = async () => {
      for (let events = accounts.shift(); events !== undefined; events = accounts.shift()) {
        for (const event of events) {
          if (this.#isStopped || !isWorking || performance.now() > endsAt) return;
          const answer = await receiver.send(event);
          onAttempt(name, answer.kind);
          sent.push({ event, answer });
          if (answer.kind === "failed" || answer.kind === "gone") isWorking = false;
          if (!isDone(answer)) break;
        }
      }
    };
    await Promise.all(Array.from({ length: slots }, work));
    return sent;
  }

  /** Decides what became of the events and of the endpoint. */
  #record(
    row: EndpointRow,
    sent: readonly Sent[],
  ): { attempts: Attempt[]; row: EndpointRow; hasRecovered: boolean } {
    const triedMs = this.#options.nowMs();
    // An event that is not to be sent says nothing about the receiver.
    const hasTaken = sent.some(({ answer }) => answer.kind === "delivered");
    const attempts = sent.map(({ event, answer }): Attempt => {
      const { number } = event;
      const account = event.account ?? "";
      const attempts = event.attempts + 1;
      const outcome = { number, account, attempts, triedMs, status: answer.status, answer: answer.text };
      if (answer.kind === "delivered" || answer.kind === "skipped")
        return { ...outcome, state: answer.kind, nextMs: 0 };
      const before = event.triedMs ?? triedMs;
      const wasTakenSince = row.failingMs === null || row.failingMs > before;
      // Without an answer, only what is taken at the same time shows that the receiver works.
      const othersPass = hasTaken || (answer.status !== null && wasTakenSince);
      const isRefused = answer.kind === "refused";
      const max = isRefused && othersPass ? refusalsMax : attemptsMax;
      if (attempts >= max && (othersPass || isRefused)) return { ...outcome, state: "set_aside", nextMs: 0 };
      return { ...outcome, state: "pending", nextMs: triedMs + this.#pauseMs(attempts) };
    });
    const failed = sent.filter(({ answer }) => !isDone(answer)).map(({ answer }) => answer);
    const [failure] = failed;
    if (hasTaken) {
      const healthy = { failures: 0, failingMs: null, nextMs: 0, problem: null };
      return { attempts, row: { ...row, ...healthy }, hasRecovered: row.failures > 0 };
    }
    if (failure === undefined) return { attempts, row, hasRecovered: false };
    const failingMs = row.failingMs ?? triedMs;
    const isGone = failed.some(({ kind }) => kind === "gone");
    const isParked = isGone || triedMs - failingMs >= parkedAfterMs;
    // A refusal is an answer: the events of other accounts need not wait.
    const isWorking = failed.every(({ kind }) => kind === "refused");
    const failures = isWorking ? row.failures : row.failures + 1;
    const askedMs = Math.max(0, ...failed.map(({ retryAfterMs }) => retryAfterMs ?? 0));
    const nextMs = isWorking ? 0 : triedMs + Math.max(this.#pauseMs(failures), askedMs);
    const problem = failure.status === null ? failure.text : `${failure.status} ${failure.text}`;
    return {
      attempts,
      row: { ...row, failures, failingMs, nextMs, parkedMs: isParked ? triedMs : null, problem },
      hasRecovered: false,
    };
  }

  #pauseMs(failures: number): number {
    const ms = pausesMs[Math.min(failures, pausesMs.length) - 1] ?? pausesMs[0];
    return Math.round(ms * (1 + jitter * Math.random()));
  }
}

function isDone({ kind }: Answer): boolean {
  return kind === "delivered" || kind === "skipped";
}

/**
 * Returns, of the first events of all accounts, the one with the fewest attempts: an event that
 * always fails is not tried again and again.
 */
function probeOf(due: readonly DueEvent[]): DueEvent[] {
  const firsts = [...Map.groupBy(due, ({ account }) => account).values()].flatMap(([first]) => first ?? []);
  return firsts.toSorted((one, other) => one.attempts - other.attempts).slice(0, 1);
}

function isChanged(before: EndpointRow, after: EndpointRow): boolean {
  return (
    before.failures !== after.failures ||
    before.failingMs !== after.failingMs ||
    before.nextMs !== after.nextMs ||
    before.parkedMs !== after.parkedMs ||
    before.problem !== after.problem
  );
}
