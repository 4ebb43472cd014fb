/**
 * The jobs of a process: one list for Health, their metrics, and their lines in the log.
 *
 * Guarantees one line when a job begins to fail, one for each other error, and one when it works
 * again.
 */
import type { Logger } from "pino";
import { messageOf } from "./errors.ts";
import { Job, type JobOptions, type JobState } from "./job.ts";

interface ListedJobOptions extends Pick<JobOptions, "name" | "everyMs" | "run" | "isIdle"> {
  /** The log line of a failed run, such as "usage could not be summed". */
  failure: string;
}

interface JobsOptions {
  logger: Pick<Logger, "info" | "error">;
  metrics: {
    jobStarted(name: string): void;
    jobEnded(name: string, outcome: "ok" | "failed"): void;
  };
}

export class Jobs {
  readonly #options: JobsOptions;
  readonly #jobs: Job[] = [];

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  /** Starts a job, which runs at once. */
  start({ failure, ...options }: ListedJobOptions): Job {
    const { logger, metrics } = this.#options;
    const { name } = options;
    let logged: string | null = null;
    metrics.jobStarted(name);
    const job = new Job({
      ...options,
      onSuccess: () => {
        metrics.jobEnded(name, "ok");
        if (logged !== null) logger.info({ job: name }, `the job ${name} works again`);
        logged = null;
      },
      onError: (err) => {
        metrics.jobEnded(name, "failed");
        const message = messageOf(err);
        if (message !== logged) logger.error({ err, job: name }, `${failure}; trying again`);
        logged = message;
      },
    });
    this.#jobs.push(job);
    return job;
  }

  /** In the order of their start. */
  states(): JobState[] {
    return this.#jobs.map(({ state }) => state);
  }

  /** Resolves when all runs under way have ended. */
  async stop(): Promise<void> {
    await Promise.all(this.#jobs.map((job) => job.stop()));
  }
}
