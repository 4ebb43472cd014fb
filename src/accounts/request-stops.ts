/**
 * Stops running requests for operators, on any process of the database: at once in this process,
 * otherwise through a row that the process of the request finds at its next look. A command, which
 * answers no requests, waits until that has happened. The hold of a process that is gone ends at
 * its last checkpoint.
 *
 * Guarantees that a request is stopped at most once, and that a stop names a request that runs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Refusal } from "../errors.ts";
import type { Job } from "../job.ts";
import type { Jobs } from "../jobs.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Receipt, StopRequestRow, Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isoTime } from "./json-objects.ts";

/** The requests that this process answers. */
interface RequestsHere {
  readonly count: number;
  stopOne(requestId: string, by: string): boolean;
}

export interface RequestStop {
  requestId: string;
  /** False if another process answers the request. It stops the request at its next look. */
  isStopped: boolean;
}

type StopStore = Pick<Store, "stopRequests" | "usage" | "times">;

interface StopDependencies {
  store: StopStore;
  ledger: Pick<Ledger, "apply">;
}

/** A stop that has been carried out. */
export interface StoppedRequest {
  requestId: string;
  /** `ended`: the request ended by itself before the stop arrived. */
  outcome: "stopped" | "ended";
  /** Null if nothing was charged. */
  receipt: Receipt | null;
}

interface RequestStopsOptions {
  jobs: Jobs;
  everyMs: number;
  /** Called if the end of a request that another process answers cannot be read. */
  onError(error: unknown): void;
}

/** Older rows are left alone. A look may fail while the database is away. */
const lookBackMs = 60_000;

export class RequestStops {
  readonly #deps: StopDependencies;
  readonly #here: RequestsHere;
  readonly #onError: (error: unknown) => void;
  readonly #looks: Job;
  readonly #elsewhere = new Set<Promise<unknown>>();

  /** Looks every `everyMs` while requests run here. */
  constructor(
    dependencies: StopDependencies,
    here: RequestsHere,
    { jobs, everyMs, onError }: RequestStopsOptions,
  ) {
    this.#deps = dependencies;
    this.#here = here;
    this.#onError = onError;
    this.#looks = jobs.start({
      name: "stop_requests",
      everyMs,
      failure: "the stops of requests could not be read",
      run: () => this.#look(),
    });
  }

  /** Throws `request_not_found` if no process answers the request. */
  async stopRequest(stop: StopRequestRow): Promise<RequestStop> {
    const { id: requestId, by } = stop;
    if (this.#here.stopOne(requestId, by)) return { requestId, isStopped: true };
    await recordStop(this.#deps, stop);
    const waiting = awaitEnd(this.#deps, stop).catch(this.#onError);
    this.#elsewhere.add(waiting);
    void waiting.finally(() => this.#elsewhere.delete(waiting));
    return { requestId, isStopped: false };
  }

  /** Resolves when the last look has ended, and all stops are carried out. */
  async close(): Promise<void> {
    await Promise.all([this.#looks.stop(), ...this.#elsewhere]);
  }

  async #look(): Promise<void> {
    if (this.#here.count === 0) return;
    const { store } = this.#deps;
    const sinceMs: EpochMs = store.times().nowMs - lookBackMs;
    for (const { id, by } of await store.stopRequests.since(sinceMs)) this.#here.stopOne(id, by);
  }
}

/** Records a stop. Throws `request_not_found` if the request has no open hold. */
async function recordStop({ store }: StopDependencies, stop: StopRequestRow): Promise<void> {
  if (await store.stopRequests.add(stop, store.times().nowMs)) return;
  const receipt = await receiptOf(store, stop.id);
  throw notRunning(stop.id, receipt);
}

/** `receipt`: of the ended request, if it was charged. */
function notRunning(id: string, receipt: Receipt | null): Refusal {
  const message =
    receipt === null
      ? `No request "${id}" is running. It may have ended without a charge, or holds no credits yet.`
      : `Request "${id}" ended at ${isoTime(receipt.atMs)} (${receipt.ending}).`;
  return new Refusal("request_not_found", `${message} Nothing has changed.`);
}

/** For a command beside no service. Throws `request_not_found` if the request ended by itself. */
export async function stopWithoutService(
  dependencies: StopDependencies,
  stop: StopRequestRow,
): Promise<RequestStop> {
  const { requestId, outcome, receipt } = await stopElsewhere(dependencies, stop);
  if (outcome === "ended") throw notRunning(requestId, receipt);
  return { requestId, isStopped: true };
}

/** `waitMsMax`: about two looks of a process. */
const stopTimes = { everyMs: 200, waitMsMax: 5000 };

/** Stops a request that another process answers, and waits until its hold has ended. */
export async function stopElsewhere(
  dependencies: StopDependencies,
  stop: StopRequestRow,
  times = stopTimes,
): Promise<StoppedRequest> {
  await recordStop(dependencies, stop);
  return await awaitEnd(dependencies, stop, times);
}

/**
 * Waits until the hold of a stopped request has ended. If its process does not end it, it ends
 * here, at its last checkpoint. A process that is only slow adds the rest when it settles.
 */
async function awaitEnd(
  { store, ledger }: StopDependencies,
  { id: requestId, by }: StopRequestRow,
  { everyMs, waitMsMax } = stopTimes,
): Promise<StoppedRequest> {
  const startMs = performance.now();
  for (;;) {
    const open = await store.stopRequests.holdOf(requestId);
    if (open === null) break;
    if (performance.now() - startMs >= waitMsMax) {
      await ledger.apply({ kind: "stop", account: open.account, requestId, by });
      break;
    }
    await sleep(everyMs);
  }
  const receipt = await receiptOf(store, requestId);
  const isStopped = receipt === null || receipt.by !== null;
  return { requestId, outcome: isStopped ? "stopped" : "ended", receipt };
}

/** Returns the newest receipt of a request. Running and uncharged requests have no receipt. */
async function receiptOf(store: StopStore, requestId: string): Promise<Receipt | null> {
  return (await store.usage({ id: requestId, limit: 2 })).at(-1) ?? null;
}
