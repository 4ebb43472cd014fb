/**
 * The time of a simulated world: one queue of events, ordered by time. Events of one time run in
 * the order in which they were added.
 */
import { setImmediate as turn } from "node:timers/promises";

/** The process that events belong to. Events of a process that has ended never run. */
export interface Owner {
  isGone: boolean;
}

/** The place of a timer in the queue. An older place than that of its timer counts no longer. */
interface Event {
  atMs: number;
  order: number;
  timer: Timer;
}

/** An event that waits. It has what programs expect of a timer of Node. */
export class Timer {
  /** Null after it has run or was cleared. */
  run: (() => void) | null;
  readonly owner: Owner | null;
  readonly delayMs: number;
  readonly isRepeated: boolean;
  /** The place that counts. */
  order = 0;
  #isRef = true;
  readonly #timeline: Timeline;

  constructor(timeline: Timeline, options: Pick<Timer, "run" | "owner" | "delayMs" | "isRepeated">) {
    this.#timeline = timeline;
    this.run = options.run;
    this.owner = options.owner;
    this.delayMs = options.delayMs;
    this.isRepeated = options.isRepeated;
  }

  ref(): this {
    this.#isRef = true;
    return this;
  }

  /** The process ends although the timer waits. */
  unref(): this {
    this.#isRef = false;
    return this;
  }

  hasRef(): boolean {
    return this.#isRef;
  }

  refresh(): this {
    if (this.run !== null) this.#timeline.queue(this);
    return this;
  }

  close(): this {
    this.run = null;
    return this;
  }

  [Symbol.dispose](): void {
    this.run = null;
  }
}

export class Timeline {
  /** Milliseconds since the epoch, with fractions. */
  nowMs: number;
  /** Events that have run. */
  count = 0;
  #order = 0;
  /** A binary heap: the first event is the next one. */
  readonly #heap: Event[] = [];

  constructor(startMs: number) {
    this.nowMs = startMs;
  }

  /** Runs something later, unless its owner is gone by then. */
  after(delayMs: number, run: () => void, owner: Owner | null = null): Timer {
    return this.#add({ run, delayMs, isRepeated: false, owner });
  }

  every(delayMs: number, run: () => void, owner: Owner | null = null): Timer {
    return this.#add({ run, delayMs, isRepeated: true, owner });
  }

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  #add(options: Pick<Timer, "run" | "owner" | "delayMs" | "isRepeated">): Timer {
    // As in Node, an invalid delay is 0.
    const delayMs = options.delayMs > 0 ? options.delayMs : 0;
    const timer = new Timer(this, { ...options, delayMs });
    this.queue(timer);
    return timer;
  }

  /** The timer runs after its delay from now on. */
  queue(timer: Timer): void {
    this.#order += 1;
    timer.order = this.#order;
    this.#push({ atMs: this.nowMs + timer.delayMs, order: timer.order, timer });
  }

  /** The timers of a process that keep it from ending. */
  timersOf(owner: Owner): Timer[] {
    const waiting = this.#heap.filter(({ timer, order }) => timer.run !== null && timer.order === order);
    return waiting.map(({ timer }) => timer).filter((timer) => timer.owner === owner && timer.hasRef());
  }

  /** Runs events until `isOver` returns true, or there are no more. */
  async run(isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const event = this.#pop();
      if (event === undefined) return;
      const { timer } = event;
      const { run, owner } = timer;
      if (run === null || timer.order !== event.order || owner?.isGone === true) continue;
      this.nowMs = Math.max(this.nowMs, event.atMs);
      if (timer.isRepeated) this.queue(timer);
      else timer.run = null;
      this.count += 1;
      run();
      // All that follows from the event happens before the next one.
      await turn();
    }
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || !isBefore(event, parent)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = event;
  }

  #pop(): Event | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      const [left, right] = [heap[below], heap[below + 1]];
      if (left === undefined) break;
      let child = left;
      if (right !== undefined && isBefore(right, left)) {
        child = right;
        below += 1;
      }
      if (!isBefore(child, last)) break;
      heap[at] = child;
      at = below;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.atMs === other.atMs ? one.order < other.order : one.atMs < other.atMs;
}
