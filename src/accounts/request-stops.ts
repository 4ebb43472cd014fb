/**
 * Stops running requests for operators, on any process of the database: at once in this process,
 * otherwise through a row that the process of the request finds at its next look.
 *
 * Guarantees that a request is stopped at most once, and that a stop names a request that runs.
 */
import { type Chore, startChore } from "../store/chore.ts";
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
  readonly #looks: Chore;

  /** Looks every `everyMs` while requests run here. */
  constructor(
    store: Pick<Store, "stopRequests" | "nowMs">,
    here: RequestsHere,
    times: { everyMs: number; onError(error: unknown): void },
  ) {
    this.#store = store;
    this.#here = here;
    this.#looks = startChore(() => this.#look(), times);
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
    await this.#looks.stop();
  }

  async #look(): Promise<void> {
    if (this.#here.count === 0) return;
    const sinceMs: EpochMs = this.#store.nowMs() - lookBackMs;
    for (const id of await this.#store.stopRequests.since(sinceMs)) this.#here.stopOne(id);
  }
}
