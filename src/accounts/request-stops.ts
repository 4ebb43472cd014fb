/**
 * Stops running requests for operators, on any process of the database: at once in this process,
 * otherwise through a row that the process of the request finds at its next look.
 *
 * Guarantees that a request is stopped at most once, and that a stop names a request that runs.
 */
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { OperatorRefusal } from "./refusals.ts";

/** The requests that this process answers. */
export interface RequestsHere {
  readonly count: number;
  stopOne(requestId: string): boolean;
}

export interface RequestStop {
  requestId: string;
  /** False if another process answers the request. It stops the request at its next look. */
  isStopped: boolean;
}

/** Older rows are left alone. A look may fail while the database is away. */
const lookBackMs = 60_000;

export class RequestStops {
  readonly #store: Pick<Store, "stopRequests" | "nowMs">;
  readonly #here: RequestsHere;
  readonly #timer: NodeJS.Timeout;
  readonly #onError: (error: unknown) => void;
  #underWay: Promise<void> | null = null;

  /** Looks every `everyMs` while requests run here. */
  constructor(
    store: Pick<Store, "stopRequests" | "nowMs">,
    here: RequestsHere,
    { everyMs, onError }: { everyMs: number; onError(error: unknown): void },
  ) {
    this.#store = store;
    this.#here = here;
    this.#onError = onError;
    this.#timer = setInterval(() => this.#look(), everyMs);
  }

  /** Throws `request_not_found` if no process answers the request. */
  async stopRequest(requestId: string): Promise<RequestStop> {
    if (this.#here.stopOne(requestId)) return { requestId, isStopped: true };
    const { stopRequests } = this.#store;
    if (await stopRequests.add(requestId, this.#store.nowMs())) return { requestId, isStopped: false };
    throw new OperatorRefusal(
      "request_not_found",
      `No request "${requestId}" is running. It may have ended. Nothing has changed.`,
    );
  }

  /** Resolves when the last look has ended. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#underWay;
  }

  #look(): void {
    if (this.#here.count === 0) return;
    const sinceMs: EpochMs = this.#store.nowMs() - lookBackMs;
    this.#underWay ??= this.#store.stopRequests
      .since(sinceMs)
      .then((ids) => {
        for (const id of ids) this.#here.stopOne(id);
      })
      .catch(this.#onError)
      .finally(() => {
        this.#underWay = null;
      });
  }
}
