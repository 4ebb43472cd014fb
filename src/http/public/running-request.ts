/** A chat request that is being answered. Ends it when its client leaves or the service stops. */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Refusal } from "../../errors.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";

/** A request in progress. */
export interface Pending {
  clientGone(): void;
  end(reason: Refusal): void;
}

export class RunningRequest implements Pending {
  /** The client has left. */
  gone = false;
  /** The answer has been written, and may not have been read to its end. */
  isWritten = false;
  readonly record: RequestRecord;
  readonly #controller = new AbortController();
  readonly #socket: Socket;
  readonly #response: ServerResponse;
  readonly #remove: () => void;

  constructor(socket: Socket, response: ServerResponse, record: RequestRecord, remove: () => void) {
    this.record = record;
    this.#socket = socket;
    this.#response = response;
    this.#remove = remove;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Call when the last byte has been written. The request is over when it is flushed or lost. */
  written(): void {
    this.isWritten = true;
    if (this.gone || this.#response.writableFinished) this.#remove();
    else this.#response.once("close", this.#remove);
  }

  clientGone(): void {
    this.gone = true;
    this.#controller.abort(new Error("the client closed the connection"));
    if (this.isWritten) this.#remove();
  }

  end(reason: Refusal): void {
    this.#controller.abort(reason);
  }

  disconnect(): void {
    this.#socket.destroy();
  }
}

export function shuttingDown(): Refusal {
  return new Refusal("shutting_down", "This service is stopping. Send the request again in a moment.", {
    retryAfterSeconds: 2,
  });
}
