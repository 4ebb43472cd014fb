/**
 * The requests in progress: chat requests that are being answered, and requests that wait for
 * something first (their key, their body, a balance). Ends them when their client leaves or the
 * service stops.
 *
 * A client has left when its socket has ended or closed, whether or not a byte has been sent. Each
 * connection has one pair of listeners, however many requests it carries. The reason of an aborted
 * signal is a `Refusal` if the service ended the request, and a plain error if the client left.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { BusySet } from "../../collections.ts";
import { RequestStopped } from "../../errors.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";
import { type Pending, RunningRequest, shuttingDown } from "./running-request.ts";

/** Requests that were still in progress when they were given up. */
export interface Abandoned {
  /** Answered and settled, but not read to the end. */
  unread: number;
  /** Not settled: their charges may never be recorded. */
  unsettled: number;
}

export class RunningRequests {
  readonly #running = new BusySet<RunningRequest>();
  readonly #waiting = new BusySet<Pending>();
  readonly #bySocket = new WeakMap<Socket, Set<Pending>>();
  #retiring = false;
  #draining = false;
  #whenIdle: PromiseWithResolvers<void> | null = null;

  /** Chat requests that are being answered. */
  get count(): number {
    return this.#running.size;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /**
   * From now on every answer closes its connection, so that a balancer sends the client elsewhere.
   */
  retire(): void {
    this.#retiring = true;
  }

  /** Returns the headers about the connection, for an answer that is sent now. */
  connectionHeaders(): { connection?: "close" } {
    return this.#retiring ? { connection: "close" } : {};
  }

  /** Starts a chat request. If the service drains, its signal is aborted at once. */
  start({ socket }: IncomingMessage, response: ServerResponse, record: RequestRecord): RunningRequest {
    const running = new RunningRequest(socket, response, record, () => remove());
    const remove = this.#add(running, this.#running, socket);
    if (socket.destroyed) running.clientGone();
    else if (this.#draining) running.end(shuttingDown());
    return running;
  }

  /**
   * Waits for what a request needs before it can be answered. Returns null as soon as the client
   * leaves, and throws `shutting_down` as soon as the service drains: neither waits for a slow
   * store.
   */
  async waitUnlessGone<T>(
    { socket }: IncomingMessage,
    response: ServerResponse,
    ask: () => Promise<T>,
  ): Promise<T | null> {
    if (this.#draining) throw shuttingDown();
    if (socket.destroyed) return null;
    const { promise, resolve, reject } = Promise.withResolvers<T | null>();
    let isRefused = false;
    const waiting: Pending = {
      clientGone() {
        resolve(null);
        remove();
      },
      end(reason) {
        isRefused = true;
        reject(reason);
        // A drain waits until the client has got its refusal.
        response.once("close", remove);
      },
    };
    const remove = this.#add(waiting, this.#waiting, socket);
    const answered = () => {
      if (!isRefused) remove();
    };
    ask().finally(answered).then(resolve, reject);
    return await promise;
  }

  /** Returns whether a request of this connection is being answered. */
  busy(socket: Socket): boolean {
    const pending = this.#bySocket.get(socket) ?? [];
    return [...pending].some((each) => each instanceof RunningRequest);
  }

  /**
   * Refuses new requests and those that wait. Resolves when these clients have got their refusal,
   * and the running requests have ended or are abandoned.
   */
  drain(): Promise<void> {
    this.retire();
    this.#whenIdle ??= Promise.withResolvers();
    if (!this.#draining) {
      this.#draining = true;
      const reason = shuttingDown();
      for (const waiting of this.#waiting) waiting.end(reason);
    }
    this.#resolveIfIdle();
    return this.#whenIdle.promise;
  }

  /** Records of the chat requests that are being answered, in the order of their start. */
  list(): RequestRecord[] {
    return [...this.#running].flatMap(({ record, isWritten }) => (isWritten ? [] : [record]));
  }

  /**
   * Stops one chat request for an operator or a person, whom its receipt names. Its client gets
   * `request_stopped`. Returns false if it is not being answered here.
   */
  stopOne(requestId: string, by: string): boolean {
    for (const running of this.#running) {
      if (running.record.requestId !== requestId || running.isWritten) continue;
      running.end(new RequestStopped(by));
      return true;
    }
    return false;
  }

  /** Ends every running request at once. Its client gets `shutting_down`. */
  stop(): void {
    const reason = shuttingDown();
    for (const running of this.#running) running.end(reason);
  }

  /** Closes the connections of all running requests. `drain` does not wait for them any longer. */
  abandon(): Abandoned {
    const abandoned = { unread: 0, unsettled: 0 };
    for (const running of this.#running) {
      abandoned[running.isWritten ? "unread" : "unsettled"] += 1;
      running.disconnect();
    }
    this.#whenIdle?.resolve();
    return abandoned;
  }

  /** Adds a request to `all` and to its connection. Returns a function that removes it again. */
  #add<T extends Pending>(request: T, all: BusySet<T>, socket: Socket): () => void {
    const ofSocket = this.#ofSocket(socket);
    all.add(request);
    ofSocket.add(request);
    return () => {
      ofSocket.delete(request);
      all.delete(request);
      this.#resolveIfIdle();
    };
  }

  #resolveIfIdle(): void {
    if (this.#running.size === 0 && this.#waiting.size === 0) this.#whenIdle?.resolve();
  }

  #ofSocket(socket: Socket): Set<Pending> {
    return this.#bySocket.getOrInsertComputed(socket, () => {
      const requests = new Set<Pending>();
      const gone = () => {
        for (const request of requests) request.clientGone();
      };
      socket.once("end", gone);
      socket.once("close", gone);
      return requests;
    });
  }
}
