/**
 * Calls the functions of a thread (worker.ts), and matches the answers to the calls by number.
 *
 * A thread that dies, for lack of memory for example, loses nothing: its unanswered calls are
 * rejected with a `StoreUnavailableError`, so the ledger sends them again, and the next call
 * starts another thread.
 */
import { extname } from "node:path";
import type { Worker } from "node:worker_threads";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { startThread } from "../../threads/start.ts";
import { type Calls, type Fault, openedId, type SqliteThreadData, type ThreadReply } from "./thread.ts";

export class Remote {
  readonly #data: SqliteThreadData;
  #thread: Thread | null = null;
  #isClosed = false;

  constructor(data: SqliteThreadData) {
    this.#data = data;
  }

  /** Starts the thread; otherwise the first call does. Rejects if the file cannot be opened. */
  async open(): Promise<void> {
    await this.#running().opened;
  }

  call<M extends keyof Calls>(method: M, ...args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    if (this.#isClosed) return Promise.reject(storeClosed());
    return this.#running().call(method, args);
  }

  /** Resolves when all calls are answered and the thread has ended. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread?.close();
  }

  /** Ends the thread at once. Unanswered calls are rejected. */
  async terminate(): Promise<void> {
    this.#isClosed = true;
    await this.#thread?.terminate();
  }

  #running(): Thread {
    if (this.#thread === null || this.#thread.isEnded) this.#thread = new Thread(this.#data);
    return this.#thread;
  }
}

/** One run of worker.ts. */
class Thread {
  /** Settles when the file is open, or with the reason why it is not. */
  readonly opened: Promise<unknown>;
  readonly #role: string;
  readonly #worker: Worker;
  readonly #pending = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #exited: Promise<void>;
  #lastId = openedId;
  #isEnded = false;
  #closed: Promise<void> | null = null;

  constructor(data: SqliteThreadData) {
    // The worker's file has the ending of this one, in the sources and in the output of tsc.
    const file = new URL(`./worker${extname(import.meta.filename)}`, import.meta.url);
    this.#role = data.role;
    this.opened = this.#expect(openedId);
    // Rejects the calls that were sent before.
    this.opened.catch((error: Error) => this.#end(error));
    this.#worker = startThread(file, data);
    this.#worker.on("message", (answer: ThreadReply) => this.#settle(answer));
    this.#worker.on("error", (error) => this.#end(error));
    const exited = Promise.withResolvers<void>();
    this.#exited = exited.promise;
    this.#worker.on("exit", () => {
      this.#end();
      exited.resolve();
    });
  }

  /** True if the thread answers no more calls. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  call<M extends keyof Calls>(method: M, args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    this.#lastId += 1;
    const answer = this.#expect(this.#lastId);
    this.#worker.postMessage({ id: this.#lastId, method, args });
    // The thread answers with the type that `Calls` has; worker.ts implements that interface.
    return answer as Promise<ReturnType<Calls[M]>>;
  }

  async close(): Promise<void> {
    // A thread that dies here loses nothing: everything that it answered is on disk.
    const unlessEnded = (error: unknown) => {
      if (!this.#isEnded) throw error;
    };
    if (!this.#isEnded) this.#closed ??= this.call("close", []).catch(unlessEnded);
    await this.#closed;
    await this.#exited;
  }

  async terminate(): Promise<void> {
    await this.#worker.terminate();
    await this.#exited;
  }

  #expect(id: number): Promise<unknown> {
    const pending = Promise.withResolvers<unknown>();
    this.#pending.set(id, pending);
    return pending.promise;
  }

  #settle(answer: ThreadReply): void {
    const pending = this.#pending.get(answer.id);
    this.#pending.delete(answer.id);
    if ("value" in answer) pending?.resolve(answer.value);
    else pending?.reject(errorOf(answer.error));
  }

  #end(cause?: Error): void {
    this.#isEnded = true;
    const error = new StoreUnavailableError(`the ${this.#role} of the database has stopped`, { cause });
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }
}

export function storeClosed(): Error {
  return new Error("the store is closed");
}

function errorOf({ kind, message, stack, mayBeDone }: Fault): Error {
  if (kind === "operator") return new OperatorError(message);
  if (kind === "unavailable") return new StoreUnavailableError(message, { mayBeDone });
  return Object.assign(new Error(message), { stack });
}
