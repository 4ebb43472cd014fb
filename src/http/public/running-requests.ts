/**
 * The chat requests that are being answered, and all requests that wait for something first (their key, a balance):
 * who must be told when a client goes away, and when the service stops.
 *
 * A client is gone when its socket has ended or closed, whether or not a byte has been sent: one listener pair per
 * connection, however many requests it carries. Reasons of the signals: a `Refusal` where the service ended the
 * request, a plain error where the client did.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Refusal } from "../../errors.ts";

export interface RunningRequest {
  readonly signal: AbortSignal;
  /** Nobody reads any more. */
  readonly gone: boolean;
  /** To be called when the last byte has been handed over; the request runs on until it is flushed or lost. */
  leave(): void;
}

/** Requests that were still running when they were given up. */
export interface Abandoned {
  /** Answered and settled, but not read to the end. */
  unread: number;
  /** Their charges are not recorded, and may never be. */
  unsettled: number;
}

export class RunningRequests {
  readonly #running = new Set<Running>();
  readonly #waiting = new Set<Waiting>();
  readonly #bySocket = new WeakMap<Socket, Set<Running | Waiting>>();
  #retiring = false;
  #draining = false;
  #whenIdle: PromiseWithResolvers<void> | null = null;

  get count(): number {
    return this.#running.size;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** From now on every answer closes its connection, so that its client comes back over another one. */
  retire(): void {
    this.#retiring = true;
  }

  /** Of an answer whose headers are sent now. */
  connectionHeaders(): { connection?: "close" } {
    return this.#retiring ? { connection: "close" } : {};
  }

  /** While draining, the signal is aborted from the start. */
  enter(request: IncomingMessage, response: ServerResponse): RunningRequest {
    const { socket } = request;
    const sameSocket = this.#watch(socket);
    const running = new Running(socket, response, () => {
      sameSocket.delete(running);
      this.#running.delete(running);
      this.#tellWhenIdle();
    });
    this.#running.add(running);
    sameSocket.add(running);
    if (socket.destroyed) running.clientGone();
    else if (this.#draining) running.end(shuttingDown());
    return running;
  }

  /**
   * Asks for what the request needs before anything else can be done for it. Null as soon as its client is gone, and
   * throws `shutting_down` as soon as the service drains: neither waits for a store that is away.
   */
  async need<T>(
    { socket }: IncomingMessage,
    response: ServerResponse,
    ask: () => Promise<T>,
  ): Promise<T | null> {
    if (this.#draining) throw shuttingDown();
    if (socket.destroyed) return null;
    const sameSocket = this.#watch(socket);
    const { promise, resolve, reject } = Promise.withResolvers<T | null>();
    const over = () => {
      sameSocket.delete(waiting);
      this.#waiting.delete(waiting);
      this.#tellWhenIdle();
    };
    let refused = false;
    const waiting: Waiting = {
      clientGone() {
        resolve(null);
        over();
      },
      end(reason) {
        refused = true;
        reject(reason);
        response.once("close", over);
      },
    };
    this.#waiting.add(waiting);
    sameSocket.add(waiting);
    ask()
      .finally(() => {
        if (!refused) over();
      })
      .then(resolve, reject);
    return await promise;
  }

  /** Whether a request that came over this connection is being answered. */
  busy(socket: Socket): boolean {
    const known = this.#bySocket.get(socket) ?? [];
    return [...known].some((each) => each instanceof Running);
  }

  /**
   * From now on new requests are refused, those that wait at once; resolves when these have been told, and the running
   * ones have ended or are abandoned.
   */
  drain(): Promise<void> {
    this.retire();
    this.#whenIdle ??= Promise.withResolvers();
    if (!this.#draining) {
      this.#draining = true;
      const reason = shuttingDown();
      for (const waiting of this.#waiting) waiting.end(reason);
    }
    this.#tellWhenIdle();
    return this.#whenIdle.promise;
  }

  /** Ends every running request as it stands; its client is told why. */
  stop(): void {
    const reason = shuttingDown();
    for (const running of this.#running) running.end(reason);
  }

  /** Takes the connections away from whatever still runs; nobody waits for it any more. */
  abandon(): Abandoned {
    const abandoned = { unread: 0, unsettled: 0 };
    for (const running of this.#running) {
      if (running.left) abandoned.unread += 1;
      else abandoned.unsettled += 1;
      running.disconnect();
    }
    this.#whenIdle?.resolve();
    return abandoned;
  }

  #tellWhenIdle(): void {
    if (this.#running.size === 0 && this.#waiting.size === 0) this.#whenIdle?.resolve();
  }

  #watch(socket: Socket): Set<Running | Waiting> {
    const known = this.#bySocket.get(socket);
    if (known !== undefined) return known;
    const requests = new Set<Running | Waiting>();
    this.#bySocket.set(socket, requests);
    const gone = () => {
      for (const request of requests) request.clientGone();
    };
    socket.once("end", gone);
    socket.once("close", gone);
    return requests;
  }
}

/** A request that waits for what it needs, or has been refused meanwhile and has its refusal on the way. */
interface Waiting {
  clientGone(): void;
  end(reason: Refusal): void;
}

class Running implements RunningRequest {
  readonly #controller = new AbortController();
  readonly #socket: Socket;
  readonly #response: ServerResponse;
  readonly #over: () => void;
  #left = false;
  #gone = false;

  constructor(socket: Socket, response: ServerResponse, over: () => void) {
    this.#socket = socket;
    this.#response = response;
    this.#over = over;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get gone(): boolean {
    return this.#gone;
  }

  /** All that is left of it is an answer on its way to the client. */
  get left(): boolean {
    return this.#left;
  }

  leave(): void {
    this.#left = true;
    if (this.#gone || this.#response.writableFinished) this.#over();
    else this.#response.once("close", this.#over);
  }

  clientGone(): void {
    this.#gone = true;
    this.#controller.abort(new Error("the client closed the connection"));
    if (this.#left) this.#over();
  }

  end(reason: Refusal): void {
    this.#controller.abort(reason);
  }

  disconnect(): void {
    this.#socket.destroy();
  }
}

export function shuttingDown(): Refusal {
  return new Refusal("shutting_down", "This service is being stopped. Send the request again in a moment.", {
    retryAfterSeconds: 2,
  });
}
