/**
 * The record of one request. The server and the pipeline fill it in; the log, the metrics and the
 * traces get it when the request has ended. A charge that is recorded later is a second event.
 *
 * Holds nothing that people or models wrote.
 */

import { randomUUID } from "node:crypto";
import type { Caller } from "../accounts/keys.ts";
import type { ChatRequest } from "../chat/catalog.ts";
import type { Sampling } from "../chat/engine.ts";
import type { Charge, ChatRecord, ChatWork } from "../chat/generate.ts";
import { type CallerCode, catalogue } from "../errors.ts";
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";

/**
 * Returns a new request id, which is also the id of the hold and the receipt: a UUID of version 7
 * (RFC 9562), which begins with the time. The ledger's indexes begin with these ids. With random
 * ids, a journal of 600,000 rows took a sixth of the holds and settlements per second.
 */
export function newRequestId(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  // The digit of the version is at 14. The random rest, with its variant, is used as it is.
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** Gets the record of every request: the log, the metrics, the traces. */
export interface RequestObserver {
  /** The request has ended. `record.charge` is null if nothing was charged, or not yet. */
  finished(record: RequestRecord): void;
  /** A request that had ended without its charge has been charged. */
  chargedLate?(record: RequestRecord, charge: Charge): void;
  /** The charge could not be recorded and is given up. */
  unsettled?(record: RequestRecord, reason: unknown): void;
}

/** Work on a request: bytes of its body, and processor time of the main thread. */
export interface Work {
  bytes: number;
  ms: number;
}

/** Parameters of a chat request, stop sequences excluded. */
type ChatParameters = Omit<Sampling, "stop"> & Pick<ChatRequest, "maxTokens">;

type RequestHead = Pick<RequestRecord, "requestId" | "method" | "path" | "isChat" | "traceparent">;

export class RequestRecord implements ChatRecord {
  readonly requestId: string;
  readonly method: string;
  /** The endpoint, or null for any other path. */
  readonly path: string | null;
  /** The request is for the chat endpoint. */
  readonly isChat: boolean;
  /** Header with the trace of the caller. */
  readonly traceparent: string | null;
  readonly startedMs = performance.now();
  readonly startedAtMs: EpochMs = Date.now();
  /** Null until the key has been checked. */
  caller: Caller | null = null;
  /** When the body had been parsed, on the clock of `performance.now()`. */
  parsedMs: number | null = null;
  parameters: ChatParameters | null = null;
  streamed = false;
  /** Id of the requested model, if the catalog has it. */
  model: string | null = null;
  /** The model has taken the request. */
  isAccepted = false;
  /**
   * Time to the first token that was sent; null if no token was sent or the answer is not
   * streamed.
   */
  firstTokenMs: number | null = null;
  work: ChatWork | null = null;
  charge: Charge | null = null;
  /** Null if the client left before an answer could be sent. */
  status: number | null = null;
  code: CallerCode | null = null;
  durationMs = 0;
  /** Work on a chat request that was refused or left; null for other requests. */
  refused: Work | null = null;
  readonly #observers: readonly RequestObserver[];
  #isFinished = false;

  constructor(head: RequestHead, observers: readonly RequestObserver[]) {
    this.requestId = head.requestId;
    this.method = head.method;
    this.path = head.path;
    this.isChat = head.isChat;
    this.traceparent = head.traceparent;
    this.#observers = observers;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Id of the model that took the request, or null. */
  get acceptedModel(): string | null {
    return this.isAccepted ? this.model : null;
  }

  elapsedMs(): number {
    return performance.now() - this.startedMs;
  }

  parsed({ maxTokens, sampling: { stop: _stop, ...sampling }, stream }: ChatRequest): void {
    this.parsedMs = performance.now();
    this.parameters = { ...sampling, ...given({ maxTokens }) };
    this.streamed = stream;
  }

  charged(charge: Charge): void {
    this.charge = charge;
    if (!this.#isFinished) return;
    for (const observer of this.#observers) observer.chargedLate?.(this, charge);
  }

  unsettled(reason: unknown): void {
    for (const observer of this.#observers) observer.unsettled?.(this, reason);
  }

  /** Ends the record. Called once. */
  finish(status: number | null, code: CallerCode | null, refused: Work | null): void {
    this.#isFinished = true;
    this.status = status;
    this.code = code;
    this.refused = refused;
    this.durationMs = this.elapsedMs();
    for (const observer of this.#observers) observer.finished(this);
  }
}

/**
 * Returns whether the service failed on the request. A stream that broke off has already sent its
 * 200, so its code decides.
 */
export function isFailure({ status, code }: RequestRecord): boolean {
  const { status: wouldBe } = code === null ? { status } : catalogue[code];
  return status !== null && wouldBe !== null && wouldBe >= 500;
}
