/**
 * The decode loop: continuous batching of all running jobs over the model's sequences.
 *
 * Each step evaluates one batch: the next token of every sequence that generates, and one chunk of one prompt; accounts
 * take turns (prompt-turns.ts). Then one token is sampled for each, and one report says what all of them made.
 *
 * Guarantees: every prompt has its turn, whatever jobs come and go; a job whose reader has not granted room for more events, or that has made what is paid for, rests, and no other with it; a stop
 * takes effect before the next step; a job that fails takes no other along, unless the batch itself failed. Every step
 * is reported as it begins, also one that only reads a prompt: the supervisor knows by that that the step before it has
 * ended. A paused job is in no batch and keeps its sampler and its text. It goes on as if it had not been paused, unless its
 * text had to leave the sequence and could not be copied: then that is evaluated again, in chunks like a prompt.
 * Does not queue by account and knows no limit on waiting jobs: the supervisor lets no more run than there are sequences.
 */
import type { TokenLogprob } from "../../../chat/engine.ts";
import { messageOf } from "../../../errors.ts";
import type { ThinkTags } from "../../text/thinking.ts";
import type { Vocabulary } from "../prompt/vocabulary.ts";
import type { JobEnding, JobProgress, JobSpec, TextEvent } from "../protocol.ts";
import type { Backend, BatchEntry, Sampler } from "./backend.ts";
import { CompletionText } from "./completion.ts";
import { Outbox } from "./outbox.ts";
import { PromptTurns } from "./prompt-turns.ts";
import { isRepeatable, samplerConfig } from "./sampling.ts";
import type { SavedStates } from "./saved-states.ts";
import { type Lease, SequencePool } from "./sequence-pool.ts";

export interface DecoderOptions {
  backend: Backend;
  vocabulary: Vocabulary;
  isEndOfTurn: (token: number) => boolean;
  thinkTags: ThinkTags | null;
  /** What closes the thinking by force; evaluated, but neither the model's nor counted. */
  closingTokens: Uint32Array;
  contextWindow: number;
  parallel: number;
  states: SavedStates;
  /** `batches`: the jobs in each decode since the last report. */
  report: (jobs: JobProgress[], batches: number[]) => void;
  /** `tookMs`: decode time that the job's pause and return have cost. */
  placed: (id: number, sequence: number, tookMs: number) => void;
}

interface Job {
  readonly spec: JobSpec;
  readonly lease: Lease;
  /** Evaluated in chunks before anything else: the prompt, or all of its text if that has to be evaluated again. */
  input: Uint32Array;
  readonly sampler: Sampler;
  readonly text: CompletionText;
  completionTokensMax: number;
  paidTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** To be evaluated after the input, before the next token can be sampled; empty until the first token has been made. */
  next: Uint32Array;
  /** Events that the reader still has room for. */
  room: number;
  /** The number of its prompt's last turn. */
  lastTurn: number;
}

