/**
 * Runs audits of a service in the background. The database has one audit at a time and the last
 * result (audit-job.ts), which every process on it reports.
 *
 * A result that the database cannot take at once is stored by the next look. The end of the
 * process ends its audit, without waiting for it.
 */
import { randomUUID } from "node:crypto";
import { messageOf } from "../errors.ts";
import type { Job } from "../job.ts";
import type { Jobs } from "../jobs.ts";
import type { EpochMs } from "../units.ts";
import { type AuditJob, auditJobOf, type StoredAudit } from "./audit-job.ts";
import type { Store } from "./store.ts";

/** An audit of this process whose end is not stored yet. */
interface Run {
  id: string;
  startedMs: EpochMs;
  /** Null while the audit reads. */
  end: { audit: StoredAudit } | { failure: string } | null;
}

interface AuditRunnerOptions {
  jobs: Jobs;
  everyMs: number;
  /**
   * Called with the last result of the database, after the start and when there is another. Called
   * again if it rejects.
   */
  onResult(problems: number, atMs: EpochMs): Promise<void>;
  /** Called if an audit fails. */
  onError(error: unknown): void;
}

/** Longest reason that is stored. */
const reasonCharactersMax = 1000;

export class AuditRunner {
  readonly #store: Pick<Store, "audit" | "auditJobs" | "times">;
  readonly #options: AuditRunnerOptions;
  readonly #looks: Job;
  #run: Run | null = null;
  /** End of the last result that was reported. */
  #reportedMs: EpochMs | null = null;
  #isStopped = false;

  /** Looks at the job at once, and then every `everyMs`. */
  constructor(store: Pick<Store, "audit" | "auditJobs" | "times">, options: AuditRunnerOptions) {
    this.#store = store;
    this.#options = options;
    this.#looks = options.jobs.start({
      ...{ name: "follow_audit", everyMs: options.everyMs },
      failure: "the state of the audit could not be read or stored",
      run: () => this.#look(),
    });
  }

  /** Starts an audit, unless one runs already in any process. */
  async start(): Promise<AuditJob> {
    const run: Run = { id: randomUUID(), startedMs: this.#store.times().nowMs, end: null };
    if (await this.#store.auditJobs.begin(run.id, run.startedMs)) {
      this.#run = run;
      void this.#audit(run);
    }
    return await this.job();
  }

  async job(): Promise<AuditJob> {
    return auditJobOf(await this.#store.auditJobs.read(), this.#store.times().nowMs);
  }

  /** Ends the audit of this process. Its rows are not read to the end. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#looks.stop();
    if (this.#run === null) return;
    this.#run.end ??= { failure: "the process that ran the audit was stopped" };
    await this.#save(this.#run).catch(this.#options.onError);
  }

  async #audit(run: Run): Promise<void> {
    try {
      const report = await this.#store.audit();
      run.end ??= { audit: { ...report, startedMs: run.startedMs, endedMs: this.#store.times().nowMs } };
    } catch (error) {
      // The store ends its audits when it is closed.
      if (this.#isStopped) return;
      this.#options.onError(error);
      run.end ??= { failure: messageOf(error).slice(0, reasonCharactersMax) };
    }
    await this.#looks.runAfresh();
  }

  async #look(): Promise<void> {
    const { auditJobs } = this.#store;
    if (this.#run?.end) await this.#save(this.#run);
    else if (this.#run) await auditJobs.refresh(this.#run.id, this.#store.times().nowMs);
    const { lastEndedMs, problems } = await auditJobs.read();
    if (lastEndedMs === null || problems === null || lastEndedMs === this.#reportedMs) return;
    await this.#options.onResult(problems, lastEndedMs);
    this.#reportedMs = lastEndedMs;
  }

  async #save(run: Run): Promise<void> {
    const { auditJobs } = this.#store;
    if (run.end === null) return;
    if ("audit" in run.end) await auditJobs.finish(run.id, run.end.audit);
    else await auditJobs.fail(run.id, this.#store.times().nowMs, run.end.failure);
    // Another audit may have begun meanwhile.
    if (this.#run === run) this.#run = null;
  }
}
