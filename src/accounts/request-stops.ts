/**
 * Stops running requests for operators, on any process of the database: at once in this process,
 * otherwise through a row that the process of the request finds at its next look. A command, which
 * answers no requests, waits until that has happened.
 *
 * Guarantees that a request is stopped at most once, and that a stop names a request that runs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ChargeRow } from "../ledger/rows.ts";
import { type Chore, startChore } from "../store/chore.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isoTime } from "./json-objects.ts";
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

type StopStore = Pick<Store, "stopRequests" | "usage" | "nowMs">;

/** A stop that the process of the request has carried out or not. */
export type StoppedRequest = { requestId: string } & (
  | {
      /** `ended`: the request ended by itself before the stop arrived. */
      outcome: "stopped" | "ended";
      /** Null if nothing was charged. */
      receipt: ChargeRow | null;
    }
  /** The request is still running. Its hold expires at this time. */
  | { outcome: "unanswered"; expiresMs: EpochMs }
);

/** Older rows are left alone. A look may fail while the database is away. */
const lookBackMs = 60_000;

export class RequestStops {
  readonly #store: StopStore;
  readonly #here: RequestsHere;
  readonly #looks: Chore;

  /** Looks every `everyMs` while requests run here. */
  constructor(
    store: StopStore,
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
    await recordStop(this.#store, requestId);
    return { requestId, isStopped: false };
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

/** Records a stop. Throws `request_not_found` if the request has no open hold. */
async function recordStop(store: StopStore, requestId: string): Promise<void> {
  if (await store.stopRequests.add(requestId, store.nowMs())) return;
  const receipt = await receiptOf(store, requestId);
  const message =
    receipt === null
      ? `No request "${requestId}" is running. It may have ended without a charge, or holds no credits yet.`
      : `Request "${requestId}" ended at ${isoTime(receipt.atMs)} (${receipt.ending}).`;
  throw new OperatorRefusal("request_not_found", `${message} Nothing has changed.`);
}

/** Five looks of a process. */
const stopTimes = { everyMs: 200, waitMsMax: 10_000 };

/** Stops a request that another process answers, and waits until its hold has ended. */
export async function stopElsewhere(
  store: StopStore,
  requestId: string,
  { everyMs, waitMsMax } = stopTimes,
): Promise<StoppedRequest> {
  await recordStop(store, requestId);
  const startMs = performance.now();
  for (;;) {
    const expiresMs = await store.stopRequests.openUntil(requestId);
    if (expiresMs === null) {
      const receipt = await receiptOf(store, requestId);
      const isStopped = receipt === null || receipt.ending === "client_gone";
      return { requestId, outcome: isStopped ? "stopped" : "ended", receipt };
    }
    if (performance.now() - startMs >= waitMsMax) return { requestId, outcome: "unanswered", expiresMs };
    await sleep(everyMs);
  }
}

/** Returns the newest receipt of a request. Running and uncharged requests have no receipt. */
async function receiptOf(store: StopStore, requestId: string): Promise<ChargeRow | null> {
  return (await store.usage({ id: requestId, limit: 2 })).at(-1) ?? null;
}