export class Decoder {
  readonly #options: DecoderOptions;
  readonly #sequencePool: SequencePool;
  readonly #tagTokens: ReadonlySet<number>;
  readonly #jobs = new Map<number, Job>();
  readonly #waiting = new Map<number, JobSpec>();
  readonly #stopping = new Set<number>();
  readonly #outbox = new Outbox();
  #reportsAgain = false;
  #batches: number[] = [];
  readonly #turns = new PromptTurns();
  #isNoticed = false;
  #wake: (() => void) | undefined;

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#sequencePool = new SequencePool(options);
    const tagTokens = (options.thinkTags ?? []).map((tag) => options.vocabulary.markers.get(tag));
    this.#tagTokens = new Set(tagTokens.filter((token) => token !== undefined));
  }

  start(spec: JobSpec): void {
    this.#waiting.set(spec.id, spec);
    this.#notice();
  }

  grant(id: number, events: number): void {
    const job = this.#jobs.get(id);
    if (job !== undefined) job.room += events;
    this.#notice();
  }

  pay(id: number, paidTokens: number, isLast: boolean): void {
    const job = this.#jobs.get(id);
    const waiting = this.#waiting.get(id);
    if (job !== undefined) {
      job.paidTokens = paidTokens;
      if (isLast) job.completionTokensMax = Math.min(job.completionTokensMax, paidTokens);
    } else if (waiting !== undefined) {
      const maxTokens = isLast ? Math.min(waiting.maxTokens, paidTokens) : waiting.maxTokens;
      this.#waiting.set(id, { ...waiting, paidTokens, maxTokens });
    }
    this.#notice();
  }

  /** Without effect on a job that is not here (any more). */
  pause(id: number): void {
    const job = this.#jobs.get(id);
    if (job !== undefined) job.lease.isPaused = true;
  }

  resume(id: number): void {
    const job = this.#jobs.get(id);
    if (job !== undefined) job.lease.isPaused = false;
    this.#notice();
  }

  /** The job's last report, with the ending `stopped`, says that it is done; none comes if it has ended already. */
  stop(id: number): void {
    this.#stopping.add(id);
    this.#notice();
  }

  /** Something may have to be done: the loop looks again before it rests. */
  #notice(): void {
    this.#isNoticed = true;
    this.#wake?.();
  }

  async run(): Promise<never> {
    for (;;) {
      this.#isNoticed = false;
      const begun = [...this.#stopJobs(), ...this.#endAtBudget()];
      for (const job of this.#jobs.values())
        if (!job.lease.isPaused && job.lease.evicted !== null)
          await this.#restore(job, job.lease.evicted.tokens);
      if (this.#waiting.size > 0) begun.push(...(await this.#admit()));
      for (const progress of begun) this.#outbox.add(progress);
      // Before the next decode: where that kills the process, it must be known whose prompt it had.
      if (begun.length > 0) this.#report();
      const batch = this.#compose();
      if (batch.length === 0) {
        this.#report();
        // While a state was copied.
        if (this.#isNoticed) continue;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
        continue;
      }
      for (const progress of await this.#step(batch)) this.#outbox.add(progress);
    }
  }

  /** Reports what has been made. The rest of a large burst follows in the next turns of the event loop. */
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
      const job = this.#jobs.get(id);
      if (job !== undefined) ended.push(this.#end(job, [], { type: "stopped" }));
      else if (this.#waiting.delete(id)) {
        ended.push({
          id,
          events: [],
          cachedTokens: 0,
          completionTokens: 0,
          reasoningTokens: 0,
          ending: { type: "stopped" },
        });
      }
    }
    this.#stopping.clear();
    return ended;
  }

  /** Jobs that rested for want of pay and have learned that no more will come. */
  #endAtBudget(): JobProgress[] {
    const ended: JobProgress[] = [];
    for (const job of this.#jobs.values()) {
      if (job.completionTokens < job.completionTokensMax || job.completionTokens === 0) continue;
      ended.push(this.#end(job, job.text.end(), { type: job.text.stopped ? "stop" : "length" }));
    }
    return ended;
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
    for (const spec of this.#waiting.values()) {
      const { accountId, prompt, sampling } = spec;
      const wanted = { accountId, tokens: prompt.tokens, repeatable: isRepeatable(sampling) };
      const lease = await this.#sequencePool.acquire(wanted);
      if (lease === null) break;
      this.#options.placed(spec.id, lease.sequence.index, 0);
      // It may have been paid more while a paused job's state was copied.
      const job = this.#newJob(this.#waiting.get(spec.id) ?? spec, lease);
      this.#waiting.delete(spec.id);
      this.#jobs.set(spec.id, job);
      begun.push(progressOf(job, []));
    }
    return begun;
  }

  #newJob(spec: JobSpec, lease: Lease): Job {
    const { backend, contextWindow, thinkTags, vocabulary } = this.#options;
    return {
      spec,
      lease,
      input: spec.prompt.tokens,
      sampler: backend.newSampler(samplerConfig(spec.sampling, contextWindow)),
      text: new CompletionText({
        stop: spec.sampling.stop,
        thinkTags,
        thinking: spec.prompt.thinking,
        dropFirstSpace: vocabulary.dropFirstSpace,
      }),
      completionTokensMax: Math.min(spec.maxTokens, contextWindow - spec.prompt.tokens.length),
      paidTokens: spec.paidTokens,
      cachedTokens: lease.sequence.tokens.length,
      completionTokens: 0,
      next: new Uint32Array(0),
      room: spec.window,
      lastTurn: this.#turns.firstTurn,
    };
  }

  #compose(): { job: Job; entry: BatchEntry }[] {
    const batch: { job: Job; entry: BatchEntry }[] = [];
    const prefilling: Job[] = [];
    const answers = new Map<string, number>();
    for (const job of this.#jobs.values()) {
      const { lease, next } = job;
      if (lease.isPaused || lease.evicted !== null) continue;
      answers.set(lease.accountId, (answers.get(lease.accountId) ?? 0) + 1);
      if (isPrefilling(job)) prefilling.push(job);
      else if (job.room > 0 && job.completionTokens < job.paidTokens) {
        const entry = {
          sequence: lease.sequence.index,
          position: lease.sequence.tokens.length,
          tokens: next,
          sample: true,
        };
        batch.push({ job, entry });
      }
    }
    const reader = this.#turns.next(prefilling, (accountId) => answers.get(accountId) ?? 1);
    if (reader !== undefined) batch.push({ job: reader, entry: this.#chunkOf(reader) });
    return batch;
  }

  /** Chunks lie on a grid that begins with the prompt, so that the same prompt is always cut alike. */
  #chunkOf({ input, next, lease: { sequence } }: Job): BatchEntry {
    const { chunkTokens } = this.#options.backend;
    const position = sequence.tokens.length;
    const end = Math.min((Math.floor(position / chunkTokens) + 1) * chunkTokens, input.length);
    return {
      sequence: sequence.index,
      position,
      tokens: input.subarray(position, end),
      // Text that is evaluated again has its next token already.
      sample: end === input.length && next.length === 0,
    };
  }

  async #step(batch: readonly { job: Job; entry: BatchEntry }[]): Promise<JobProgress[]> {
    const { backend } = this.#options;
    const startedMs = performance.now();
    let logits: number[];
    try {
      const [first, ...others] = batch;
      const repeatable = first !== undefined && others.length === 0 && isRepeatable(first.job.spec.sampling);
      const decoding = backend.decode(
        batch.map(({ entry }) => entry),
        repeatable,
      );
      this.#batches.push(batch.length);
      // A report takes 0.1 to 0.4 ms of this thread; the decode, on another, need not wait for it.
      this.#report();
      logits = await decoding;
    } catch (cause) {
      return batch.map(({ job }) => {
        const ended = this.#end(job, [], { type: "failed", message: `decoding failed: ${messageOf(cause)}` });
        const { sequence } = job.lease;
        backend.truncate(sequence.index, 0);
        sequence.tokens.length = 0;
        sequence.repeatable = 0;
        return ended;
      });
    }
    const sampling: [job: Job, logits: number][] = [];
    for (const [index, { job, entry }] of batch.entries()) {
      this.#evaluated(job, entry, batch.length === 1, performance.now() - startedMs);
      if (entry.sample) sampling.push([job, logits[index] ?? -1]);
    }
    // llama.cpp puts its outputs in order when the first is asked for, without a lock: the others come after.
    const [first, ...others] = sampling;
    if (first === undefined) return [];
    const made = [await this.#sample(...first)];
    made.push(...(await Promise.all(others.map((other) => this.#sample(...other)))));
    return made;
  }

  #evaluated(job: Job, entry: BatchEntry, alone: boolean, tookMs: number): void {
    const { lease, spec } = job;
    const { sequence } = lease;
    const { chunkTokens } = this.#options.backend;
    const wasReading = isPrefilling(job);
    const wholeChunk = wasReading && entry.tokens.length === chunkTokens;
    if (alone && wholeChunk && sequence.repeatable === entry.position) sequence.repeatable += chunkTokens;
    for (const token of entry.tokens) sequence.tokens.push(token);
    if (!wasReading || lease.switchMs === null) return;
    lease.switchMs += tookMs;
    if (isPrefilling(job)) return;
    this.#options.placed(spec.id, sequence.index, lease.switchMs);
    lease.switchMs = null;
  }

  async #sample(job: Job, logits: number): Promise<JobProgress> {
    const { backend, isEndOfTurn } = this.#options;
    try {
      const token = await backend.sample(logits, job.sampler);
      if (isEndOfTurn(token)) return this.#end(job, job.text.end(), { type: "stop" });
      const count = job.spec.sampling.topLogprobs;
      const logprob =
        count === undefined || job.text.thinking ? undefined : await this.#logprob(logits, token, count);
      return this.#accept(job, token, logprob);
    } catch (cause) {
      return this.#end(job, [], { type: "failed", message: `sampling failed: ${messageOf(cause)}` });
    }
  }

  #accept(job: Job, token: number, logprob: TokenLogprob | undefined): JobProgress {
    const { closingTokens, contextWindow } = this.#options;
    const { text } = job;
    const { sequence } = job.lease;
    const { thinkingTokensMax } = job.spec.prompt;
    job.completionTokens += 1;
    const events = text.push(this.#bytesOf(token), logprob);
    if (text.stopped) return this.#end(job, events, { type: "stop" });
    if (job.completionTokens >= job.completionTokensMax) {
      return this.#end(job, [...events, ...text.end()], { type: text.stopped ? "stop" : "length" });
    }
    if (text.thinking && thinkingTokensMax !== undefined && text.reasoningTokens >= thinkingTokensMax) {
      text.closeThinking();
      job.next = Uint32Array.of(token, ...closingTokens);
    } else {
      job.next = Uint32Array.of(token);
    }
    // Only closing tags, which nobody counted in, can go beyond what was left of the window.
    if (sequence.tokens.length + job.next.length > contextWindow) {
      return this.#end(job, [...events, ...text.end()], { type: "length" });
    }
    job.room -= events.length;
    return progressOf(job, events);
  }

  #end(job: Job, events: TextEvent[], ending: JobEnding): JobProgress {
    this.#jobs.delete(job.spec.id);
    this.#sequencePool.release(job.lease);
    job.sampler.dispose();
    return { ...progressOf(job, events), ending };
  }

  async #logprob(logits: number, token: number, count: number): Promise<TokenLogprob> {
    const { logprob, top } = await this.#options.backend.candidates(logits, token, count);
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

  /** A tag may be a control token, which has no text otherwise. */
  #bytesOf(token: number): Uint8Array {
    const { vocabulary } = this.#options;
    return this.#tagTokens.has(token) ? vocabulary.nameBytesOf(token) : vocabulary.bytesOf(token);
  }
}

/** Whether some of its input is not in its sequence yet. */
function isPrefilling({ lease, input }: Job): boolean {
  return lease.sequence.tokens.length < input.length;
}

function progressOf(job: Job, events: TextEvent[]): JobProgress {
  return {
    id: job.spec.id,
    events,
    cachedTokens: job.cachedTokens,
    completionTokens: job.completionTokens,
    reasoningTokens: job.text.reasoningTokens,
  };
}
