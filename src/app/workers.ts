/**
 * The first process of a service with workers. It opens no database and answers no request. It
 * starts the workers, and again those that have died. It gives them their connections
 * (node:cluster) and signals, and carries the questions that they ask one another (peers.ts).
 *
 * One worker starts alone, so that the migration, the first key and every mistake of the start
 * come once. The service ends if that start fails, or if later starts fail again and again and no
 * worker is up: one that is may wait for the database with charges.
 */
import type { ChildProcess } from "node:child_process";
import cluster, { type Worker } from "node:cluster";
import { isDeepStrictEqual } from "node:util";
import { deserialize, serialize } from "node:v8";
import type { Logger } from "pino";
import { service } from "../actors.ts";
import type { Config } from "../config/load.ts";
import { fieldOf } from "../objects.ts";
import { lastingMetrics } from "../telemetry/instruments.ts";
import {
  type Followed,
  type FromWorker,
  followed,
  followMs,
  type ShownStart,
  type ToWorker,
} from "./worker-here.ts";

/** Pauses before a worker is started again, by the number of starts in a row that have failed. */
const pausesMs = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] as const;

interface Member {
  worker: Worker;
  /** It can be told and asked. */
  hasJoined: boolean;
  isUp: boolean;
  /** That of its welcome, or of its last reload. */
  config: Config;
  /** Its last answer to the question whose answers are kept: its metrics. */
  last: Uint8Array | null;
}

export class Workers {
  /** That of a worker that starts now. */
  #config: Config;
  readonly #logger: Logger;
  readonly #onUp: (shown: ShownStart) => void;
  readonly #members = new Map<number, Member>();
  readonly #pauses = new DisposableStack();
  /** What the workers that have died counted. */
  #departed: Promise<Uint8Array> | null = null;
  readonly #asked = new Map<number, (answer: Uint8Array | null) => void>();
  #asks = 0;
  #shown: ShownStart | null = null;
  #hasBeenUp = false;
  #isHungUp = false;
  #failures = 0;
  #isStopping = false;
  #exitCode = 0;
  readonly #ended = Promise.withResolvers<number>();

  /** `config`: of each worker. `onUp` is called once, when all workers are up. */
  constructor(config: Config, logger: Logger, onUp: (shown: ShownStart) => void) {
    this.#config = config;
    this.#logger = logger;
    this.#onUp = onUp;
  }

  /** Resolves with the exit code, when all workers have ended. */
  async run(): Promise<number> {
    cluster.setupPrimary({ serialization: "advanced" });
    this.#start();
    return await this.#ended.promise;
  }

