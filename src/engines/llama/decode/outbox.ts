/**
 * Output of jobs that the decoder has not reported yet.
 *
 * Pure. Guarantees: a report has at most `eventsMax` events of each job, because text that was
 * held for a stop sequence is released as thousands of events at once. Output of one job keeps its
 * order, and its ending comes last.
 */
import type { JobProgress } from "../protocol.ts";

/** 128 events with 20 log-probabilities each take about 10 ms to send. */
const eventsMax = 128;

export class Outbox {
  /** No list is empty, and no item has more than `eventsMax` events. */
  readonly #byJob = new Map<number, JobProgress[]>();

  get isEmpty(): boolean {
    return this.#byJob.size === 0;
  }

  add(progress: JobProgress): void {
    const { ending, ...counts } = progress;
    const parts = this.#byJob.getOrInsert(progress.id, []);
    const { events } = progress;
    let from = 0;
    for (; events.length - from > eventsMax; from += eventsMax) {
      parts.push({ ...counts, events: events.slice(from, from + eventsMax) });
    }
    parts.push(from === 0 ? progress : { ...progress, events: events.slice(from) });
  }

  /** Takes the output for one report. */
  take(): JobProgress[] {
    const taken: JobProgress[] = [];
    for (const [id, parts] of this.#byJob) {
      let events = 0;
      for (let next = parts[0]; next !== undefined; next = parts[0]) {
        events += next.events.length;
        if (events > eventsMax) break;
        taken.push(next);
        parts.shift();
      }
      if (parts.length === 0) this.#byJob.delete(id);
    }
    return taken;
  }
}
