/**
 * The other side of worker.ts: asks a thread, and matches its answers to the calls by number.
 *
 * A thread that dies (it ran out of memory, say) takes nothing along: what it had not answered is rejected with a
 * `StoreUnavailableError`, which the ledger sends again, and the next call starts another one.
 */
import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { OperatorError } from "../../errors.ts";
import { StoreUnavailableError } from "../../ledger/retry.ts";
import {
  type Answer,
  type Calls,
  type Fault,
  openedId,
  type ReaderCalls,
  type SqliteThreadData,
  type WriterCalls,
} from "./thread.ts";

/** `C`: what the thread of this role can be asked. */
export class Remote<C extends WriterCalls | ReaderCalls> {
  readonly #data: SqliteThreadData;
  #thread: Thread | null = null;
  #closed = false;

  constructor(data: SqliteThreadData) {
    this.#data = data;
  }

  /** Starts the thread, which else the first call does. Rejects with the reason where the file cannot be opened. */
  async open(): Promise<void> {
    await this.#running().opened;
  }

  call<M extends keyof C & keyof Calls>(
    method: M,
    ...args: Parameters<Calls[M]>
  ): Promise<ReturnType<Calls[M]>> {
    if (this.#closed) return Promise.reject(storeClosed());
    return this.#running().call(method, args);
  }

  /** Resolves when all calls have been answered and the thread has ended. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#thread?.close();
  }

  #running(): Thread {
    if (this.#thread === null || this.#thread.ended) this.#thread = new Thread(this.#data);
    return this.#thread;
  }
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

class Thread {
  /** Settles when the file is open, or with the reason why it is not. */
  readonly opened: Promise<unknown>;
  readonly #role: string;
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  readonly #exited: Promise<void>;
  #lastId = openedId;
  #ended = false;
  #closed: Promise<void> | null = null;

  constructor(data: SqliteThreadData) {
    // Run from the sources and from what tsc emits: the worker's file ends as this one does.
    const file = new URL(`./worker${extname(import.meta.filename)}`, import.meta.url);
    this.#role = data.role;
    this.opened = this.#expect(openedId);
    // Calls that came before are told as well.
    this.opened.catch((error: Error) => this.#end(error));
    this.#worker = new Worker(file, { workerData: data });
    this.#worker.on("message", (answer: Answer) => this.#settle(answer));
    this.#worker.on("error", (error) => this.#end(error));
    this.#exited = new Promise((resolve) => {
      this.#worker.on("exit", () => {
        this.#end();
        resolve();
      });
    });
  }

  /** Whether it answers nothing any more. */
  get ended(): boolean {
    return this.#ended;
  }

  call<M extends keyof Calls>(method: M, args: Parameters<Calls[M]>): Promise<ReturnType<Calls[M]>> {
    this.#lastId += 1;
    const answer = this.#expect(this.#lastId);
    this.#worker.postMessage({ id: this.#lastId, method, args });
    // The thread answers a call with what `Calls` says; both ends are this project's.
    return answer as Promise<ReturnType<Calls[M]>>;
  }

  async close(): Promise<void> {
    // One that dies on the way has lost nothing: whatever it has answered is on disk.
    const unlessEnded = (error: unknown) => {
      if (!this.#ended) throw error;
    };
    if (!this.#ended) this.#closed ??= this.call("close", []).catch(unlessEnded);
    await this.#closed;
    await this.#exited;
  }

  #expect(id: number): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#pending.set(id, { resolve, reject });
    return promise;
  }

  #settle(answer: Answer): void {
    const pending = this.#pending.get(answer.id);
    this.#pending.delete(answer.id);
    if ("value" in answer) pending?.resolve(answer.value);
    else pending?.reject(errorOf(answer.error));
  }

  #end(cause?: Error): void {
    this.#ended = true;
    const error = new StoreUnavailableError(`the ${this.#role} of the database has stopped`, { cause });
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }
}

export function storeClosed(): Error {
  return new Error("the store is closed");
}

function errorOf({ kind, message, stack, mayBeDone }: Fault): Error {
  switch (kind) {
    case "operator":
      return new OperatorError(message);
    case "unavailable":
      return new StoreUnavailableError(message, { mayBeDone });
    case "defect": {
      const error = new Error(message);
      error.stack = stack;
      return error;
    }
  }
}
