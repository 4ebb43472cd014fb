/**
 * Work that a service does regularly, beside requests: its name, its interval, and how its last
 * runs ended. Any number of processes may do the same work on one store.
 *
 * Guarantees that two runs of a job do not overlap, and that a failed run is tried again.
 */
import { messageOf } from "./errors.ts";
import type { EpochMs } from "./units.ts";
import { visibleLine } from "./visible-text.ts";

/** A run that takes longer hangs. Most runs take milliseconds. */
export const hangsAfterMs = 60_000;
const messageCharactersMax = 500;
/** Idle jobs run after this time. An alert would take one that never runs for a failing one. */
const restMs = 60_000;

export interface JobOptions {
  name: string;
  everyMs: number;
  /** Does the work once. It should end early if `isStopped()`. */
  run(isStopped: () => boolean): Promise<void>;
  /** There is no work before the next `wake()`: the job rests. */
  isIdle?(): boolean;
  onSuccess?(): void;
  onError(error: unknown): void;
}

export interface JobState {
  name: string;
  everyMs: number;
  /** `failing`: the last run failed. `hanging`: a run has not ended for a minute. */
  state: "ok" | "failing" | "hanging";
  /** When this state began. */
  sinceMs: EpochMs;
  /** Null before the first success. */
  lastSuccessMs: EpochMs | null;
  /** Kept after a success. */
  lastError: { atMs: EpochMs; message: string } | null;
}

interface Run {
  beganMs: EpochMs;
  /** Monotonic. */
  beganAt: number;
  ended: Promise<void>;
}

export class Job {
  readonly #options: JobOptions;
  #timer: NodeJS.Timeout | undefined;
  #isResting = false;
  #run: Run | null = null;
  #next: Promise<void> | null = null;
  #isStopped = false;
  #isFailing = false;
  /** When the job began to work, or to fail. */
  #sinceMs: EpochMs = Date.now();
  #lastSuccessMs: EpochMs | null = null;
  #lastError: JobState["lastError"] = null;

  /**
   * Runs at once, and then every `everyMs` unless a run is under way. One that is idle runs every
   * `restMs`, so that a process without work seldom wakes up.
   */
  constructor(options: JobOptions) {
    this.#options = options;
    void this.run();
    this.#wait();
  }

  #wait(): void {
    const { everyMs, isIdle = () => false } = this.#options;
    this.#isResting = everyMs < restMs && isIdle();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        void this.run();
        this.#wait();
      },
      this.#isResting ? restMs : everyMs,
    );
  }

  /** There is work again. */
  wake(): void {
    if (this.#isResting && !this.#isStopped) this.#wait();
  }

  get state(): JobState {
    const { name, everyMs } = this.#options;
    const run = this.#run;
    const hangs = run !== null && performance.now() - run.beganAt > hangsAfterMs;
    return {
      name,
      everyMs,
      lastSuccessMs: this.#lastSuccessMs,
      lastError: this.#lastError,
      state: hangs ? "hanging" : this.#isFailing ? "failing" : "ok",
      sinceMs: hangs ? run.beganMs : this.#sinceMs,
    };
  }

  /** Resolves after the run that is under way, or that starts now. */
  async run(): Promise<void> {
    if (this.#isStopped) return;
    this.#run ??= { beganMs: Date.now(), beganAt: performance.now(), ended: this.#attempt() };
    await this.#run.ended;
  }

  /** Resolves after a run that starts now, or after the run under way. */
  async runAfresh(): Promise<void> {
    const underWay = this.#run?.ended;
    if (underWay === undefined) return await this.run();
    this.#next ??= underWay.then(() => {
      this.#next = null;
      return this.run();
    });
    await this.#next;
  }

  /** Resolves when the run under way has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#run?.ended;
  }

  async #attempt(): Promise<void> {
    const { run, onSuccess, onError } = this.#options;
    try {
      // An error that `run` throws before its first await is a failure too.
      await new Promise<void>((resolve) => resolve(run(() => this.#isStopped)));
      this.#lastSuccessMs = Date.now();
      this.#ended(false, this.#lastSuccessMs);
      onSuccess?.();
    } catch (error) {
      const message = visibleLine(messageOf(error).slice(0, messageCharactersMax));
      this.#lastError = { atMs: Date.now(), message };
      this.#ended(true, this.#lastError.atMs);
      onError(error);
    }
  }

  #ended(isFailing: boolean, atMs: EpochMs): void {
    this.#run = null;
    if (isFailing !== this.#isFailing) this.#sinceMs = atMs;
    this.#isFailing = isFailing;
  }
}
