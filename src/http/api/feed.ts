/**
 * The feed of live pages: each follower gets the state of its topic at once, and then after each
 * change, until its session or its client ends the response.
 *
 * Guarantees that the topics of all followers are read together, about once a second and one read
 * at a time. Other topics are shown if one cannot be read. Without followers nothing is read.
 */
import type { FastifyReply } from "fastify";
import type { Job } from "../../job.ts";
import type { Jobs } from "../../jobs.ts";
import { FeedStream } from "./feed-stream.ts";

interface FeedOptions<Topic, State> {
  jobs: Jobs;
  /** Name of its job. */
  name: string;
  /** The log line of a failed read. */
  failure: string;
  /** Returns the state of each topic, read at most `ageMsMax` ago. Equal topics share a read. */
  read(topics: readonly Topic[], ageMsMax: number): readonly Promise<State>[];
  everyMs?: number;
}

interface Follower<Topic, State> {
  topic: Topic;
  show(state: State): void;
  /** It is new, or its last read failed. */
  isWaiting: boolean;
}

export class Feed<Topic, State> {
  readonly #read: FeedOptions<Topic, State>["read"];
  readonly #everyMs: number;
  readonly #job: Job;
  readonly #followers = new Set<Follower<Topic, State>>();
  #shownMs = Number.NEGATIVE_INFINITY;

  constructor({ jobs, name, failure, read, everyMs = 1_000 }: FeedOptions<Topic, State>) {
    this.#read = read;
    this.#everyMs = everyMs;
    const isIdle = () => this.#followers.size === 0;
    this.#job = jobs.start({ name, everyMs, failure, isIdle, run: () => this.#show() });
  }

  /** Answers with a stream of events. `show` sends a state of the topic to it. */
  follow(reply: FastifyReply, topic: Topic, show: (stream: FeedStream, state: State) => void): void {
    const stream = new FeedStream(reply);
    const follower = { topic, isWaiting: true, show: (state: State) => show(stream, state) };
    this.#followers.add(follower);
    stream.onEnd(() => this.#followers.delete(follower));
    this.#job.wake();
    void this.#job.runAfresh();
  }

  /** Shows all followers their states, or only those that wait if it has just shown the others. */
  async #show(): Promise<void> {
    const nowMs = performance.now();
    const isDue = nowMs - this.#shownMs >= this.#everyMs / 2;
    const shown = [...this.#followers].filter(({ isWaiting }) => isWaiting || isDue);
    if (shown.length === 0) return;
    if (isDue) this.#shownMs = nowMs;
    const topics = shown.map(({ topic }) => topic);
    // Timers are inexact: a state may be a little younger than the interval.
    const states = this.#read(topics, isDue ? this.#everyMs / 2 : this.#everyMs);
    const results = await Promise.allSettled(
      shown.map(async (follower, index) => {
        follower.isWaiting = true;
        const state = await states[index];
        if (state !== undefined) follower.show(state);
        follower.isWaiting = false;
      }),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }
}
