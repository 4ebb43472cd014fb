/**
 * Counts prompts in a thread with the tokenizer of a model.
 *
 * Guarantees: counting never fails and takes at most `waitMs`, queue included. Accounts take
 * turns. A prompt that takes longer than `jobMsMax` ends the thread, and a new one is started. A
 * file that takes longer than `loadMsMax` to load is refused.
 */
import { extname } from "node:path";
import type { Worker } from "node:worker_threads";
import type { Message } from "../../chat/engine.ts";
import { FairQueue } from "../../collections.ts";
import { messageOf, OperatorError } from "../../errors.ts";
import type { TokenizerFiles } from "../../model-files/tokenizer-files.ts";
import { startThread } from "../../threads/start.ts";
import type { EngineLog } from "../engine-log.ts";
import type { TemplateFields, TokenizedPrompt } from "./loaded-tokenizer.ts";
import type { CountCall, TokenizerReply } from "./tokenizer-thread.ts";

interface TokenizerOptions {
  files: TokenizerFiles;
  log: EngineLog;
  /** For tests: another limit for one prompt. */
  jobMsMax?: number;
  /** For tests: another limit for loading. */
  loadMsMax?: number;
}

interface CountRequest {
  accountId: string;
  messages: readonly Message[];
  fields: TemplateFields;
}

/**
 * A request for a count waits for `waitMs`; then the bound of the prompt is held. A thread that
 * ended is replaced after `restartMs`.
 */
const times = { waitMs: 1000, jobMsMax: 5000, restartMs: 1000, loadMsMax: 60_000 };
/** Larger prompts take longer than `waitMs`. */
const charactersMax = 262_144;
const queueMax = 256;

interface Job {
  call: CountCall;
  /** Null: not counted. Called once; later calls have no effect. */
  done(prompt: TokenizedPrompt | null): void;
}

export class Tokenizer {
  readonly #options: TokenizerOptions;
  readonly #queue = new FairQueue<Job>(queueMax);
  #worker: Worker | null;
  #job: Job | null = null;
  #jobTimer: NodeJS.Timeout | undefined;
  #restartTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  private constructor(options: TokenizerOptions, worker: Worker) {
    this.#options = options;
    this.#worker = worker;
    this.#adopt(worker);
  }

  /** Throws an `OperatorError` if a file is missing or invalid. */
  static async start(options: TokenizerOptions): Promise<Tokenizer> {
    return new Tokenizer(options, await loadThread(options));
  }

  /** Returns null if the prompt was not counted in time. */
  count({ accountId, messages, fields }: CountRequest, signal: AbortSignal): Promise<TokenizedPrompt | null> {
    const characters = messages.reduce((sum, { content }) => sum + content.length, 0);
    if (this.#worker === null || characters > charactersMax || signal.aborted) return Promise.resolve(null);
    return new Promise((resolve) => {
      const done = (prompt: TokenizedPrompt | null) => {
        clearTimeout(timer);
        signal.removeEventListener("abort", giveUp);
        resolve(prompt);
      };
      const call = { messages: messages.map(({ role, content }) => ({ role, content })), fields };
      const job: Job = { call, done };
      const giveUp = () => {
        this.#queue.remove(accountId, job);
        done(null);
      };
      const timer = setTimeout(giveUp, times.waitMs);
      signal.addEventListener("abort", giveUp, { once: true });
      if (this.#queue.push(accountId, job)) this.#next();
      else done(null);
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#restartTimer);
    await this.#drop();
  }

  #next(): void {
    if (this.#worker === null || this.#job !== null) return;
    const job = this.#queue.shift();
    if (job === undefined) return;
    this.#job = job;
    this.#worker.postMessage(job.call);
    this.#jobTimer = setTimeout(
      () => this.#lose("a prompt took too long to count"),
      this.#options.jobMsMax ?? times.jobMsMax,
    );
  }

  #adopt(worker: Worker): void {
    worker.on("message", (reply: TokenizerReply) => {
      clearTimeout(this.#jobTimer);
      const job = this.#job;
      this.#job = null;
      if (reply.kind === "failed") this.#warn(reply.message);
      job?.done(reply.kind === "counted" ? reply.prompt : null);
      this.#next();
    });
    worker.on("error", (error) => this.#lose(messageOf(error)));
  }

  /** Ends the thread, whose requests are not counted, and starts another one. */
  #lose(reason: string): void {
    if (this.#worker === null || this.#isClosed) return;
    this.#warn(reason);
    void this.#drop();
    this.#restartLater();
  }

  #restartLater(): void {
    this.#restartTimer = setTimeout(() => {
      loadThread(this.#options).then(
        (worker) => {
          if (this.#isClosed) return void worker.terminate();
          this.#worker = worker;
          this.#adopt(worker);
        },
        (error: unknown) => {
          this.#warn(messageOf(error));
          if (!this.#isClosed) this.#restartLater();
        },
      );
    }, times.restartMs);
  }

  async #drop(): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    clearTimeout(this.#jobTimer);
    this.#job?.done(null);
    this.#job = null;
    for (const job of this.#queue.takeAll()) job.done(null);
    await worker?.terminate();
  }

  #warn(reason: string): void {
    this.#options.log.warn(
      { reason },
      "the tokenizer of a model did not count; such prompts are held for one token per byte",
    );
  }
}

async function loadThread({ files, loadMsMax = times.loadMsMax }: TokenizerOptions): Promise<Worker> {
  const module = new URL(`./tokenizer-thread${extname(import.meta.filename)}`, import.meta.url);
  const worker = startThread(module, files);
  const refusal = (reason: string) => new OperatorError(`tokenizer ${files.tokenizer} ${reason}`);
  let timer: NodeJS.Timeout | undefined;
  try {
    const reply = await new Promise<TokenizerReply>((resolve, reject) => {
      worker.once("message", resolve);
      // For example, the thread has no memory left.
      worker.once("error", (error) => reject(refusal(`did not load: ${messageOf(error)}`)));
      const late = refusal(`did not load within ${loadMsMax / 1000} s`);
      timer = setTimeout(() => reject(late), loadMsMax);
    });
    if (reply.kind === "loaded") return worker;
    throw reply.kind === "refused" ? new OperatorError(reply.message) : refusal("did not load");
  } catch (error) {
    await worker.terminate();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
