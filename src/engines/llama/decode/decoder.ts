/**
 * The decode loop: continuous batching of all running jobs over the model's sequences.
 *
 * Each step evaluates one batch: the next token of every sequence that generates, and one chunk of
 * one prompt. Accounts take turns with their prompts (prompt-turns.ts). Then each job samples one
 * token, and one report carries the output of all jobs.
 *
 * Guarantees:
 * - Every prompt gets its turn, whatever jobs arrive and end.
 * - A job waits for its reader and for its budget without delaying others.
 * - A stop takes effect before the next step.
 * - A job that fails ends alone, unless the whole batch failed.
 * - Every step is reported when it begins, even if it only evaluates a prompt. The supervisor
 *   concludes from the report that the previous step has ended.
 * - A paused job is in no batch. It keeps its sampler and its text, and continues as if it had not
 *   been paused.
 *
 * If the state of a paused job could not be saved, its text is evaluated again, like a prompt. The
 * supervisor starts no more jobs than there are sequences. Jobs are not queued by account here.
 */
import type { TokenLogprob } from "../../../chat/engine.ts";
import { invariant, messageOf } from "../../../errors.ts";
import { alternativesOf } from "../../sampling-limits.ts";
import type { JobProgress, JobSpec, ToChild } from "../protocol.ts";
import { Job, type JobContext, type Output } from "./job.ts";
import { Outbox } from "./outbox.ts";
import { PromptTurns } from "./prompt-turns.ts";
import { isRepeatable } from "./sampling.ts";
import type { SavedStates } from "./saved-states.ts";
import { SequencePool } from "./sequence-pool.ts";

interface DecoderOptions extends JobContext {
  parallel: number;
  states: SavedStates;
  /** `batches`: number of jobs in each decode since the last report. */
  report: (jobs: JobProgress[], batches: number[]) => void;
  /** `tookMs`: decode time that the job's pause and return have cost. */
  placed: (id: number, sequence: number, tookMs: number) => void;
}

/** Messages about jobs. Those about a job that has ended have no effect. */
type JobMessage = Exclude<ToChild, { type: "load" | "prepare" }>;