  /** Passes on a signal that stops the service. */
  stop(signal: NodeJS.Signals): void {
    this.#isStopping = true;
    this.#pauses.dispose();
    for (const member of this.#members.values()) tell(member, { kind: "signal", signal });
    if (this.#members.size === 0) this.#ended.resolve(this.#exitCode);
  }

  /** One worker reloads, and the others follow it. During the start it waits for all. */
  hangUp(): void {
    const first = [...this.#members.values()].find(({ isUp }) => isUp && this.#hasBeenUp);
    this.#isHungUp = first === undefined;
    if (first !== undefined) tell(first, { kind: "signal", signal: "SIGHUP" });
  }

  #start(): void {
    const worker = cluster.fork();
    const member: Member = { worker, hasJoined: false, isUp: false, config: this.#config, last: null };
    this.#members.set(worker.id, member);
    closeLostConnections(worker.process);
    worker.on("message", (message: FromWorker) => this.#told(member, message));
    // A message to a worker that has just died. Its end is what counts.
    worker.on("error", (err) => this.#logger.debug({ err, worker: worker.id }, "a worker was not told"));
    worker.once("exit", (code: number | null, signal: string | null) => this.#exited(member, code, signal));
  }

  #told(member: Member, message: FromWorker): void {
    if (message.kind === "hello") {
      member.hasJoined = true;
      member.config = this.#config;
      tell(member, { kind: "welcome", config: this.#config });
      if (this.#isStopping) tell(member, { kind: "signal", signal: "SIGTERM" });
    } else if (message.kind === "up") this.#isUp(member, message.shown);
    else if (message.kind === "config") this.#config = member.config = message.config;
    else if (message.kind === "answer") this.#asked.get(message.id)?.(message.answer);
    else void this.#ask(member, message);
  }

  #isUp(member: Member, shown: ShownStart): void {
    this.#logger.info({ worker: member.worker.id, pid: member.worker.process.pid }, "a worker is up");
    member.isUp = true;
    this.#failures = 0;
    this.#shown ??= shown;
    if (this.#isHungUp && this.#hasBeenUp) this.hangUp();
    // The others have reloaded since its welcome, when it could not follow them yet.
    else if (!this.#isHungUp && !isDeepStrictEqual(member.config, this.#config)) {
      const argument = serialize({ by: service, config: this.#config } satisfies Followed);
      const asked = { kind: "ask", question: "reload", argument, own: null, waitMs: followMs } as const;
      void this.#answerOf(member, asked).then((answer) => {
        const reason: unknown = answer && deserialize(answer);
        if (reason !== followed)
          this.#logger.warn({ worker: member.worker.id, reason }, "a worker did not reload");
      });
    }
    if (this.#hasBeenUp || this.#isStopping) return;
    while (this.#members.size < this.#config.workers) this.#start();
    this.#hasBeenUp = [...this.#members.values()].every(({ isUp }) => isUp);
    if (!this.#hasBeenUp) return;
    this.#onUp(this.#shown);
    if (this.#isHungUp) this.hangUp();
  }

  #exited({ worker, isUp, last }: Member, code: number | null, signal: string | null): void {
    this.#members.delete(worker.id);
    if (last !== null) this.#departed = countersOf(last, this.#departed);
    if (!isUp) this.#failures += 1;
    const isAnyUp = [...this.#members.values()].some((member) => member.isUp);
    const pauseMs = isUp
      ? pausesMs[0]
      : (pausesMs[this.#failures] ?? (isAnyUp ? pausesMs.at(-1) : undefined));
    const died = { worker: worker.id, code, signal };
    if (this.#isStopping) this.#exitCode ||= code ?? 1;
    else if (this.#hasBeenUp && pauseMs !== undefined) {
      this.#logger.error({ ...died, pauseMs }, "a worker has died and is started again");
      const pause = setTimeout(() => this.#start(), pauseMs);
      this.#pauses.defer(() => clearTimeout(pause));
    } else {
      // Its last words are above this line.
      this.#logger.error(died, "a worker could not be started; the service stops");
      this.#exitCode = code || 1;
      this.stop("SIGTERM");
    }
    if (this.#isStopping && this.#members.size === 0) this.#ended.resolve(this.#exitCode);
  }

  async #ask(from: Member, { id, ...asked }: FromWorker & { kind: "ask" }): Promise<void> {
    const others = [...this.#members.values()].filter((each) => each !== from);
    const told = await Promise.all(others.map((member) => this.#answerOf(member, asked)));
    const answers = [...told];
    if (asked.own !== null) {
      from.last = asked.own;
      for (const [n, member] of others.entries()) {
        member.last = told[n] ?? member.last;
        // Those of a worker that has died meanwhile are among the departed.
        answers[n] = this.#members.has(member.worker.id) ? member.last : null;
      }
      if (this.#departed !== null) answers.push(await this.#departed);
    }
    // Workers that wait to be started again do not answer.
    while (answers.length < this.#config.workers - 1) answers.push(null);
    tell(from, { kind: "answers", id, answers });
  }

  async #answerOf(member: Member, asked: Omit<ToWorker & { kind: "ask" }, "id">): Promise<Uint8Array | null> {
    if (!member.hasJoined) return null;
    this.#asks += 1;
    const id = this.#asks;
    const { promise, resolve } = Promise.withResolvers<Uint8Array | null>();
    const late = setTimeout(resolve, asked.waitMs, null).unref();
    this.#asked.set(id, resolve);
    tell(member, { ...asked, id });
    const answer = await promise;
    clearTimeout(late);
    this.#asked.delete(id);
    return answer;
  }
}

/**
 * Node waits until a worker has accepted a connection, and forgets it if the worker dies first.
 * Its client would wait for ever. The messages are internal ones of Node.
 */
function closeLostConnections(child: ChildProcess): void {
  const given = new Map<unknown, unknown>();
  const { send } = child;
  Reflect.set(child, "send", (message: unknown, handle: unknown, ...rest: unknown[]) => {
    const isDead = child.exitCode !== null || child.signalCode !== null;
    if (fieldOf(message, "act") === "newconn") given.set(fieldOf(message, "seq"), handle);
    if (isDead) closeAll();
    return !isDead && Reflect.apply(send, child, [message, handle, ...rest]);
  });
  child.on("internalMessage", (message: unknown) => given.delete(fieldOf(message, "ack")));
  const closeAll = () => {
    for (const handle of given.values()) {
      const close = fieldOf(handle, "close");
      if (typeof close === "function") Reflect.apply(close, handle, []);
    }
    given.clear();
  };
  child.once("exit", closeAll);
}

/** Counters must not fall when a worker dies. */
async function countersOf(last: Uint8Array, before: Promise<Uint8Array> | null): Promise<Uint8Array> {
  const all = before === null ? [last] : [last, await before];
  return serialize(await lastingMetrics(all.map((each) => deserialize(each))));
}

function tell({ worker, hasJoined }: Member, message: ToWorker): void {
  if (hasJoined && worker.isConnected()) worker.send(message);
}
