/**
 * A worker: one of the processes that share the listeners of a service. It gets its configuration
 * and signals from the first process (workers.ts), and asks the other workers through it.
 */
import cluster, { type Worker } from "node:cluster";
import { EventEmitter, once } from "node:events";
import type { Config } from "../config/load.ts";
import { type Asked, Peers } from "../peers.ts";
import type { StartupBanner } from "./startup-banner.ts";

/** What the first worker of a service shows. */
export interface ShownStart {
  banner: StartupBanner;
  signInCode: string | null;
}

type Answers = (Uint8Array | null)[];

export type ToWorker =
  | { kind: "welcome"; config: Config }
  | { kind: "signal"; signal: NodeJS.Signals }
  | ({ kind: "ask"; id: number } & Asked)
  | { kind: "answers"; id: number; answers: Answers };

export type FromWorker =
  | { kind: "hello" }
  | { kind: "up"; shown: ShownStart }
  /** The configuration after a reload. A worker that starts later begins with it. */
  | { kind: "config"; config: Config }
  | ({ kind: "ask"; id: number } & Asked)
  | { kind: "answer"; id: number; answer: Uint8Array | null };

/** The argument of the question `reload`: what another worker has applied. */
export interface Followed {
  by: string;
  config: Config;
}

/** The answer to it, if nothing went wrong: no reason. */
export const followed = "";

/** The longest time that a worker waits for the others: their plans may wait for the database. */
export const followMs = 60_000;

export class WorkerHere implements Disposable {
  readonly signals = new EventEmitter();
  readonly peers = new Peers((asked) => this.#ask(asked));
  readonly #worker: Worker;
  readonly #asked = new Map<number, (answers: Answers) => void>();
  #asks = 0;
  /** Its share of the configuration. */
  config: Config | null = null;

  /** Null: this process is no worker. */
  static async join(): Promise<WorkerHere | null> {
    if (cluster.worker === undefined) return null;
    const here = new WorkerHere(cluster.worker);
    here.tell({ kind: "hello" });
    await once(here.signals, "welcome");
    return here;
  }

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.on("message", (message: ToWorker) => void this.#told(message));
    // An answer that comes when the channel has closed is for nobody.
    worker.on("error", () => {});
    // A terminal sends them to all processes, and the first one passes them on.
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
  }

  /** Names the worker in the log. A worker that is started again has another number. */
  get number(): number {
    return this.#worker.id;
  }

  tell(message: FromWorker): void {
    this.#worker.send(message);
  }

  /** Lets the process end. */
  [Symbol.dispose](): void {
    this.#worker.disconnect();
  }

  #ask(asked: Asked): Promise<Answers> {
    this.#asks += 1;
    const { promise, resolve } = Promise.withResolvers<Answers>();
    this.#asked.set(this.#asks, resolve);
    this.tell({ kind: "ask", id: this.#asks, ...asked });
    return promise;
  }

  /** Keeps a signal that comes during the start until somebody listens. */
  #signalled(signal: NodeJS.Signals): void {
    if (this.signals.emit(signal, signal)) return;
    const listened = (name: string | symbol) => {
      if (name !== signal) return;
      this.signals.off("newListener", listened);
      queueMicrotask(() => this.signals.emit(signal, signal));
    };
    this.signals.on("newListener", listened);
  }

  async #told(message: ToWorker): Promise<void> {
    if (message.kind === "signal") this.#signalled(message.signal);
    else if (message.kind === "welcome") {
      this.config = message.config;
      this.signals.emit("welcome");
    } else if (message.kind === "answers") {
      this.#asked.get(message.id)?.(message.answers);
      this.#asked.delete(message.id);
    } else {
      const answer = await this.peers.answer(message.question, message.argument);
      this.tell({ kind: "answer", id: message.id, answer });
    }
  }
}