export class Decoder {
  readonly #options: DecoderOptions;
  readonly #sequencePool: SequencePool;
  readonly #jobs = new Map<number, Job>();
  readonly #waiting = new Map<number, JobSpec>();
  readonly #stopping = new Set<number>();
  readonly #outbox = new Outbox();
  #reportsAgain = false;
  #batches: number[] = [];
  readonly #turns = new PromptTurns();
  /** A message has arrived since the loop last looked. */
  #isNotified = false;
  #wake: (() => void) | undefined;

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#sequencePool = new SequencePool(options);
  }

  receive(message: JobMessage): void {
    const job = "id" in message ? this.#jobs.get(message.id) : undefined;
    if (message.type === "start") this.#waiting.set(message.job.id, message.job);
    else if (message.type === "stop") this.#stopping.add(message.id);
    else if (message.type === "grant") job?.grant(message.events);
    else if (message.type === "extendBudget") this.#extendBudget(message);
    else if (job !== undefined) job.lease.isPaused = message.type === "pause";
    this.#isNotified = true;
    this.#wake?.();
  }

  #extendBudget({ id, paidTokens, isLast }: Extract<JobMessage, { type: "extendBudget" }>): void {
    this.#jobs.get(id)?.extendBudget(paidTokens, isLast);
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    const maxTokens = isLast ? Math.min(waiting.maxTokens, paidTokens) : waiting.maxTokens;
    this.#waiting.set(id, { ...waiting, paidTokens, maxTokens });
  }

  async run(): Promise<never> {
    for (;;) {
      this.#isNotified = false;
      const changed = [...this.#stopJobs(), ...this.#endComplete()];
      for (const job of this.#jobs.values())
        if (!job.lease.isPaused && job.lease.evicted !== null)
          await this.#restore(job, job.lease.evicted.tokens);
      if (this.#waiting.size > 0) changed.push(...(await this.#admit()));
      for (const progress of changed) this.#outbox.add(progress);
      // If the decode kills the process, the supervisor must know whose prompt was in it.
      if (changed.length > 0) this.#report();
      const batch = this.#compose();
      if (batch.length > 0) {
        for (const progress of await this.#step(batch)) this.#outbox.add(progress);
        continue;
      }
      this.#report();
      // Messages may have arrived while a state was copied.
      if (this.#isNotified) continue;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }

  /** Reports all output. The rest of a large burst follows in later turns of the event loop. */
  #report(): void {
    const jobs = this.#outbox.take();
    if (jobs.length === 0 && this.#batches.length === 0) return;
    this.#options.report(jobs, this.#batches);
    this.#batches = [];
    if (this.#outbox.isEmpty || this.#reportsAgain) return;
    this.#reportsAgain = true;
    setImmediate(() => {
      this.#reportsAgain = false;
      this.#report();
    });
  }

  #stopJobs(): JobProgress[] {
    const ended: JobProgress[] = [];
    for (const id of this.#stopping) {
      const output: Output = { events: [], ending: { type: "stopped" } };
      const job = this.#jobs.get(id);
      if (job !== undefined) ended.push(this.#progress(job, output));
      else if (this.#waiting.delete(id))
        ended.push({ id, ...output, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 });
    }
    this.#stopping.clear();
    return ended;
  }

  /** Ends jobs that waited for their budget and got a lower limit instead. */
  #endComplete(): JobProgress[] {
    const complete = [...this.#jobs.values()].filter((job) => job.isComplete);
    return complete.map((job) => this.#progress(job, job.complete()));
  }

  async #restore(job: Job, tokens: readonly number[]): Promise<void> {
    const { lease, spec } = job;
    const input = tokens.length < job.input.length ? job.input : Uint32Array.from(tokens);
    const isWhole = await this.#sequencePool.restore(lease, input);
    if (isWhole === null) return;
    if (!isWhole) job.input = input;
    this.#options.placed(spec.id, lease.sequence.index, lease.switchMs ?? 0);
    lease.switchMs = isWhole ? null : (lease.switchMs ?? 0);
  }

  async #admit(): Promise<JobProgress[]> {
    const begun: JobProgress[] = [];
    for (const { id, accountId, prompt, sampling } of this.#waiting.values()) {
      const wanted = { accountId, tokens: prompt.tokens, repeatable: isRepeatable(sampling) };
      const lease = await this.#sequencePool.acquire(wanted);
      if (lease === null) break;
      this.#options.placed(id, lease.sequence.index, 0);
      // Read again: an `extendBudget` may have arrived while a paused job's state was copied.
      const spec = this.#waiting.get(id);
      invariant(spec !== undefined, "only this loop removes waiting jobs");
      const job = new Job(spec, lease, this.#turns.firstTurn, this.#options);
      this.#waiting.delete(id);
      this.#jobs.set(id, job);
      begun.push(job.progress({ events: [] }));
    }
    return begun;
  }

  #compose(): Job[] {
    const batch: Job[] = [];
    const prefilling: Job[] = [];
    const answers = new Map<string, number>();
    for (const job of this.#jobs.values()) {
      const { accountId, evicted, isPaused } = job.lease;
      if (isPaused || evicted !== null) continue;
      answers.set(accountId, (answers.get(accountId) ?? 0) + 1);
      if (job.isPrefilling) prefilling.push(job);
      else if (job.mayGenerate) batch.push(job);
    }
    const next = this.#turns.next(prefilling, (accountId) => answers.get(accountId) ?? 1);
    return next === undefined ? batch : [...batch, next];
  }

  async #step(batch: readonly Job[]): Promise<JobProgress[]> {
    const { backend } = this.#options;
    const startedMs = performance.now();
    const [first] = batch;
    const alone = batch.length === 1;
    const repeatable = alone && first !== undefined && isRepeatable(first.spec.sampling);
    const steps = batch.map((job) => ({ job, entry: job.entry() }));
    let logits: number[];
    try {
      const decoding = backend.decode(
        steps.map(({ entry }) => entry),
        repeatable,
      );
      this.#batches.push(batch.length);
      // A report takes 0.1 to 0.4 ms of this thread. The decode runs on another thread meanwhile.
      this.#report();
      logits = await decoding;
    } catch (cause) {
      return batch.map((job) => this.#fail(job, `decoding failed: ${messageOf(cause)}`));
    }
    const tookMs = performance.now() - startedMs;
    const sampling: [job: Job, logits: number][] = [];
    for (const [index, { job, entry }] of steps.entries()) {
      const wasPrefilling = job.isPrefilling;
      job.evaluated(entry, alone);
      if (wasPrefilling) this.#switchTook(job, tookMs);
      if (entry.sample) sampling.push([job, logits[index] ?? -1]);
    }
    // The first sample reorders llama.cpp's outputs without a lock, so the others wait for it.
    const outputs: JobProgress[] = [];
    for (const next of sampling.splice(0, 1)) outputs.push(await this.#sample(...next));
    outputs.push(...(await Promise.all(sampling.map((next) => this.#sample(...next)))));
    return outputs;
  }

  /** A failed batch leaves unknown contents in the sequences of its jobs, so they are emptied. */
  #fail(job: Job, message: string): JobProgress {
    const { sequence } = job.lease;
    const progress = this.#progress(job, { events: [], ending: { type: "failed", message } });
    this.#options.backend.truncate(sequence.index, 0);
    sequence.tokens.length = 0;
    sequence.repeatable = 0;
    return progress;
  }

  /** Adds the time of a step to a job's switch, and reports the total after the last step. */
  #switchTook({ isPrefilling, lease, spec }: Job, tookMs: number): void {
    if (lease.switchMs === null) return;
    lease.switchMs += tookMs;
    if (isPrefilling) return;
    this.#options.placed(spec.id, lease.sequence.index, lease.switchMs);
    lease.switchMs = null;
  }

  async #sample(job: Job, logits: number): Promise<JobProgress> {
    let output: Output;
    try {
      const token = await this.#options.backend.sample(logits, job.sampler);
      output = job.accept(token, await this.#logprob(job, logits, token));
    } catch (cause) {
      const message = `sampling failed: ${messageOf(cause)}`;
      output = { events: [], ending: { type: "failed", message } };
    }
    return this.#progress(job, output);
  }

  /** Returns a job's progress. Releases everything the job holds if this is its last output. */
  #progress(job: Job, output: Output): JobProgress {
    if (output.ending !== undefined) {
      this.#jobs.delete(job.spec.id);
      this.#sequencePool.release(job.lease);
      job.sampler.dispose();
    }
    return job.progress(output);
  }

  /** Undefined if none is asked for, and for tokens that are not part of the answer. */
  async #logprob(job: Job, logits: number, token: number): Promise<TokenLogprob | undefined> {
    const { backend, isEndOfTurn } = this.#options;
    const alternatives = alternativesOf(job.spec.sampling);
    if (alternatives === null || job.isThinking || isEndOfTurn(token)) return undefined;
    const { logprob, top } = await backend.candidates(logits, token, alternatives);
    return {
      ...this.#spelled(token),
      logprob,
      topLogprobs: top.map((candidate) => ({
        ...this.#spelled(candidate.token),
        logprob: candidate.logprob,
      })),
    };
  }

  #spelled(token: number): { token: string; bytes: number[] } {
    const bytes = Buffer.from(this.#options.vocabulary.nameBytesOf(token));
    return { token: bytes.toString("utf8"), bytes: [...bytes] };
  }
}
